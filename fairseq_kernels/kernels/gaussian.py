"""Words and contexts as Gaussians: the log of their expected likelihood, log int N(x; W_v) N(x; h) dx."""

import functools
import math
from typing import List, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..fused import gaussian as fused
from .base import Hyperparameter, Kernel
from .distance import squared_distance, squared_norm

FLOOR = Hyperparameter("floor", 0.1, "positive")


class MixtureOfGaussians(Kernel):
    """S = sum_{i,j} log int N(mu_{i,W}, s_{i,W} I) N(mu_{j,h}, s_{j,h} I) (Eq. 10, as printed: a sum of logs), with

        log int N N = -(m/2) log 2 pi (s_W + s_h) - ||mu_W - mu_h||^2 / 2 (s_W + s_h).

    The model has exactly the linear kernel's parameters: the d coordinates of W_v, and of h, are shared out among
    the components in equal blocks (a remainder stays unused); the last coordinate x of a block carries the
    variance, s = softplus(x / sqrt(m)) + floor, the m before it the mean. Without the sqrt(m), x would change the
    score, which contains (m/2) log s, as much as the whole mean does.
    """

    hyperparameters: Tuple[Hyperparameter, ...] = (Hyperparameter("components", 2, "count"), FLOOR)
    fused = fused.MixtureOfGaussians

    def __init__(self, embed_dim: int, **values):
        super().__init__(embed_dim, **values)
        size = embed_dim // self.components
        if size < 2:
            raise ValueError(
                f"{self.name} with {self.components} component(s) needs embed_dim >= {2 * self.components} (a mean and "
                f"a variance each), not {embed_dim}; use a larger dimension or fewer components"
            )
        self.mean_size = size - 1
        starts = range(0, size * self.components, size)
        self.means: List[slice] = [slice(start, start + size - 1) for start in starts]

    @property
    def components(self) -> int:
        """Gaussians a word, and a context."""
        return int(self.value("components"))

    def _terms(self, vectors: Tensor) -> Tuple[Tensor, ...]:
        """||mu||^2 and s of each component, each (N,)."""
        norms = [squared_norm(vectors[:, mean]) for mean in self.means]
        scaled = (vectors[:, mean.stop] / math.sqrt(self.mean_size) for mean in self.means)
        return (*norms, *(F.softplus(x) + self.value("floor") for x in scaled))

    def queries(self, contexts):
        return [(contexts[:, context_mean], word_mean) for word_mean in self.means for context_mean in self.means]

    def word_terms(self, weight):
        return self._terms(weight)

    def context_terms(self, contexts):
        return tuple(term.unsqueeze(-1) for term in self._terms(contexts))

    def similarity(self, products: Sequence[Tensor], words: Sequence[Tensor], contexts: Sequence[Tensor]) -> Tensor:
        n, pairs = self.components, []
        for i in range(n):
            for j in range(n):
                variance = words[n + i] + contexts[n + j]
                distance = squared_distance(products[i * n + j], words[i], contexts[j])
                pairs.append(-(self.mean_size / 2) * torch.log(2 * math.pi * variance) - distance / (2 * variance))
        return functools.reduce(torch.add, pairs)

    def score_buffers(self):
        return 2 + 2 * self.components**2 + len(self._real)

    def fused_values(self):
        return self.components, self.mean_size  # the floor is in the word and context terms


class SphericalGaussian(MixtureOfGaussians):
    """S = log int N(mu_W, s_W I) N(mu_h, s_h I) (Eq. 9): one Gaussian a word, variance from the last coordinate."""

    hyperparameters = (FLOOR,)
    components = 1  # type: ignore[assignment]  # no hyper-parameter here
    fused = fused.MixtureOfGaussians
