"""The losses of the spherical family (de Brebisson & Vincent 2016): functions of o_y, s = sum o, q = sum o^2 and V."""

import math
from typing import Optional

import torch
from torch import Tensor

from ..kernels.base import LARGEST, SMALLEST

WITHIN = f", from {SMALLEST:g} to {LARGEST:g}"


class SphericalFunction:
    """A loss of the family, and the distribution that its outputs o stand for.

    Attributes:
        name, settings: what checkpoints must, and should, agree with.
        zero_is_flat: whether o = 0 has no gradient.
        loss_is_nll: whether the loss is -log p(y).
    """

    name: str
    settings = ""
    zero_is_flat = False
    loss_is_nll = True

    def numerator(self, output: Tensor) -> Tensor:
        """g(o) > 0, to which the probabilities are proportional."""
        raise NotImplementedError

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """(N, V) to (N, V)."""
        numerator = self.numerator(outputs)
        return (numerator / numerator.sum(-1, keepdim=True)).log()

    def loss(self, output: Tensor, total: Tensor, square: Tensor, words: int) -> Tensor:
        """The loss of each example, (N,), from o_y, sum o, sum o^2 (N,) and V."""
        raise NotImplementedError

    def prior_output(self, prior: Tensor) -> Tensor:
        """o (V,) whose distribution is ``prior``."""
        raise NotImplementedError


class Taylor(SphericalFunction):
    """p(v) = g(o_v) / sum_u g(o_u) with g(o) = 1 + o + o^2 / 2, the second-order expansion of exp (section 3.2)."""

    name = "taylor"

    def numerator(self, output):
        return torch.addcmul(1 + output, output, output, value=0.5)

    def loss(self, output, total, square, words):
        return (words + total + square / 2).log() - self.numerator(output).log()

    def prior_output(self, prior):
        # the rarest word at 0, as nothing would move it from g's minimum
        return (2 * prior / prior.min() - 1).sqrt() - 1


class Spherical(SphericalFunction):
    """p(v) = g(o_v) / sum_u g(o_u) with g(o) = o^2 + epsilon (section 3.1)."""

    name = "spherical"
    zero_is_flat = True

    def __init__(self, epsilon: float = 0.0198):
        if not SMALLEST <= epsilon <= LARGEST:
            raise ValueError(f"epsilon={epsilon:g} is not allowed: it must be a number > 0{WITHIN}, such as 0.0198")
        self.epsilon, self.settings = float(epsilon), f"epsilon={epsilon:g}"

    def numerator(self, output):
        return output.square() + self.epsilon

    def loss(self, output, total, square, words):
        return (square + words * self.epsilon).log() - self.numerator(output).log()

    def prior_output(self, prior):
        # the rarest word where its gradient 2 o / g(o) is largest
        return self.epsilon**0.5 * (2 * prior / prior.min() - 1).sqrt()


class SquaredError(SphericalFunction):
    """||o - e_y||^2 = q - 2 o_y + 1, the outputs' squared error to a one-hot target (section 1). It is least where o is
    the distribution, so p is o, from :attr:`least` up and divided by its sum."""

    name = "squared error"
    loss_is_nll = False
    least = 1e-8

    def numerator(self, output):
        return output.clamp_min(self.least)

    def loss(self, output, total, square, words):
        return square - 2 * output + 1

    def prior_output(self, prior):
        return prior


class SoftmaxBound(SphericalFunction):
    """An upper bound of the log-softmax loss (Bouchard 2007; section 2), its alpha at the optimum; p is softmax(o).

    Args:
        xi: the bound's parameter, from 1e-12 to 1e10, the same for all examples; None: each example's tightest.

    Raises:
        ValueError: another ``xi``.
    """

    name = "softmax bound"
    loss_is_nll = False

    def __init__(self, xi: Optional[float] = None):
        if xi is not None and not SMALLEST <= xi <= LARGEST:
            raise ValueError(
                f"xi={xi:g} is not allowed: it must be a number > 0{WITHIN}, or None for the tightest bound"
            )
        self.xi, self.settings = xi, "" if xi is None else f"xi={xi:g}"

    def log_probabilities(self, outputs):
        return outputs.log_softmax(-1)

    def loss(self, output, total, square, words):
        spread = square - total.square() / words
        if self.xi is None:
            with torch.no_grad():  # at the minimum over xi the bound's slope in it is 0
                xi = tightest_xi(spread / words, words)
        else:
            xi = torch.full_like(output, self.xi)
        tanh, gap = torch.tanh(xi / 2), 2 / (xi.exp() + 1)  # the latter is 1 - tanh
        # V (log(1 + e^xi) - xi / 2 - lambda xi^2) - (V - 2)^2 / (16 V lambda), lambda(xi) = tanh / 4 xi: the terms of
        # size V cancel
        level = words * torch.log1p(torch.exp(-xi)) + xi * ((1 - 1 / words) - words * gap.square() / 4) / tanh
        return level + total / words + spread * tanh / (4 * xi) - output

    def prior_output(self, prior):
        return prior.log()


def tightest_xi(variance: Tensor, words: int) -> Tensor:
    """The minimum of the bound: xi^2 (1 - (1 - 2/V)^2 / tanh(xi/2)^2) = Var_v(o), by bisection; (N,) to (N,).

    The left side grows from 0, where tanh(xi/2) = 1 - 2/V, without limit.
    """
    if words == 1:  # the bound falls to the loss, 0, as xi grows
        return torch.full_like(variance, 40.0)
    ratio = 1 - 2 / words
    start, dtype = 2 * math.atanh(ratio), variance.dtype
    variance = variance.double().clamp_min(0)
    low = torch.full_like(variance, start)
    # from start + 2 on the bracket has at least 0.86 of its limit 1 - (1 - 2/V)^2
    high = start + 2 + 1.1 * (variance / (1 - ratio**2)).sqrt()
    for _ in range(60):
        middle = (low + high) / 2
        value = middle.square() * (1 - (ratio / torch.tanh(middle / 2)) ** 2)
        low, high = torch.where(value < variance, middle, low), torch.where(value < variance, high, middle)
    return ((low + high) / 2).clamp_min(1e-6).to(dtype)
