"""Spherical losses for very large vocabularies: SGD steps whose time doesn't depend on V (Vincent et al. 2015).

layer = factored(TaylorSoftmax(512, 800_000))
optimizer = FactoredSGD([layer], lr=0.1)
layer.nll(features, target).backward()      # the gradient of the features; the layer's own stays factored
optimizer.step()                            # W <- W - lr dL/dW, exactly, without touching all rows of W
"""

import copy
from typing import Iterable, List, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from ..fused.matrix_products import chunks
from ..kernels.base import at_least_float32
from .base import FOLD_ROWS, OutputLayer, several_processes
from .spherical import SphericalFamily, gram


class FactoredGradient(NamedTuple):
    """dL/dW = 1 (sum_n grad_total h)^T + 2 W (sum_n grad_square h h^T) + grad_output h on the target rows."""

    features: Tensor  # (N, e)
    target: Tensor  # (N,)
    grad_output: Tensor  # (N,)
    grad_total: Tensor
    grad_square: Tensor


class FactoredStatistics(torch.autograd.Function):
    """As ``SphericalStatistics``, for a :class:`FactoredSpherical`; the gradient of W goes into ``gradients``."""

    @staticmethod
    def forward(ctx, features, target, layer, gradients, anchor):
        rows = layer.rows_of(target)
        quadratic = features @ layer.gram
        ctx.gradients, ctx.layer, ctx.updates = gradients, layer, layer.updates
        ctx.save_for_backward(features, target, rows, quadratic, layer.total.clone())
        return (features * rows).sum(1), features @ layer.total, (features * quadratic).sum(1)

    @staticmethod
    def backward(ctx, grad_output, grad_total, grad_square):
        if torch.is_grad_enabled():
            raise RuntimeError("a factored layer has no second derivative; use the layer without factored()")
        if ctx.updates != ctx.layer.updates:
            raise RuntimeError("the factored layer was updated after this loss was computed: call backward before step")
        features, target, rows, quadratic, total = ctx.saved_tensors
        ctx.gradients.append(FactoredGradient(features.detach(), target, grad_output, grad_total, grad_square))
        grad_anchor = total.new_zeros(())
        if not ctx.needs_input_grad[0]:
            return None, None, None, None, grad_anchor
        grad_features = rows * grad_output.unsqueeze(1)
        grad_features.addcmul_(quadratic, grad_square.unsqueeze(1), value=2).addr_(grad_total, total)
        return grad_features, None, None, None, grad_anchor


class FactoredSpherical(OutputLayer):
    """A layer of the spherical family whose matrix is held as W = A U + 1 w^T, with W^T 1, W^T W and U^-1 beside it.

    A step of SGD changes U, w and the target's rows of A alone: O(N d^2 + d^3), whatever V. The bias is one more
    column of W, against a 1 in the context vector: e = d + 1 columns, or d without. Trained by :class:`FactoredSGD`;
    autograd sees no parameters. Made by :func:`factored`.

    Attributes:
        base: A (V, e).
        map: U (e, e).
        shift: w (e,).
        inverse: U^-1.
        gram: W^T W (e, e).
        total: W^T 1 (e,).
        pending: gradients that :class:`FactoredSGD` has not used yet.
    """

    has_partition = False
    inverse: Tensor
    gram: Tensor
    total: Tensor

    def __init__(self, layer: SphericalFamily, condition_limit: float, fold_every: int):
        super().__init__(
            layer.embed_dim, layer.vocab_size, f"factored {layer.kind}", layer.settings, layer.memory_budget
        )
        form = copy.copy(layer)
        form._parameters = dict.fromkeys(layer._parameters)  # their values are in the factors
        self._form = [form]  # the loss and the distribution; in a list, as its buffers are no part of checkpoints
        self.has_bias, self.loss_is_nll = layer.bias is not None, layer.loss_is_nll
        self.bias = None
        self.condition_limit, self.fold_every, self.updates = condition_limit, fold_every, 0
        weight = layer.weight.detach()
        weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
        columns = self.embed_dim + self.has_bias
        base = weight.new_empty(len(weight), columns)
        base[:, : self.embed_dim] = weight
        if layer.bias is not None:
            base[:, -1] = layer.bias.detach()
        self.base = nn.Parameter(base, requires_grad=False)
        self.map = nn.Parameter(torch.eye(columns, dtype=base.dtype, device=base.device), requires_grad=False)
        self.shift = nn.Parameter(base.new_zeros(columns), requires_grad=False)
        self.register_buffer("inverse", self.map.detach().clone())
        self.register_buffer("gram", base.new_empty(columns, columns))
        self.register_buffer("total", base.new_empty(columns))
        self.pending: List[FactoredGradient] = []
        self.recompute()

    def _apply(self, function, recurse=True):
        """The factors keep their precision under ``.half()``: their inverse needs it."""
        return super()._apply(at_least_float32(function), recurse)

    def rows_of(self, words: Union[Tensor, slice]) -> Tensor:
        """Rows of W with their biases, (N, e)."""
        return torch.addmm(self.shift, self.base[words], self.map)

    def dense(self) -> Tensor:
        """W with the bias as its last column, (V, e)."""
        return self.rows_of(slice(None))

    def extended(self, features: Tensor) -> Tensor:
        """Context vectors with a 1 for the bias, (N, e)."""
        return torch.cat([features, features.new_ones(len(features), 1)], 1) if self.has_bias else features

    def log_probabilities(self, features):
        own = self.extended(features).to(self.base.dtype)
        outputs = (own @ self.map.T) @ self.base.T + (own @ self.shift).unsqueeze(1)
        return self._form[0].distribution(outputs.to(features.dtype))

    def losses(self, tokens, smoothing, summed):
        # the anchor asks for a backward also when the features need none; as with other parameters, backward counts
        # the gradient of W, torch.autograd.grad(loss, features) doesn't
        anchor = self.shift.new_zeros((), requires_grad=torch.is_grad_enabled())
        gradients: List[FactoredGradient] = []
        if anchor.requires_grad:
            anchor.register_post_accumulate_grad_hook(lambda _: self.collect(gradients))
        own = self.extended(tokens.features).to(self.base.dtype)
        statistics = FactoredStatistics.apply(own, tokens.target, self, gradients, anchor)
        statistics = tuple(part.to(tokens.features.dtype) for part in statistics)
        return self._form[0].losses_of(statistics, tokens, summed)

    def work_space(self):
        return self._form[0].work_space()

    def collect(self, gradients: List[FactoredGradient]) -> None:
        """Moves what a backward pass has found to :attr:`pending`."""
        self.pending += gradients
        gradients.clear()

    @torch.no_grad()
    def update(self, rate: float) -> None:
        """W <- W - rate dL/dW for the pending gradients."""
        if not self.pending:
            return
        features, target, grad_output, grad_total, grad_square = (torch.cat(parts) for parts in zip(*self.pending))
        self.pending.clear()
        row = rate * (grad_total @ features)
        weighted = features * (2 * rate * grad_square).unsqueeze(1)
        shrink = torch.eye(len(self.map), dtype=row.dtype, device=row.device).addmm_(features.T, weighted, alpha=-1)

        inverse, singular = self.shrunk_inverse(features, weighted, shrink)
        self.map.copy_(self.map @ shrink)
        self.shift.copy_(shrink @ self.shift - row)
        self.updates += 1
        condition = torch.linalg.matrix_norm(self.map) * torch.linalg.matrix_norm(inverse) / len(self.map)
        if singular or self.updates % self.fold_every == 0 or not condition < self.condition_limit:
            self.fold()
        else:
            self.inverse.copy_(inverse)
            total = shrink @ self.total
            gram = shrink @ self.gram @ shrink
            gram.addr_(total, row, alpha=-1).addr_(row, total, alpha=-1).addr_(row, row, alpha=self.vocab_size)
            self.gram.copy_(gram)
            self.total.copy_(total.sub_(row, alpha=self.vocab_size))

        words, which = target.unique(return_inverse=True)
        change = features.new_zeros(len(words), features.size(1))
        change.index_add_(0, which, features * (-rate * grad_output).unsqueeze(1))
        cross = self.rows_of(words).T @ change
        self.gram.add_(cross).add_(cross.T).addmm_(change.T, change)
        self.total.add_(change.sum(0))
        self.base.index_add_(0, words, change @ self.inverse)

    def shrunk_inverse(self, features: Tensor, weighted: Tensor, shrink: Tensor) -> Tuple[Tensor, bool]:
        """S^-1 U^-1 for S = I - X^T Y (``shrink``), and whether S is singular."""
        if len(features) >= len(shrink):
            result, info = torch.linalg.solve_ex(shrink, self.inverse)
            return result, bool(info)
        # Woodbury's identity
        small = torch.eye(len(features), dtype=shrink.dtype, device=shrink.device) - weighted @ features.T
        part, info = torch.linalg.solve_ex(small, weighted @ self.inverse)
        return torch.addmm(self.inverse, features.T, part), bool(info)

    @torch.no_grad()
    def fold(self) -> None:
        """A <- W, U <- I, w <- 0, and W^T W and W^T 1 computed anew: O(V d^2), to keep the digits."""
        for rows in chunks(self.vocab_size, FOLD_ROWS):
            self.base[rows] = self.rows_of(rows)
        self.map.copy_(torch.eye(len(self.map), dtype=self.map.dtype, device=self.map.device))
        self.inverse.copy_(self.map)
        self.shift.zero_()
        self.recompute()

    @torch.no_grad()
    def recompute(self) -> None:
        """W^T W and W^T 1 of W = A."""
        self.gram.copy_(gram(self.base))
        self.total.copy_(self.base.sum(0))


def factored(
    layer: SphericalFamily, condition_limit: Optional[float] = None, fold_every: int = 10_000
) -> FactoredSpherical:
    """The layer with its matrix in factors, for :class:`FactoredSGD`.

    Args:
        layer: of the spherical family; its weights are copied.
        condition_limit: U is multiplied into A when ||U|| ||U^-1|| / e (Frobenius norms) exceeds this; default 1e2, in
            float64 1e6.
        fold_every: updates after which that is done in any case.
    """
    if not isinstance(layer, SphericalFamily):
        raise ValueError(f"{type(layer).__name__} can't be factored; give a layer of the spherical family")
    if condition_limit is None:
        condition_limit = 1e6 if layer.weight.dtype == torch.float64 else 1e2
    return FactoredSpherical(layer, condition_limit, fold_every)


class FactoredSGD(torch.optim.Optimizer):
    """Plain SGD for :class:`FactoredSpherical` layers: the same steps as on the dense matrix.

    For one process, as no gradients are exchanged, and without ``GradScaler``, which looks for ``grad``.

    Args:
        layers: the factored layers.
        lr: learning rate.
    """

    def __init__(self, layers: Iterable[FactoredSpherical], lr: float):
        self.layers = list(layers)
        super().__init__([{"params": list(layer.parameters())} for layer in self.layers], {"lr": lr})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients not used yet."""
        for layer in self.layers:
            layer.pending.clear()

    @torch.no_grad()
    def step(self, closure=None):
        """One step on all gradients since the last one."""
        if several_processes():
            raise RuntimeError("FactoredSGD works in one process only; with several, use the layer without factored()")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for layer, group in zip(self.layers, self.param_groups):
            layer.update(group["lr"])
        return loss
