"""Words and contexts as Gaussians: the log of their expected likelihood, log int N(x; W_v) N(x; h) dx."""

import itertools
import math
from typing import List, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .base import Gradients, Hyperparameter, Kernel
from .distance import squared_distance, squared_norm

FACTORS = 4  # precisions whose product is taken before their logarithm, which costs more: far from underflow
FLOOR = Hyperparameter("floor", 0.1, "positive")


class MixtureOfGaussians(Kernel):
    """S = sum_{i,j} log int N(mu_{i,W}, s_{i,W} I) N(mu_{j,h}, s_{j,h} I) (Eq. 10, as printed: a sum of logs), with

        log int N N = -(m/2) log 2 pi (s_W + s_h) - ||mu_W - mu_h||^2 / 2 (s_W + s_h).

    The model has exactly the linear kernel's parameters: the d coordinates of W_v, and of h, are shared out among
    the components in equal blocks (a remainder stays unused); the last coordinate x of a block carries the
    variance, s = softplus(x / sqrt(m)) + floor, the m before it the mean. Without the sqrt(m) x would move the score,
    which has m/2 times the logarithm of s, as much as all of the mean does, and models learn worse (README).
    """

    name = "mog"
    hyperparameters = (Hyperparameter("components", 2, "count"), FLOOR)

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
        self.variances: List[slice] = [slice(start + size - 1, start + size) for start in starts]

    @property
    def components(self) -> int:
        return self.value("components")

    def _terms(self, vectors: Tensor) -> Tuple[Tensor, ...]:
        """||mu||^2 and s of each component, each (N, 1)."""
        norms = [squared_norm(vectors[:, mean], keepdim=True) for mean in self.means]
        scaled = (vectors[:, variance] / math.sqrt(self.mean_size) for variance in self.variances)
        return (*norms, *(F.softplus(x) + self.value("floor") for x in scaled))

    def queries(self, contexts):
        return [(contexts[:, of_context], of_word) for of_word in self.means for of_context in self.means]

    def word_terms(self, weight):
        return tuple(term.squeeze(-1) for term in self._terms(weight))

    def context_terms(self, contexts):
        return self._terms(contexts)

    def similarity(self, products: Sequence[Tensor], words: Sequence[Tensor], contexts: Sequence[Tensor]) -> Tensor:
        n = self.components
        total = 0.0
        for i in range(n):
            for j in range(n):
                variance = words[n + i] + contexts[n + j]
                distance = squared_distance(products[i * n + j], words[i], contexts[j])
                total = total - (self.mean_size / 2) * torch.log(2 * math.pi * variance) - distance / (2 * variance)
        return total

    @property
    def closed_form_buffers(self):
        return 2 + 2 * self.components**2

    def closed_form_scores_and_pullback(self, products, words, contexts):
        # with r = 1 / (s_W + s_h): log int N N = (m/2) log(r / 2 pi) - r D / 2
        n, m = self.components, self.mean_size
        pairs = list(itertools.product(range(n), range(n)))
        total, kept = 0.0, []
        for start in range(0, len(pairs), FACTORS):
            factors = None
            for place, (i, j) in enumerate(pairs[start : start + FACTORS], start):
                # no clamp at 0: a distance of a rounding error below it does no harm here
                distance = torch.sub(words[i], products[place], alpha=2, out=products[place]).add_(contexts[j])
                precision = (words[n + i] + contexts[n + j]).reciprocal_()
                factors = precision.clone() if factors is None else factors.mul_(precision)
                kept.append((distance, precision))
            number = min(FACTORS, len(pairs) - start)
            logs = factors.log_().sub_(number * math.log(2 * math.pi)).mul_(m / 2)
            total = total + logs if start else logs
        for distance, precision in kept:
            total.addcmul_(precision, distance, value=-0.5)

        def pullback(gradient):
            to_products, to_words, to_contexts = [], [0.0] * (2 * n), [0.0] * (2 * n)
            for (i, j), (distance, precision) in zip(pairs, kept):
                # dS/dD = -r / 2, dS/ds = r (r D - m) / 2, dS/dproduct = r
                distance.mul_(precision)
                weighted = precision.mul_(gradient)
                distance.mul_(weighted)
                for sums, dim, index in ((to_words, 0, i), (to_contexts, 1, j)):
                    precisions = weighted.sum(dim, keepdim=bool(dim))
                    spread = distance.sum(dim, keepdim=bool(dim))
                    sums[index] = sums[index] - precisions / 2
                    sums[n + index] = sums[n + index] + (spread - m * precisions) / 2
                to_products.append(weighted)
            return Gradients(tuple(to_products), tuple(to_words), tuple(to_contexts))

        return total, pullback


class SphericalGaussian(MixtureOfGaussians):
    """S = log int N(mu_W, s_W I) N(mu_h, s_h I) (Eq. 9): one Gaussian a word, the last coordinate is its variance."""

    name = "ssg"
    hyperparameters = (FLOOR,)
    components = 1
