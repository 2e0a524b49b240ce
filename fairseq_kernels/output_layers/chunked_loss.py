"""The loss of an output layer, a chunk of tokens at a time, with the gradients added up on the way.

Each chunk is ordinary autograd: scores, loss and their gradients, of which only those of features and parameters stay.
Backward multiplies by the incoming scalar. Exact, in three matrix products (computing the scores
once more in backward would make it four), and nothing of size N x V ever exists.
"""

import functools
from typing import Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import saved_tensors_hooks

Metrics = Dict[str, Tensor]


class LossPass:
    """One pass over a layer's tokens: what depends on the parameters alone, and their gradients' sums.

    A subclass gives :meth:`losses` and :meth:`gradients`. The gradients of large parameters are added up by
    Functions of :mod:`fairseq_kernels.fused`, in place; those of :attr:`leaves` by :func:`run_pass`.

    Attributes:
        leaves: small tensors that :meth:`losses` depends on, whose gradients autograd gives.
        sums: of each one's gradients.
        z_loss: the factor of each token's squared log-partition in :meth:`losses`.
    """

    leaves: Sequence[Tensor] = ()
    sums: Sequence[Tensor] = ()
    z_loss = 0.0

    def losses(self, features: Tensor, target: Tensor, epsilon: float) -> Tuple[Tensor, Metrics]:
        """The loss of each token, (n,), differentiable; and other numbers of each: ``nll`` is without smoothing."""
        raise NotImplementedError

    def gradients(self) -> List[Optional[Tensor]]:
        """The sums over all chunks, in the order of ``layer.parameters()``."""
        raise NotImplementedError


def run_pass(layer, features, target, terms, product_dtype, with_gradients, token_weight):
    """The losses (N,), metrics (N, ...) and the gradients of features and parameters, or None, over all chunks.

    ``token_weight`` (N,) multiplies each token's gradients, not the losses; None stands for 1.
    """
    work: LossPass = layer.loss_pass(features.dtype, product_dtype, with_gradients)
    epsilon, work.z_loss = terms
    losses = features.new_empty(features.size(0))
    metrics: Dict[str, List[Tensor]] = {}
    grad_features = torch.empty_like(features if with_gradients else features[:0])
    size = layer.chunk_size(features)
    for start in range(0, max(len(features), 1), size):  # no tokens are a chunk of none, which has the metrics' shapes
        rows = slice(start, start + size)
        some = features[rows].detach().requires_grad_(with_gradients)
        with torch.set_grad_enabled(with_gradients):
            loss, seen = work.losses(some, target[rows], epsilon)
        losses[rows] = loss.detach()
        for name, values in seen.items():
            metrics.setdefault(name, []).append(values)
        if with_gradients:
            weight = torch.ones_like(loss) if token_weight is None else token_weight[rows]
            grad_some, *grads = torch.autograd.grad(loss, [some, *work.leaves], weight, allow_unused=True)
            grad_features[rows] = 0 if grad_some is None else grad_some
            add_up(work.sums, grads)
        del loss  # and with it the chunk's graph, before the next one needs its memory
    gradients = [grad_features, *work.gradients()] if with_gradients else None
    return losses, {name: torch.cat(parts) for name, parts in metrics.items()}, gradients


def add_up(sums: Sequence[Tensor], gradients: Sequence[Optional[Tensor]]) -> None:
    """Adds each gradient that there is to its sum."""
    for total, gradient in zip(sums, gradients):
        if gradient is not None:
            total += gradient


def first_order(backward):
    """Decorator of a backward that runs without a graph and without autocast; what it returns says, where it is
    differentiated once more, what to do instead."""

    @functools.wraps(backward)
    def call(ctx, *grads):
        with torch.no_grad(), torch.autocast(grads[0].device.type, enabled=False):
            results = backward(ctx, *grads)
        if not torch.is_grad_enabled():
            return results
        anchor = torch.zeros((), requires_grad=True)  # so that autograd calls NoSecondDerivative.backward
        return tuple(None if result is None else NoSecondDerivative.apply(result, anchor) for result in results)

    return call


class NoSecondDerivative(Function):
    """A gradient as it is; differentiating it raises."""

    @staticmethod
    def forward(ctx, gradient, anchor):
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(
            "nll has no second derivative; differentiate the log-probabilities, layer(features), instead"
        )


class ChunkedLoss(Function):
    """The loss: summed, with gradients from forward; or one for each token, with gradients recomputed in backward.

    ``learning`` is whether anything wants gradients: in forward grad mode is off, and needs_input_grad is True under
    ``no_grad``. ``metrics`` is a dict, which receives those of the pass.
    """

    @staticmethod
    def forward(ctx, layer, terms, product_dtype, summed, learning, metrics, features, target, token_weight, *own):
        # not the hooks of a checkpoint around the layer, which would compute all again for each graph of a chunk
        with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
            losses, seen, ctx.gradients = run_pass(
                layer, features, target, terms, product_dtype, learning and summed, token_weight
            )
        metrics.update(seen)
        ctx.layer, ctx.terms, ctx.product_dtype, ctx.own = layer, terms, product_dtype, list(map(id, own))
        ctx.save_for_backward(features, target, token_weight, losses, *own)
        weighted = losses if token_weight is None else losses * token_weight
        # a copy: fairseq multiplies the loss of a dummy batch by 0 in place
        return weighted.sum() if summed else weighted.clone()

    @staticmethod
    @first_order
    def backward(ctx, grad_loss):
        features, target, token_weight, losses, *parameters = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # not summed; or a second backward: gradients are handed out once, and in place
            if ctx.own != list(map(id, ctx.layer.parameters())):
                raise RuntimeError("under functional_call only one backward pass of a summed loss is supported")
            weight = grad_loss.expand(features.size(0))
            weight = weight if token_weight is None else weight * token_weight
            gradients = run_pass(ctx.layer, features, target, ctx.terms, ctx.product_dtype, True, weight)[2]
        else:
            for gradient in gradients:
                if gradient is not None:
                    # in the pass's precision: under fp16 the trainer's loss scale must come before rounding
                    gradient.mul_(grad_loss)
        wanted = ctx.needs_input_grad[6:7] + ctx.needs_input_grad[9:]
        grad_features, *grad_parameters = (
            gradient.to(tensor.dtype) if wants and gradient is not None else None
            for gradient, tensor, wants in zip(gradients, [features, *parameters], wanted)
        )
        grad_weight = losses * grad_loss if ctx.needs_input_grad[8] else None
        return *[None] * 6, grad_features, None, grad_weight, *grad_parameters


def chunked_loss(layer, tokens, epsilon: float, summed: bool) -> Tuple[Tensor, Metrics]:
    """The loss of the tokens, a scalar or (N,), and metrics (N, ...)."""
    features, target, token_weight, _, product_dtype, z_loss = tokens
    parameters = list(layer.parameters())
    learning = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (features, *parameters))
    metrics: Metrics = {}
    options = (epsilon, z_loss), product_dtype, summed, learning, metrics
    return ChunkedLoss.apply(layer, *options, features, target, token_weight, *parameters), metrics
