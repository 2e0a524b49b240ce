"""Functions of D = a + b - 2g, from the product g (n, V), a = ||W_v||^2 (V,) and b = ||h||^2 (n, 1): see
``fairseq_kernels.kernels.distance`` for the formulas.

Each computes D in the product's place, and takes dS/dg = -2 dS/dD at once, which saves a pass over (n, V).
"""

import math
from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .values import dot, multiplied, number

TINY = 1e-30  # below the square of any float32 number of interest


def squared_distance(product: Tensor, word: Tensor, context: Tensor) -> Tensor:
    """D in the product's place."""
    product = product.detach()
    return torch.sub(word, product, alpha=2, out=product).add_(context).clamp_min_(0)


def with_terms(grad_product: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """dL/dg, dL/da and dL/db from the first: dL/dD = -dL/dg / 2, summed over tokens and over words."""
    return grad_product, grad_product.sum(0).mul_(-0.5), grad_product.sum(1, keepdim=True).mul_(-0.5)


def coincident(distance: Tensor) -> Optional[Tensor]:
    """Where D is 0; None: nowhere. A NaN never is."""
    # on the CPU a look at the least distance mostly spares the mask; on CUDA it would wait for the device
    if distance.device.type == "cpu" and not (distance.amin(1) <= TINY).any():
        return None
    return distance <= TINY


def least_exponent(dtype: torch.dtype) -> float:
    """Of an exponential, which is then 1e-19 (float32): with a smaller one products are denormal, and slow."""
    return math.log(torch.finfo(dtype).tiny) / 2


def falling_exp(exponent: Tensor) -> Tensor:
    """e^x in place for x <= 0, at least that of the least exponent."""
    return exponent.clamp_min_(least_exponent(exponent.dtype)).exp_()


def bounded(distance: Tensor, slope: float) -> Tensor:
    """A copy of D, no larger than where e^(-slope D) is least: what stands for 0 times a larger D would be large."""
    return distance.clamp_max(-least_exponent(distance.dtype) / slope)


class PowerFunction(Function):
    """A function of x = (gamma D)^{p/2}: what Logarithm and Power share.

    ``ctx.slope`` (n, V) and ``ctx.factor``: dS/dg is their product. Or ``ctx.slope`` is None: dS/dg is the factor.
    """

    @staticmethod
    def save_learned(ctx, p, gamma, distance):
        ctx.p, ctx.gamma = p, gamma
        ctx.distance = distance.clone() if any(ctx.needs_input_grad[:2]) else None

    @staticmethod
    def log_power_and_inverse(p: float, gamma: float, distance: Tensor) -> Tuple[Tensor, Tensor]:
        """log x, and 1 / D in the place of D; -inf and 0 where D is 0."""
        zero = coincident(distance)
        log_power = (distance * gamma).log_().mul_(p / 2)
        inverse = distance.reciprocal_()
        if zero is not None:
            log_power.masked_fill_(zero, -math.inf)
            inverse.masked_fill_(zero, 0.0)
        return log_power, inverse

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_score):
        grad = grad_score.mul_(ctx.factor) if ctx.slope is None else multiplied(ctx.slope, grad_score, ctx.factor)
        grad_p = grad_gamma = None
        # dS/dgamma = dS/dD D / gamma, dS/dp = dS/dD D log(gamma D) / p
        if ctx.needs_input_grad[0]:
            log_distance = torch.xlogy(ctx.distance, ctx.distance * number(ctx.gamma))
            grad_p = dot(grad, log_distance) / (-2 * number(ctx.p))
        if ctx.needs_input_grad[1]:
            grad_gamma = dot(grad, ctx.distance) / (-2 * number(ctx.gamma))
        return grad_p, grad_gamma, *with_terms(grad)


class Logarithm(PowerFunction):
    """-log(x + 1)."""

    buffers = 3

    @staticmethod
    def forward(ctx, p, gamma, product, word, context):
        distance = squared_distance(product, word, context)
        PowerFunction.save_learned(ctx, p, gamma, distance)
        if p == 2 and not isinstance(p, Tensor):
            width = number(gamma)
            scaled = distance if width == 1 else distance.mul_(width)
            score = scaled.log1p().neg_() if width < 0.01 else None  # 1 + x has few digits of a small x
            ctx.slope, ctx.factor = scaled.add_(1).reciprocal_(), 2 * width
            return ctx.slope.log() if score is None else score
        log_power, inverse = PowerFunction.log_power_and_inverse(number(p), number(gamma), distance)
        score = F.softplus(log_power, threshold=40.0).neg_()
        ctx.slope, ctx.factor = inverse.mul_(log_power.sigmoid_()), number(p)
        return score


class Power(PowerFunction):
    """-x."""

    buffers = 2

    @staticmethod
    def forward(ctx, p, gamma, product, word, context):
        distance = squared_distance(product, word, context)
        PowerFunction.save_learned(ctx, p, gamma, distance)
        if p == 2 and not isinstance(p, Tensor):
            ctx.slope, ctx.factor = None, 2 * number(gamma)
            return distance.mul_(-number(gamma))
        log_power, inverse = PowerFunction.log_power_and_inverse(number(p), number(gamma), distance)
        score = log_power.exp_().neg_()
        ctx.slope, ctx.factor = inverse.mul_(score), -number(p)
        return score


class RadialBasis(Function):
    """exp(-gamma D)."""

    buffers = 2

    @staticmethod
    def forward(ctx, gamma, product, word, context):
        distance = squared_distance(product, word, context)
        ctx.gamma = gamma
        ctx.distance = bounded(distance, number(gamma)) if ctx.needs_input_grad[0] else None
        bell = falling_exp(distance.mul_(-number(gamma)))
        ctx.slope = bell * (2 * number(gamma))
        return bell

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_score):
        grad = grad_score.mul_(ctx.slope)
        grad_gamma = None
        if ctx.distance is not None:
            grad_gamma = dot(grad, ctx.distance) / (-2 * number(ctx.gamma))
        return grad_gamma, *with_terms(grad)


class Wavelet(Function):
    """cos(D / a) exp(-D / b)."""

    buffers = 4

    @staticmethod
    def forward(ctx, a, b, product, word, context):
        distance = squared_distance(product, word, context)
        ctx.a, ctx.b, learned = a, b, any(ctx.needs_input_grad[:2])
        bell = falling_exp(distance / -number(b))
        ctx.distance = bounded(distance, 1 / number(b)) if learned else None
        score = distance.div_(number(a)).cos().mul_(bell)
        # dS/dg = 2 sin(D / a) bell / a + 2 S / b
        ctx.slope = distance.sin_().mul_(bell).mul_(2 / number(a))
        ctx.by_a, ctx.score = (ctx.slope.clone(), score.clone()) if learned else (None, None)
        ctx.slope.add_(score, alpha=2 / number(b))
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_score):
        grad_a = grad_b = None
        if ctx.distance is not None:  # dS/da = D / 2a of the part of dS/dg that comes through D / a; so for b
            weighted = ctx.distance.mul_(grad_score)
            if ctx.needs_input_grad[0]:
                grad_a = dot(weighted, ctx.by_a) / (2 * number(ctx.a))
            if ctx.needs_input_grad[1]:
                grad_b = dot(weighted, ctx.score) / number(ctx.b) ** 2
        return grad_a, grad_b, *with_terms(ctx.slope.mul_(grad_score))
