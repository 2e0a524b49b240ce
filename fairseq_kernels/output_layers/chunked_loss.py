"""The loss of an output layer, a chunk of tokens at a time, with the gradients added up on the way.

Each chunk is ordinary autograd: scores, loss and their gradients, of which only those of features and parameters stay.
Backward multiplies by the incoming scalar. Exact, in three matrix products (computing the scores
once more in backward would make it four), and nothing of size N x V ever exists.
"""

from typing import Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call

from ..fused.mixture_nll import Smoothing

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
        """-log p (n,), smoothed, of the layer class's ``log_probabilities``; other numbers: ``nll`` is not smoothed."""
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


def without_autocast(tensor: Tensor) -> torch.autocast:
    """The context in which operations on the tensor's device keep their precision; the meta device has no autocast."""
    return torch.autocast("cpu" if tensor.is_meta else tensor.device.type, enabled=False)


def by_formula(formula, inputs, grads) -> List[Optional[Tensor]]:
    """The gradients of a formula's inputs; under ``create_graph`` with a graph to the inputs and ``grads``."""
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad(), without_autocast(grads[0]):
        # views: features may depend on parameters (shared embeddings), which is another gradient's way
        own = [None if tensor is None else tensor.view_as(tensor) for tensor in inputs]
        wanted = [tensor for tensor in own if tensor is not None and tensor.requires_grad]
        found = torch.autograd.grad(formula(*own), wanted, grads, create_graph=create_graph, allow_unused=True)
    return [dict(zip(wanted, found)).get(tensor) for tensor in own]


class Formula(nn.Sequential):
    """The losses of tokens by the log-probabilities that go with a layer's ``loss_pass``, for ``functional_call``."""

    def forward(self, features, target, token_weight, terms):
        # not those of a subclass, which may have changed the features before
        owner = next(owner for owner in type(self[0]).__mro__ if "loss_pass" in vars(owner))
        log_p, (epsilon, z_factor) = owner.log_probabilities(self[0], features), terms
        smoothing = Smoothing.over(log_p.size(1), epsilon)
        losses = -smoothing.on_target * log_p.gather(1, target.unsqueeze(1)).squeeze(1)
        losses = losses - smoothing.everywhere * log_p.sum(1) if epsilon else losses
        losses = losses + z_factor * owner.squared_log_partition(self[0], features) if z_factor else losses
        return losses if token_weight is None else losses * token_weight


class ChunkedLoss(Function):
    """The loss: summed, with gradients from forward; or one for each token, with gradients recomputed in backward.
    Under ``create_graph`` these are a formula's, whose tensors of N x V stay for the second derivatives.

    ``options``: epsilon and the z-loss' factor, the products' precision. ``learning``: whether anything wants
    gradients; in forward grad mode is off, and needs_input_grad is True under ``no_grad``. ``metrics``: a dict, which
    receives those of the pass.
    """

    @staticmethod
    def forward(ctx, layer, options, summed, learning, metrics, features, target, token_weight, *own):
        # not the hooks of a checkpoint around the layer, which would compute all again for each graph of a chunk
        with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
            losses, seen, ctx.gradients = run_pass(layer, features, target, *options, learning and summed, token_weight)
        metrics.update(seen)
        ctx.layer, ctx.options, ctx.losses, ctx.own = layer, options, losses, list(map(id, own))
        ctx.save_for_backward(features, target, token_weight, *own)
        weighted = losses if token_weight is None else losses * token_weight
        # a copy: fairseq multiplies the loss of a dummy batch by 0 in place
        return weighted.sum() if summed else weighted.clone()

    @staticmethod
    def backward(ctx, grad_loss):
        features, target, token_weight, *parameters = inputs = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        swapped = gradients is None and ctx.own != list(map(id, ctx.layer.parameters()))  # by functional_call
        if swapped or torch.is_grad_enabled():

            def formula(features, target, token_weight, *parameters):
                own = {f"0.{name}": own for (name, _), own in zip(ctx.layer.named_parameters(), parameters)}
                return functional_call(Formula(ctx.layer), own, (features, target, token_weight, ctx.options[0]))

            return *[None] * 5, *by_formula(formula, inputs, [grad_loss.expand(len(target))])
        if gradients is None:  # not summed; or a second backward: gradients are handed out once, and in place
            weight = grad_loss.expand(features.size(0))
            weight = weight if token_weight is None else weight * token_weight
            with without_autocast(features):
                gradients = run_pass(ctx.layer, features, target, *ctx.options, True, weight)[2]
        else:
            for gradient in gradients:
                if gradient is not None:
                    # in the pass's precision: under fp16 the trainer's loss scale must come before rounding
                    gradient.mul_(grad_loss)
        wanted = ctx.needs_input_grad[5:6] + ctx.needs_input_grad[8:]
        grad_features, *grad_parameters = (
            gradient.to(tensor.dtype) if wants and gradient is not None else None
            for gradient, tensor, wants in zip(gradients, [features, *parameters], wanted)
        )
        grad_weight = ctx.losses * grad_loss if ctx.needs_input_grad[7] else None
        return *[None] * 5, grad_features, None, grad_weight, *grad_parameters
