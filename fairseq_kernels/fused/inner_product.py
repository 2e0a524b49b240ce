"""Functions of the inner product g (n, V): see ``fairseq_kernels.kernels.inner_product`` for the formulas."""

import torch
from torch.autograd import Function

from .distance import dot, multiplied, number


class Product:
    """g itself."""

    buffers = 1

    @staticmethod
    def apply(product):
        return product


class Polynomial(Function):
    """(alpha g + c)^p."""

    buffers = 2

    @staticmethod
    def forward(ctx, alpha, c, p, product):
        ctx.alpha, ctx.c, ctx.p = alpha, c, p
        product, slope = product.detach(), number(alpha)
        ctx.product = product if ctx.needs_input_grad[0] else None
        base = product * slope if ctx.needs_input_grad[0] else product if slope == 1 else product.mul_(slope)
        ctx.base = base.add_(number(c))
        return ctx.base**p

    @staticmethod
    def backward(ctx, grad_score):
        # dS/dbase = p base^(p - 1)
        slope, factor = ctx.base if ctx.p == 2 else ctx.base.pow_(ctx.p - 1), ctx.p * number(ctx.alpha)
        wants_alpha, wants_c = ctx.needs_input_grad[:2]
        if not (wants_alpha or wants_c):
            return None, None, None, multiplied(slope, grad_score, factor)
        grad_base = slope.mul_(grad_score)  # divided by p
        grad_c = grad_base.sum() * ctx.p if wants_c else None
        grad_alpha = dot(grad_base, ctx.product) * ctx.p if wants_alpha else None
        return grad_alpha, grad_c, None, grad_base.mul_(factor)


class Sigsoftmax(Function):
    """g + log sigmoid(g)."""

    buffers = 2

    @staticmethod
    def forward(ctx, product):
        ctx.product = product = product.detach()
        # log sigmoid(g) = log sigmoid(|g|) + min(g, 0), which torch's own is far slower than
        return product.abs().sigmoid_().log_().add_(product).add_(product.clamp_max(0))

    @staticmethod
    def backward(ctx, grad_score):
        return multiplied(ctx.product.sigmoid_().sub_(2), grad_score, -1.0)


class Absolute(Function):
    """|g|."""

    buffers = 2

    @staticmethod
    def forward(ctx, product):
        ctx.product = product.detach()
        return ctx.product.abs()

    @staticmethod
    def backward(ctx, grad_score):
        return ctx.product.sign_().mul_(grad_score)


class SoftCap(Function):
    """c tanh(alpha g / c)."""

    buffers = 2

    @staticmethod
    def forward(ctx, c, alpha, product):
        ctx.c, ctx.alpha, product, learned = c, alpha, product.detach(), any(ctx.needs_input_grad[:2])
        ctx.product = product if learned else None
        ctx.tanh = (product.clone() if learned else product).mul_(number(alpha) / number(c)).tanh_()
        return ctx.tanh * number(c)

    @staticmethod
    def backward(ctx, grad_score):
        grad_c = dot(grad_score, ctx.tanh) if ctx.needs_input_grad[0] else None
        # dS/dg = alpha (1 - tanh^2)
        grad = torch.addcmul(grad_score, ctx.tanh.square_(), grad_score, value=-1, out=grad_score)
        grad_alpha = None if ctx.product is None else dot(grad, ctx.product)
        if grad_c is not None:
            grad_c -= grad_alpha * (number(ctx.alpha) / number(ctx.c))
        return grad_c, grad_alpha if ctx.needs_input_grad[1] else None, grad.mul_(number(ctx.alpha))


class Cosine(Function):
    """The product with a normalised context, divided by the word vector's norm."""

    buffers = 2

    @staticmethod
    def forward(ctx, product, inverse_norm):
        ctx.product, ctx.inverse_norm = product.detach(), inverse_norm
        return product * inverse_norm

    @staticmethod
    def backward(ctx, grad_score):
        grad_inverse_norm = ctx.product.mul_(grad_score).sum(0)
        return grad_score.mul_(ctx.inverse_norm), grad_inverse_norm


class Scale(Function):
    """S times a scale: in the place of S, unless the scale is learned, whose gradient needs S."""

    @staticmethod
    def forward(ctx, score, scale):
        ctx.scale, score = scale, score.detach()
        ctx.score = score if ctx.needs_input_grad[1] else None
        return score * number(scale) if ctx.needs_input_grad[1] else score.mul_(number(scale))

    @staticmethod
    def backward(ctx, grad_scaled):
        grad_scale = None if ctx.score is None else dot(grad_scaled, ctx.score)
        return grad_scaled.mul_(number(ctx.scale)), grad_scale
