"""The losses of the spherical family (de Brebisson & Vincent 2016): functions of o_y, s = sum o, q = sum o^2 and V.

All take tensors (N,) and return the loss of each example, in nats where it is a likelihood.
"""

import math
from typing import Optional

import torch
from torch import Tensor


class Taylor:
    """p(v) = g(o_v) / sum_u g(o_u) with g(o) = 1 + o + o^2 / 2, the second-order expansion of exp (section 3.2)."""

    name, settings = "taylor", ""
    zero_is_flat = False  # whether g has no slope at o = 0

    def numerator(self, output: Tensor) -> Tensor:
        """g(o), at least 1/2."""
        return torch.addcmul(1 + output, output, output, value=0.5)

    def loss(self, output: Tensor, total: Tensor, square: Tensor, words: int) -> Tensor:
        """-log p(y)"""
        return (words + total + square / 2).log() - self.numerator(output).log()

    def prior_output(self, prior: Tensor) -> Tensor:
        """o (V,) whose distribution is ``prior``: the rarest word at 0, as nothing would move it from g's minimum."""
        return (2 * prior / prior.min() - 1).sqrt() - 1


class Spherical:
    """p(v) = g(o_v) / sum_u g(o_u) with g(o) = o^2 + epsilon (section 3.1)."""

    name = "spherical"
    zero_is_flat = True

    def __init__(self, epsilon: float):
        if not 0 < epsilon < math.inf:
            raise ValueError(f"epsilon={epsilon:g} is not allowed: it must be a number > 0, such as 0.0198")
        self.epsilon, self.settings = float(epsilon), f"epsilon={epsilon:g}"

    def numerator(self, output: Tensor) -> Tensor:
        """g(o), at least epsilon."""
        return output.square() + self.epsilon

    def loss(self, output: Tensor, total: Tensor, square: Tensor, words: int) -> Tensor:
        """-log p(y)"""
        return (square + words * self.epsilon).log() - self.numerator(output).log()

    def prior_output(self, prior: Tensor) -> Tensor:
        """o (V,) whose distribution is ``prior``: the rarest word where its gradient 2 o / g(o) is largest."""
        return self.epsilon**0.5 * (2 * prior / prior.min() - 1).sqrt()


def squared_error(output: Tensor, total: Tensor, square: Tensor, words: int) -> Tensor:
    """||o - e_y||^2 = q - 2 o_y + 1, the squared error of the outputs to a one-hot target (section 1)."""
    return square - 2 * output + 1


def softmax_upper_bound(
    output: Tensor, total: Tensor, square: Tensor, words: int, xi: Optional[float] = None
) -> Tensor:
    """An upper bound of the log-softmax loss of o (Bouchard 2007; section 2), its alpha at the optimum.

    Args:
        xi: the bound's parameter, > 0, the same for all examples; None: the tightest one of each example.
    """
    spread = square - total.square() / words
    if xi is None:
        with torch.no_grad():  # at the minimum over xi the bound's slope in it is 0
            point = tightest_xi(spread / words, words)
    else:
        point = torch.full_like(output, xi)
    curvature = torch.tanh(point / 2) / (4 * point)  # lambda(xi)
    # V (log(1 + e^xi) - xi / 2 - lambda xi^2), by way of log(1 + e^xi) = xi + log1p(e^-xi)
    level = words * (torch.log1p(torch.exp(-point)) + point / 2 - curvature * point.square())
    return level - (words - 2) ** 2 / (16 * words * curvature) + total / words + spread * curvature - output


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
