"""Functions of D = a + b - 2g, from the product g (n, V), a = ||W_v||^2 (V,) and b = ||h||^2 (n, 1): see
``fairseq_kernels.kernels.distance`` for the formulas.

Each computes D, times a factor, in the product's place, and takes dS/dg = -2 dS/dD at once, which saves passes over
(n, V). 2^x stands for e^x, which takes torch three times as long. Hyper-parameters are numbers or, where they are
learned, tensors.
"""

import math
from typing import Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

Value = Union[int, float, Tensor]
TINY = 1e-30  # below the square of any float32 number of interest


def number(value: Value) -> float:
    """A hyper-parameter's present value."""
    return float(value.detach()) if isinstance(value, Tensor) else value


def dot(one: Tensor, other: Tensor) -> Tensor:
    """Sum of the products of all elements, without a tensor of them."""
    return torch.dot(one.reshape(-1), other.reshape(-1))


def multiplied(one: Tensor, other: Tensor, factor: float) -> Tensor:
    """``one * other * factor`` stored in ``one``, in one pass."""
    return torch.addcmul(one.new_zeros(()), one, other, value=factor, out=one)


def squared_distance(product: Tensor, word: Tensor, context: Tensor, factor: float = 1.0) -> Tensor:
    """factor D in the product's place."""
    product = product.detach()
    torch.sub(word * factor, product, alpha=2 * factor, out=product).add_(context * factor)
    return product.clamp_min_(0) if factor > 0 else product.clamp_max_(0)


def with_terms(grad_product: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """dL/dg, dL/da and dL/db from the first: dL/dD = -dL/dg / 2, summed over tokens and over words."""
    return grad_product, grad_product.sum(0).mul_(-0.5), grad_product.sum(1, keepdim=True).mul_(-0.5)


def coincident(distance: Tensor) -> Optional[Tensor]:
    """Where D is 0; None: nowhere. A NaN never is."""
    # on the CPU a look at the least distance mostly spares the mask; on CUDA it would wait for the device
    if distance.device.type == "cpu" and not (distance.amin(1) <= TINY).any():
        return None
    return distance <= TINY


def bounded_exponent(exponent: Tensor) -> Tensor:
    """Clamps x in place so that 2^x >= 1e-19 (float32): smaller ones make denormal products, which are slow. Gradients
    take D from the clamped x, too: an unbounded D times 1e-19 could be large."""
    return exponent.clamp_min_(math.log2(torch.finfo(exponent.dtype).tiny) / 2)


class PowerFunction(Function):
    """A function of x = (gamma D)^{p/2}: what Logarithm and Power share.

    ``ctx.slope`` (n, V) and ``ctx.factor``: dS/dg is their product. Or ``ctx.slope`` is None: dS/dg is the factor.
    """

    @staticmethod
    def distance(ctx, p, gamma, tensors: Tuple[Tensor, Tensor, Tensor], factor: float = 1.0) -> Tensor:
        """factor D in the product's place; a copy is kept where p or gamma is learned."""
        ctx.p, ctx.gamma, ctx.distance_factor = p, gamma, factor
        distance = squared_distance(*tensors, factor)
        ctx.distance = distance.clone() if any(ctx.needs_input_grad[:2]) else None
        return distance

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
    def backward(ctx, grad_score):
        grad = grad_score.mul_(ctx.factor) if ctx.slope is None else multiplied(ctx.slope, grad_score, ctx.factor)
        grad_p = grad_gamma = None
        # dS/dgamma = dS/dD D / gamma, dS/dp = dS/dD D log(gamma D) / p
        if ctx.needs_input_grad[0]:
            log_distance = torch.xlogy(ctx.distance, ctx.distance * number(ctx.gamma))
            grad_p = dot(grad, log_distance) / (-2 * number(ctx.p))
        if ctx.needs_input_grad[1]:
            grad_gamma = dot(grad, ctx.distance) / (-2 * number(ctx.gamma) * ctx.distance_factor)
        return grad_p, grad_gamma, *with_terms(grad)


class Logarithm(PowerFunction):
    """-log(x + 1)."""

    buffers = 3

    @staticmethod
    def forward(ctx, p, gamma, *tensors):
        if p == 2 and not isinstance(p, Tensor):
            width = number(gamma)
            scaled = PowerFunction.distance(ctx, p, gamma, tensors, width)
            score = scaled.log1p().neg_() if width < 0.01 else None  # 1 + x has few digits of a small x
            ctx.slope, ctx.factor = scaled.add_(1).reciprocal_(), 2 * width
            return ctx.slope.log() if score is None else score
        distance = PowerFunction.distance(ctx, p, gamma, tensors)
        log_power, inverse = PowerFunction.log_power_and_inverse(number(p), number(gamma), distance)
        score = F.softplus(log_power, threshold=40.0).neg_()
        ctx.slope, ctx.factor = inverse.mul_(log_power.sigmoid_()), number(p)
        return score


class Power(PowerFunction):
    """-x."""

    buffers = 2

    @staticmethod
    def forward(ctx, p, gamma, *tensors):
        if p == 2 and not isinstance(p, Tensor):
            ctx.slope, ctx.factor = None, 2 * number(gamma)
            return PowerFunction.distance(ctx, p, gamma, tensors, -number(gamma))
        distance = PowerFunction.distance(ctx, p, gamma, tensors)
        log_power, inverse = PowerFunction.log_power_and_inverse(number(p), number(gamma), distance)
        score = log_power.exp_().neg_()
        ctx.slope, ctx.factor = inverse.mul_(score), -number(p)
        return score


class RadialBasis(Function):
    """exp(-gamma D)."""

    buffers = 2

    @staticmethod
    def forward(ctx, gamma, product, word, context):
        ctx.gamma, ctx.rate = gamma, -number(gamma) / math.log(2)
        exponent = bounded_exponent(squared_distance(product, word, context, ctx.rate))
        ctx.exponent = exponent.clone() if ctx.needs_input_grad[0] else None
        bell = exponent.exp2_()
        ctx.slope = bell * (2 * number(gamma))
        return bell

    @staticmethod
    def backward(ctx, grad_score):
        grad = grad_score.mul_(ctx.slope)
        grad_gamma = None
        if ctx.exponent is not None:
            grad_gamma = dot(grad, ctx.exponent) / (-2 * number(ctx.gamma) * ctx.rate)
        return grad_gamma, *with_terms(grad)


class Wavelet(Function):
    """cos(D / a) exp(-D / b)."""

    buffers = 4

    @staticmethod
    def forward(ctx, a, b, product, word, context):
        ctx.a, ctx.b, learned = a, b, any(ctx.needs_input_grad[:2])
        angle = squared_distance(product, word, context, 1 / number(a))
        ctx.rate = -1 / (number(b) * math.log(2))
        exponent = bounded_exponent(angle * (number(a) * ctx.rate))
        ctx.exponent = exponent.clone() if learned else None
        bell = exponent.exp2_()
        score = angle.cos().mul_(bell)
        # dS/dg = 2 sin(D / a) bell / a + 2 S / b
        ctx.slope = multiplied(angle.sin_(), bell, 2 / number(a))
        ctx.by_a, ctx.score = (ctx.slope.clone(), score.clone()) if learned else (None, None)
        ctx.slope.add_(score, alpha=2 / number(b))
        return score

    @staticmethod
    def backward(ctx, grad_score):
        grad_a = grad_b = None
        if ctx.exponent is not None:  # dS/da = D / 2a of the part of dS/dg that comes through D / a; so for b
            weighted = ctx.exponent.mul_(grad_score)
            if ctx.needs_input_grad[0]:
                grad_a = dot(weighted, ctx.by_a) / (2 * number(ctx.a) * ctx.rate)
            if ctx.needs_input_grad[1]:
                grad_b = dot(weighted, ctx.score) / (number(ctx.b) ** 2 * ctx.rate)
        return grad_a, grad_b, *with_terms(ctx.slope.mul_(grad_score))
