"""The loss of an output layer, a chunk of tokens at a time, with the gradients added up on the way.

For a chunk of tokens compute scores, partition, loss and gradients, add them up and keep only what has d columns;
backward multiplies by the incoming scalar. Exact, three matrix products instead of autograd's and recomputation's
four, and nothing of size N x V ever exists.
"""

from typing import Iterator, List, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class LossPass:
    """One pass over a layer's tokens: what depends on the parameters alone, and their gradients' sums.

    Attributes:
        observed: None, or what the pass saw of the batch beside its loss: its ``count(factor)`` is called once the
            gradients are taken, times ``factor``.
    """

    observed = None

    def chunk(
        self, features: Tensor, target: Tensor, smoothing: float, token_weight: Optional[Tensor]
    ) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        """Loss and unsmoothed loss of each token (n,), and the gradient of the features (n, d) if asked for.

        ``token_weight`` (n,) multiplies each token's gradients (not the losses returned); None stands for 1.
        """
        raise NotImplementedError

    def gradients(self) -> List[Optional[Tensor]]:
        """The sums over all chunks, in the order of ``layer.parameters()``."""
        raise NotImplementedError


def chunks(total: int, size: int) -> Iterator[slice]:
    """Slices of at most ``size`` that cover 0 to ``total``."""
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def run(layer, features, target, smoothing, with_gradients, token_weight=None):
    """All chunks: losses (2, N), the gradients of the features and of the parameters (or None), what was observed."""
    work: LossPass = layer.loss_pass(features.dtype, with_gradients)
    losses = features.new_empty(2, features.size(0))
    feature_gradient = torch.empty_like(features) if with_gradients else None
    for rows in chunks(features.size(0), layer.chunk_size(features)):
        weight = None if token_weight is None else token_weight[rows]
        losses[0, rows], losses[1, rows], gradient = work.chunk(features[rows], target[rows], smoothing, weight)
        if with_gradients:
            feature_gradient[rows] = gradient
    return losses, [feature_gradient, *work.gradients()] if with_gradients else None, work.observed


def without_autocast(backward):
    """Runs a backward, which may be called under autocast, in the precision of its tensors."""

    def call(ctx, first, *rest):
        with torch.autocast(first.device.type, enabled=False):
            return backward(ctx, first, *rest)

    return call


class ChunkedLoss(torch.autograd.Function):
    """(loss, unsmoothed loss): summed with gradients from forward, or a token each, recomputed in backward."""

    @staticmethod
    def forward(ctx, layer, smoothing, reduction, with_gradients, features, target, *parameters):
        # with_gradients comes from the caller: in here grad mode is off, and needs_input_grad is True under no_grad
        summed = reduction == "sum"
        losses, ctx.gradients, ctx.observed = run(layer, features, target, smoothing, with_gradients and summed)
        ctx.counted = False
        ctx.layer, ctx.smoothing, ctx.summed = layer, smoothing, summed
        ctx.save_for_backward(features, target, *parameters)
        loss, nll = losses.sum(1) if summed else losses
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, loss_gradient, _):
        features, target, *parameters = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None  # handed out once and in place; a second backward recomputes
        if gradients is None:
            weight = loss_gradient.expand(features.size(0)) if ctx.summed else loss_gradient
            _, gradients, ctx.observed = run(ctx.layer, features, target, ctx.smoothing, True, weight)
        else:
            for gradient in gradients:
                if gradient is not None:
                    # in the pass's precision: under fp16 the trainer's loss scale must come before rounding
                    gradient.mul_(loss_gradient)
        if ctx.observed is not None and not ctx.counted:
            ctx.observed.count(loss_gradient)
            ctx.counted = True
        wanted = ctx.needs_input_grad[4:5] + ctx.needs_input_grad[6:]
        result = [
            gradient.to(tensor.dtype) if wants and gradient is not None else None
            for gradient, tensor, wants in zip(gradients, [features, *parameters], wanted)
        ]
        return (None, None, None, None, result[0], None, *result[1:])


def chunked_loss(layer, features: Tensor, target: Tensor, smoothing: float, reduction: str) -> Tuple[Tensor, Tensor]:
    """Loss and unsmoothed loss of features (N, d) against words (N,): scalars, or (N,) for ``reduction="none"``."""
    with_gradients = torch.is_grad_enabled()
    parameters = tuple(layer.parameters())
    return ChunkedLoss.apply(layer, smoothing, reduction, with_gradients, features, target, *parameters)
