"""The loss of an output layer, a chunk of tokens at a time, with the gradients added up on the way.

Each chunk is ordinary autograd: the layer's scores and loss, and their gradients, of which only what has d columns
stays. Backward multiplies by the incoming scalar. Exact, in three matrix products (computing the scores
once more in backward would make it four), and nothing of size N x V ever exists.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.graph import saved_tensors_hooks

from ..fused.first_order import first_order
from ..fused.matrix_products import chunks

Metrics = Dict[str, Tensor]


class LossPass:
    """One pass over a layer's tokens: what depends on the parameters alone, and their gradients' sums.

    A subclass gives :meth:`losses` and :meth:`gradients`. The gradients of large parameters are added up by
    Functions of :mod:`fairseq_kernels.fused`, in place; those of :attr:`leaves` here.

    Attributes:
        leaves: small tensors that :meth:`losses` depends on, whose gradients autograd gives.
        observed: None, or what the pass has seen beside its losses: its ``count(factor)`` is called once, with the
            incoming gradient; 0 is of a batch that fairseq only fills up with, which doesn't count.
    """

    leaves: Sequence[Tensor] = ()
    observed: Optional[Any] = None

    def losses(self, features: Tensor, target: Tensor, epsilon: float) -> Tuple[Tensor, Metrics]:
        """The loss of each token, (n,), differentiable; and other numbers of each: ``nll`` is without smoothing."""
        raise NotImplementedError

    def add(self, gradients: Sequence[Optional[Tensor]]) -> None:
        """Adds a chunk's gradients of :attr:`leaves`, None for 0, to their sums."""

    def gradients(self) -> List[Optional[Tensor]]:
        """The sums over all chunks, in the order of ``layer.parameters()``."""
        raise NotImplementedError


class PassResult(NamedTuple):
    """Of all chunks: losses (N,), metrics (N, ...), gradients of features and parameters."""

    losses: Tensor
    metrics: Metrics
    gradients: Optional[List[Optional[Tensor]]]
    observed: Optional[Any]


def run_pass(layer, features, target, epsilon, product_dtype, with_gradients, token_weight) -> PassResult:
    """All chunks. ``token_weight`` (N,) multiplies each token's gradients, not the losses; None stands for 1."""
    work: LossPass = layer.loss_pass(features.dtype, product_dtype, with_gradients)
    losses = features.new_empty(features.size(0))
    metrics: Dict[str, List[Tensor]] = {}
    grad_features = torch.empty_like(features if with_gradients else features[:0])
    # no tokens are a chunk of none, which has the metrics' shapes
    for rows in chunks(features.size(0), layer.chunk_size(features)) or [slice(0, 0)]:
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
            work.add(grads)
        del loss  # and with it the chunk's graph, before the next one needs its memory
    gradients = [grad_features, *work.gradients()] if with_gradients else None
    return PassResult(losses, {name: torch.cat(parts) for name, parts in metrics.items()}, gradients, work.observed)


def unchanged(tensor: Tensor) -> Tensor:
    return tensor


class WithLayer(nn.Module):
    """Calls a function, as ``torch.func.functional_call`` calls modules, for which ``layer`` has other parameters."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, function, *arguments):
        return function(*arguments)


def call_with(layer, parameters: Dict[str, Tensor], function: Callable, *arguments):
    """``function(*arguments)``, for which the layer has these tensors in the place of its parameters, also of one that
    several of its modules share."""
    if not parameters:
        return function(*arguments)
    own = dict(layer.named_parameters())
    instead = {id(own[name]): tensor for name, tensor in parameters.items()}
    # torch's own way with what is shared does not give a module that is there twice its parameters back
    named = {
        f"layer.{prefix}.{name}" if prefix else f"layer.{name}": instead[id(parameter)]
        for prefix, module in layer.named_modules()
        for name, parameter in module._parameters.items()
        if id(parameter) in instead
    }
    return torch.func.functional_call(WithLayer(layer), named, (function, *arguments), tie_weights=False)


class ChunkedLoss(Function):
    """The loss: summed, with gradients from forward; or a token each, with gradients recomputed in backward."""

    @staticmethod
    def forward(ctx, layer, options, metrics, features, target, token_weight, *parameters):
        # with_gradients comes from the caller: in here grad mode is off, and needs_input_grad is True under no_grad
        ctx.layer, ctx.options = layer, options
        with_gradients = options.with_gradients and options.summed
        arguments = features, target, options.epsilon, options.product_dtype, with_gradients, token_weight
        # not the hooks of a checkpoint around the layer, which would compute all again for each graph of a chunk
        with saved_tensors_hooks(unchanged, unchanged):
            result = run_pass(layer, *arguments)
        metrics.update(result.metrics)
        ctx.gradients, ctx.observed, ctx.counted = result.gradients, result.observed, False
        ctx.save_for_backward(features, target, token_weight, result.losses, *parameters)
        losses = result.losses if token_weight is None else result.losses * token_weight
        # a copy: fairseq multiplies the loss of a batch that only fills up by 0, in place
        return losses.sum() if options.summed else losses.clone()

    @staticmethod
    @first_order
    def backward(ctx, grad_loss):
        features, target, token_weight, losses, *parameters = ctx.saved_tensors
        options = ctx.options
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # not summed; or a second backward: gradients are handed out once, and in place
            weight = grad_loss.expand(features.size(0))
            weight = weight if token_weight is None else weight * token_weight
            again = features, target, options.epsilon, options.product_dtype, True, weight
            # the pass' own parameters: functional_call may have given the layer them for it alone
            own = dict(zip((name for name, _ in ctx.layer.named_parameters()), parameters))
            _, _, gradients, ctx.observed = call_with(ctx.layer, own, run_pass, ctx.layer, *again)
        else:
            for gradient in gradients:
                if gradient is not None:
                    # in the pass's precision: under fp16 the trainer's loss scale must come before rounding
                    gradient.mul_(grad_loss)
        if ctx.observed is not None and not ctx.counted:
            ctx.observed.count(grad_loss)
            ctx.counted = True
        wanted = ctx.needs_input_grad[3:4] + ctx.needs_input_grad[6:]
        grad_features, *grad_parameters = (
            gradient.to(tensor.dtype) if wants and gradient is not None else None
            for gradient, tensor, wants in zip(gradients, [features, *parameters], wanted)
        )
        grad_weight = losses * grad_loss if ctx.needs_input_grad[5] else None
        return None, None, None, grad_features, None, grad_weight, *grad_parameters


class LossOptions(NamedTuple):
    """Of one call of ``nll``."""

    epsilon: float  # of label smoothing
    summed: bool
    with_gradients: bool
    product_dtype: Optional[torch.dtype]


def chunked_loss(layer, tokens, epsilon: float, summed: bool) -> Tuple[Tensor, Metrics]:
    """The loss of the tokens, a scalar or (N,), and metrics (N, ...)."""
    features, target, token_weight, _, product_dtype = tokens
    parameters = list(layer.parameters())
    learning = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (features, *parameters))
    options = LossOptions(epsilon, summed, learning, product_dtype)
    metrics: Metrics = {}
    return ChunkedLoss.apply(layer, options, metrics, features, target, token_weight, *parameters), metrics
