"""Kernels that are functions of the distance ||W_v - h||, through D = ||W_v||^2 + ||h||^2 - 2 W_v . h (Eq. 13)."""

import math
from typing import Callable, Tuple

import torch
from torch import Tensor

from .base import Hyperparameter, Kernel

WIDTH = Hyperparameter("gamma", 1.0, "positive", learn_from=lambda embed_dim: 1.0 / embed_dim)
ORDER = Hyperparameter("p", 2.0, "positive")


class SquaredNorm(torch.autograd.Function):
    """||x||^2 of each row, (N, m) to (N, 1), with one tensor of x's size in backward and none in forward."""

    @staticmethod
    def forward(ctx, vectors):
        ctx.save_for_backward(vectors)
        return torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).square_()

    @staticmethod
    def backward(ctx, gradient):
        [vectors] = ctx.saved_tensors
        return vectors * (2 * gradient)


def squared_norm(vectors: Tensor, keepdim: bool = False) -> Tensor:
    """||x||^2 of each row."""
    square = SquaredNorm.apply(vectors)
    return square if keepdim else square.squeeze(-1)


def squared_distance(product: Tensor, word: Tensor, context: Tensor) -> Tensor:
    """max(a + b - 2g, 0) from g (N, V), a (V,), b (N, 1): rounding may leave a small negative number."""
    return (word + context - 2 * product).clamp_min(0)


class DistanceKernel(Kernel):
    """A function of gamma ||W_v - h||^2; subclasses give :meth:`of_distance`."""

    def word_terms(self, weight):
        return (squared_norm(weight),)

    def context_terms(self, contexts):
        return (squared_norm(contexts, keepdim=True),)

    def similarity(self, products, words, contexts):
        return self.of_distance(squared_distance(products[0], words[0], contexts[0]), contexts[0])

    @property
    def closed_form(self):
        # the kernels with an order p are written out for the paper-like p = 2
        return super().closed_form and self._fixed.get("p", 2.0) == 2.0

    def closed_form_scores_and_pullback(self, products, words, contexts):
        distance = torch.sub(words[0], products[0], alpha=2, out=products[0]).add_(contexts[0]).clamp_min_(0)
        scores, slope_times, factor = self.of_distance_with_slope(distance)

        def pullback(gradient):
            gradient = slope_times(gradient)
            to_word, to_context = factor * gradient.sum(0), factor * gradient.sum(1, keepdim=True)
            # in the place of the products, where the matrix products take it from
            return (torch.mul(gradient, -2 * factor, out=products[0]),), (to_word,), (to_context,), ()

        return scores, pullback

    def of_distance_with_slope(self, distance: Tensor) -> Tuple[Tensor, Callable[[Tensor], Tensor], float]:
        """S that may be overwritten, and dS/dD: the product with it in place but for a factor, and this factor.
        ``distance`` may be overwritten."""
        raise NotImplementedError

    def of_distance(self, distance: Tensor, scale: Tensor) -> Tensor:
        """S from D = ||W_v - h||^2 (N, V); ``scale`` (N, 1) is ||h||^2, of D's size where D is near 0."""
        raise NotImplementedError

    def widened(self, distance: Tensor) -> Tensor:
        gamma = self.value("gamma")
        return distance if isinstance(gamma, float) and gamma == 1.0 else distance * gamma

    def log_power(self, distance: Tensor, scale: Tensor):
        """log (gamma D)^{p/2}, and where D is distinct from 0: for p < 2 the gradient at 0 is unbounded, so the
        resolution of D is its floor and the subgradient there is 0."""
        distinct = distance > torch.finfo(distance.dtype).eps * scale.detach() + torch.finfo(distance.dtype).tiny
        safe = torch.where(distinct, self.widened(distance), 1.0)
        return safe.log() * (self.value("p") / 2), distinct


class Logarithm(DistanceKernel):
    """S = -log(||W_v - h||^p + 1) (Eq. 5); with gamma, D becomes gamma D."""

    name = "log"
    hyperparameters = (ORDER, WIDTH)

    def of_distance(self, distance, scale):
        if self._fixed.get("p") == 2.0:
            return -torch.log1p(self.widened(distance))
        exponent, distinct = self.log_power(distance, scale)
        # log(x + 1) = softplus(log x) stays finite where x = D^{p/2} would overflow
        return torch.where(distinct, -softplus(exponent), 0.0)

    closed_form_buffers = 2

    def of_distance_with_slope(self, distance):
        gamma = self.value("gamma")
        distance = (distance if gamma == 1 else distance.mul_(gamma)).add_(1)
        return distance.log().neg_(), lambda gradient: gradient.div_(distance), -gamma


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x), without the linear shortcut of torch's own from x = 20 on."""
    return torch.logaddexp(x, x.new_zeros(()))


class Power(DistanceKernel):
    """S = -||W_v - h||^p (Eq. 6); with gamma, D becomes gamma D."""

    name = "pow"
    hyperparameters = (ORDER, WIDTH)

    def of_distance(self, distance, scale):
        if self._fixed.get("p") == 2.0:
            return -self.widened(distance)
        exponent, distinct = self.log_power(distance, scale)
        return torch.where(distinct, -exponent.exp(), 0.0)

    closed_form_buffers = 1

    def of_distance_with_slope(self, distance):
        gamma = self.value("gamma")
        return distance.mul_(-gamma), lambda gradient: gradient, -gamma


def falling(exponent: Tensor) -> Tensor:
    """e^x in place for x <= 0, at least 1e-19 (float32): with less, products leave the normal numbers, and are slow."""
    return exponent.clamp_min_(math.log(torch.finfo(exponent.dtype).tiny) / 2).exp_()


class RadialBasis(DistanceKernel):
    """S = exp(-gamma ||W_v - h||^2) (Eq. 8)."""

    name = "rbf"
    hyperparameters = (WIDTH,)

    def of_distance(self, distance, scale):
        return torch.exp(-self.widened(distance))

    closed_form_buffers = 2

    def of_distance_with_slope(self, distance):
        gamma = self.value("gamma")
        bell = falling(distance.mul_(-gamma))
        return bell.clone(), lambda gradient: gradient.mul_(bell), -gamma


class Wavelet(DistanceKernel):
    """S = cos(||W_v - h||^2 / a) exp(-||W_v - h||^2 / b) (Eq. 12)."""

    name = "wav"
    hyperparameters = (
        Hyperparameter("a", 1.0, "positive", learn_from=float),
        Hyperparameter("b", 1.0, "positive", learn_from=float),
    )

    def of_distance(self, distance, scale):
        return torch.cos(distance / self.value("a")) * torch.exp(-distance / self.value("b"))

    closed_form_buffers = 4

    def of_distance_with_slope(self, distance):
        a, b = self.value("a"), self.value("b")
        bell = falling(distance / -b)
        wave = distance.div_(a).cos().mul_(bell)
        slope = distance.sin_().mul_(bell).div_(-a).sub_(wave, alpha=1 / b)
        return wave, lambda gradient: gradient.mul_(slope), 1.0
