"""Kernels that are functions of the distance ||W_v - h||, through D = ||W_v||^2 + ||h||^2 - 2 W_v . h (Eq. 13)."""

import math
from typing import Callable, Dict, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .base import Gradients, Hyperparameter, Kernel, dot

TINY = 1e-30  # below the square of any float32 number of interest
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


def distinct(distance: Tensor, square: Tensor) -> Tensor:
    """Where D (N, V) is distinct from 0, from ||h||^2 (N, 1), of D's size there: above D's resolution."""
    return distance > torch.finfo(distance.dtype).eps * square.detach() + TINY


def indistinct(distance: Tensor, square: Tensor) -> Optional[Tensor]:
    """Where D isn't; None: nowhere."""
    # on the CPU a look at the least distance mostly spares the mask; on CUDA it would wait for the device
    if distance.device.type == "cpu" and distinct(distance.amin(1, keepdim=True), square).all():
        return None
    return distinct(distance, square).logical_not_()


# dL/dS (N, V) to dL/dD but for a factor, best in D's place; this factor; gradients of hyper-parameters' values
OfDistance = Callable[[Tensor], Tuple[Tensor, float, Dict[str, Tensor]]]


class DistanceKernel(Kernel):
    """A function of D = ||W_v - h||^2; subclasses give :meth:`of_distance`, and its closed form."""

    def word_terms(self, weight):
        return (squared_norm(weight),)

    def context_terms(self, contexts):
        return (squared_norm(contexts, keepdim=True),)

    def similarity(self, products, words, contexts):
        return self.of_distance(squared_distance(products[0], words[0], contexts[0]), contexts[0])

    def of_distance(self, distance: Tensor, square: Tensor) -> Tensor:
        """S from D (N, V) and ||h||^2 (N, 1), the size of which tells D from 0."""
        raise NotImplementedError

    def closed_form_scores_and_pullback(self, products, words, contexts):
        distance = torch.sub(words[0], products[0], alpha=2, out=products[0]).add_(contexts[0]).clamp_min_(0)
        scores, of_distance = self.of_distance_and_pullback(distance, contexts[0])

        def pullback(gradient):
            gradient, factor, of_values = of_distance(gradient)
            of_word, of_context = factor * gradient.sum(0), factor * gradient.sum(1, keepdim=True)
            return Gradients((gradient,), (of_word,), (of_context,), -2 * factor, of_values)

        return scores, pullback

    def of_distance_and_pullback(self, distance: Tensor, square: Tensor) -> Tuple[Tensor, OfDistance]:
        """S as :meth:`of_distance`, and its pullback. Both may overwrite ``distance``."""
        raise NotImplementedError


class PowerKernel(DistanceKernel):
    """A function of (gamma D)^{p/2}; or, without p, of gamma D."""

    def widened(self, distance: Tensor) -> Tensor:
        gamma = self.value("gamma")
        return distance if isinstance(gamma, float) and gamma == 1.0 else distance * gamma

    def log_power(self, distance: Tensor, square: Tensor):
        """log (gamma D)^{p/2}, and where D is distinct from 0: for p < 2 the gradient at 0 is unbounded, so the
        resolution of D is its floor and the subgradient there is 0."""
        apart = distinct(distance, square)
        safe = torch.where(apart, self.widened(distance), 1.0)
        return safe.log() * (self.value("p") / 2), apart

    @property
    def quadratic(self) -> bool:
        """Whether p is the paper-like 2, which needs no powers."""
        return self._fixed.get("p") == 2.0

    def of_distance_and_pullback(self, distance, square):
        kept = distance.clone() if {"gamma", "p"} & set(self._real) else None
        gamma = self.number("gamma")
        scores, slope_times, factor = self.of_distance_with_slope(distance, square)

        def pullback(gradient):
            gradient, of_values = slope_times(gradient), {}
            # dS/dgamma = dS/dD D / gamma, dS/dp = dS/dD D log(gamma D) / p
            if "gamma" in self._real:
                of_values["gamma"] = dot(gradient, kept) * (factor / gamma)
            if "p" in self._real:
                of_values["p"] = dot(gradient, torch.xlogy(kept, kept * gamma)) * (factor / self.number("p"))
            return gradient, factor, of_values

        return scores, pullback

    def of_distance_with_slope(
        self, distance: Tensor, square: Tensor
    ) -> Tuple[Tensor, Callable[[Tensor], Tensor], float]:
        """S, and dS/dD: the product with it but for a factor, best in D's place, and this factor."""
        raise NotImplementedError

    def log_power_and_inverse(self, distance: Tensor, square: Tensor) -> Tuple[Tensor, Tensor]:
        """log (gamma D)^{p/2}, and 1 / D in the place of D; -inf and 0 where D isn't distinct from 0."""
        same = indistinct(distance, square)
        exponent = (distance * self.number("gamma")).log_().mul_(self.number("p") / 2)
        inverse = distance.reciprocal_()
        if same is not None:
            exponent.masked_fill_(same, -math.inf)
            inverse.masked_fill_(same, 0.0)
        return exponent, inverse


class Logarithm(PowerKernel):
    """S = -log(||W_v - h||^p + 1) (Eq. 5); with gamma, D becomes gamma D."""

    name = "log"
    hyperparameters = (ORDER, WIDTH)

    def of_distance(self, distance, square):
        if self.quadratic:
            return -torch.log1p(self.widened(distance))
        exponent, apart = self.log_power(distance, square)
        # log(x + 1) = softplus(log x) stays finite where x = D^{p/2} would overflow
        return torch.where(apart, -softplus(exponent), 0.0)

    @property
    def closed_form_buffers(self):
        return 2 if self.quadratic else 3

    def of_distance_with_slope(self, distance, square):
        gamma = self.number("gamma")
        if self.quadratic:
            distance = (distance if gamma == 1 else distance.mul_(gamma)).add_(1)
            return distance.log().neg_(), lambda gradient: torch.div(gradient, distance, out=distance), -gamma
        exponent, inverse = self.log_power_and_inverse(distance, square)
        scores = softplus(exponent).neg_()
        slope = inverse.mul_(exponent.sigmoid_())
        return scores, slope.mul_, -self.number("p") / 2


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x); x itself from where on that is the same in float64."""
    return F.softplus(x, threshold=40.0)


class Power(PowerKernel):
    """S = -||W_v - h||^p (Eq. 6); with gamma, D becomes gamma D."""

    name = "pow"
    hyperparameters = (ORDER, WIDTH)

    def of_distance(self, distance, square):
        if self.quadratic:
            return -self.widened(distance)
        exponent, apart = self.log_power(distance, square)
        return torch.where(apart, -exponent.exp(), 0.0)

    @property
    def closed_form_buffers(self):
        return 1 if self.quadratic else 2

    def of_distance_with_slope(self, distance, square):
        if self.quadratic:
            gamma = self.number("gamma")
            return distance.mul_(-gamma), lambda gradient: gradient, -gamma
        exponent, inverse = self.log_power_and_inverse(distance, square)
        scores = exponent.exp_().neg_()
        slope = inverse.mul_(scores)
        return scores, slope.mul_, self.number("p") / 2


def falling(exponent: Tensor) -> Tensor:
    """e^x in place for x <= 0, at least 1e-19 (float32): with less, products leave the normal numbers, and are slow."""
    return exponent.clamp_min_(math.log(torch.finfo(exponent.dtype).tiny) / 2).exp_()


class RadialBasis(PowerKernel):
    """S = exp(-gamma ||W_v - h||^2) (Eq. 8)."""

    name = "rbf"
    hyperparameters = (WIDTH,)

    def of_distance(self, distance, square):
        return torch.exp(-self.widened(distance))

    closed_form_buffers = 2

    def of_distance_with_slope(self, distance, square):
        gamma = self.number("gamma")
        bell = falling(distance.mul_(-gamma))
        return bell.clone(), bell.mul_, -gamma


class Wavelet(DistanceKernel):
    """S = cos(||W_v - h||^2 / a) exp(-||W_v - h||^2 / b) (Eq. 12)."""

    name = "wav"
    hyperparameters = (
        Hyperparameter("a", 1.0, "positive", learn_from=float),
        Hyperparameter("b", 1.0, "positive", learn_from=float),
    )

    def of_distance(self, distance, square):
        return torch.cos(distance / self.value("a")) * torch.exp(-distance / self.value("b"))

    closed_form_buffers = 4

    def of_distance_and_pullback(self, distance, square):
        a, b = self.number("a"), self.number("b")
        learned = {"a", "b"} & set(self._real)
        kept = distance.clone() if learned else None
        bell = falling(distance / -b)
        wave = distance.div_(a).cos().mul_(bell)
        scores = wave.clone() if learned else wave
        # dS/dD = -sin(D / a) bell / a - wave / b
        tilt = distance.sin_().mul_(bell).div_(-a)
        slope = tilt.clone() if learned else tilt
        slope.sub_(wave, alpha=1 / b)

        def pullback(gradient):
            of_values = {}
            if learned:  # dS/da = -D / a times the part of dS/dD through D / a, so for b
                kept.mul_(gradient)
                of_values = {"a": dot(kept, tilt) / -a, "b": dot(kept, wave) / b**2}
            return slope.mul_(gradient), 1.0, of_values

        return scores, pullback
