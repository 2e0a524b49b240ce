"""Distance in the Poincare ball: see ``fairseq_kernels.kernels.hyperbolic`` for the formula."""

import torch
from torch.autograd import Function

from .distance import coincident, number


class Hyperbolic(Function):
    """-arcosh(1 + x), x = 2 gamma D / ((1 - ||w||^2)(1 - ||h||^2)), D = ||w||^2 + ||h||^2 - 2 f g with the words'
    factor f (V,) onto the ball and the product g (n, V)."""

    buffers = 5

    @staticmethod
    def forward(ctx, gamma, product, factor, square_w, square_h):
        product, gap_w, gap_h = product.detach(), 1 - square_w, 1 - square_h
        steepness = 2 * number(gamma) / gap_h
        distance = torch.addcmul(square_w, product, factor, value=-2).add_(square_h).clamp_min_(0)
        zero = coincident(distance)
        excess = distance.mul_(steepness).mul_(1 / gap_w)
        if zero is not None:
            excess.masked_fill_(zero, 1.0)
        root = (excess + 2).mul_(excess).sqrt_()
        score = torch.add(excess, root).add_(1).log_().neg_()  # log1p takes torch eight times as long
        if zero is not None:
            score.masked_fill_(zero, 0.0)
        ctx.gamma, ctx.saved = gamma, (product, factor, gap_w, gap_h, steepness, zero, excess, root)
        return score

    @staticmethod
    def backward(ctx, grad_score):
        product, factor, gap_w, gap_h, steepness, zero, excess, root = ctx.saved
        # dS/dx = -1 / sqrt(x (x + 2))
        grad = grad_score.div_(root)
        if zero is not None:
            grad.masked_fill_(zero, 0.0)
        excess.mul_(grad)
        grad_gap_w, grad_gap_h = excess.sum(0) / gap_w, excess.sum(1, keepdim=True) / gap_h
        grad_gamma = -excess.sum() / number(ctx.gamma) if ctx.needs_input_grad[0] else None
        grad_distance = grad.mul_(steepness).mul_(-1 / gap_w)
        grad_square_w, grad_square_h = grad_distance.sum(0), grad_distance.sum(1, keepdim=True)
        grad_factor = product.mul_(grad_distance).sum(0) * -2
        grad_product = torch.mul(grad_distance, -2 * factor, out=product)
        return grad_gamma, grad_product, grad_factor, grad_square_w - grad_gap_w, grad_square_h - grad_gap_h
