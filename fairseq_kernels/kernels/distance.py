"""Kernels that are functions of the distance ||W_v - h||, through D = ||W_v||^2 + ||h||^2 - 2 W_v . h (Eq. 13)."""

from typing import Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..fused import distance as fused
from ..fused.distance import TINY
from .base import Hyperparameter, Kernel

WIDTH = Hyperparameter("gamma", 1.0, "positive", learn_from=lambda embed_dim: 1.0 / embed_dim)
ORDER = Hyperparameter("p", 2.0, "positive")


def squared_norm(vectors: Tensor) -> Tensor:
    """||x||^2 of each row, (N, m) to (N,)."""
    return (vectors * vectors).sum(-1)


def squared_distance(product: Tensor, word: Tensor, context: Tensor) -> Tensor:
    """max(a + b - 2g, 0) from g (N, V), a (V,), b (N, 1): rounding may leave a small negative number."""
    return (word + context - 2 * product).clamp_min(0)


class DistanceKernel(Kernel):
    """A function of D = ||W_v - h||^2; subclasses give :meth:`from_distance`."""

    def word_terms(self, weight):
        return (squared_norm(weight),)

    def context_terms(self, contexts):
        return (squared_norm(contexts).unsqueeze(-1),)

    def similarity(self, products, words, contexts):
        return self.from_distance(squared_distance(products[0], words[0], contexts[0]))

    def from_distance(self, distance: Tensor) -> Tensor:
        """S (N, V) from D (N, V)."""
        raise NotImplementedError(f"{type(self).__name__} has no from_distance(distance)")


class PowerKernel(DistanceKernel):
    """A function of (gamma D)^{p/2}."""

    hyperparameters = (ORDER, WIDTH)

    @property
    def quadratic(self) -> bool:
        """Whether p is fixed at the paper-like 2, which needs no powers."""
        return self._fixed.get("p") == 2.0

    def log_power(self, distance: Tensor) -> Tuple[Tensor, Tensor]:
        """log (gamma D)^{p/2}, and where D is 0: for p < 2 its gradient there is unbounded, the one taken is 0."""
        zero = distance <= TINY
        safe = torch.where(zero, 1.0, distance * self.value("gamma"))
        return safe.log() * (self.value("p") / 2), zero


class Logarithm(PowerKernel):
    """S = -log(||W_v - h||^p + 1) (Eq. 5); with gamma, D becomes gamma D."""

    fused = fused.Logarithm

    def from_distance(self, distance):
        if self.quadratic:
            return -torch.log1p(distance * self.value("gamma"))
        exponent, zero = self.log_power(distance)
        # log(x + 1) = softplus(log x) stays finite where x = D^{p/2} would overflow
        return torch.where(zero, 0.0, -F.softplus(exponent, threshold=40.0))


class Power(PowerKernel):
    """S = -||W_v - h||^p (Eq. 6); with gamma, D becomes gamma D."""

    fused = fused.Power
    takes_step = True

    def word_terms(self, weight):
        return (squared_norm(weight) * self.step**2,)

    def from_distance(self, distance):
        if self.quadratic:
            return -distance * self.value("gamma")
        exponent, zero = self.log_power(distance)
        return torch.where(zero, 0.0, -exponent.exp())


class RadialBasis(DistanceKernel):
    """S = exp(-gamma ||W_v - h||^2) (Eq. 8)."""

    hyperparameters = (WIDTH,)
    fused = fused.RadialBasis

    def from_distance(self, distance):
        return torch.exp(-distance * self.value("gamma"))


class Wavelet(DistanceKernel):
    """S = cos(||W_v - h||^2 / a) exp(-||W_v - h||^2 / b) (Eq. 12)."""

    hyperparameters = (
        Hyperparameter("a", 1.0, "positive", learn_from=float),
        Hyperparameter("b", 1.0, "positive", learn_from=float),
    )
    fused = fused.Wavelet

    def from_distance(self, distance):
        return torch.cos(distance / self.value("a")) * torch.exp(-distance / self.value("b"))
