"""From a chunk's context vectors to the products with the words' vectors, (n, V), in as few matrix products as
possible."""

from typing import Dict, Hashable, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from .matrix_products import backward_products, word_products

WIDE = 3 / 4  # of the coordinates: then the zeros cost less than a product of its own


class Workspace:
    """Buffers that all chunks share: repeated allocation fragments memory."""

    def __init__(self):
        self.buffers: Dict[Hashable, Tensor] = {}

    def rows(self, name: Hashable, like: Tensor, columns: int) -> Tensor:
        """``len(like)`` rows, with what the last chunk left in them; never more columns than at first."""
        buffer = self.buffers.get(name)
        if buffer is None or len(buffer) < len(like):
            self.buffers[name] = buffer = like.new_empty(len(like), columns)
        return buffer[: len(like), :columns]


class WordMatrices:
    """The word matrices of a pass over chunks, the sums of their gradients, and the buffers of the products.

    Attributes:
        matrices: (V, d) each: one that all components share, or one for each component.
        backward_matrices: for the gradients' products.
        gradients: the sums of dL/dmatrix, to which backward adds; None where no gradients are wanted.
        grad_latent: the sum of dL/dC (K, d, d), or None.
    """

    gradients: Optional[Sequence[Tensor]] = None
    grad_latent: Optional[Tensor] = None

    def __init__(self, matrices: Sequence[Tensor], backward_matrices: Optional[Sequence[Tensor]] = None):
        self.matrices, self.workspace = matrices, Workspace()
        self.backward_matrices = backward_matrices or matrices

    def products(
        self, matrix: int, columns: slice, queries: Tensor, token_factors: List[List[Tensor]]
    ) -> Sequence[Tensor]:
        """The products (n, V) of several components' queries (K n, m) with the same columns of one matrix."""
        words, backward_words = self.matrices[matrix][:, columns], self.backward_matrices[matrix][:, columns]
        grad_words = None if self.gradients is None else self.gradients[matrix][:, columns]
        block = self.workspace.rows((matrix, columns.start, columns.stop), queries, len(words))
        return WordProduct.apply(queries, words, backward_words, grad_words, block, token_factors)

    def project(self, features: Tensor, maps: Tensor) -> Tensor:
        """h C_k of each component, (n, d) and (K, d, d) to (K, n, d)."""
        return LatentProjection.apply(features, maps, self.grad_latent)


class WordProduct(Function):
    """Queries (K n, m) of K components against words (V, m): K products (n, V), whose memory is one block.

    Backward adds dL/dwords to ``grad_words`` in place and returns dL/dqueries alone.

    Args:
        backward_words, grad_words: (V, m); the latter None where no gradients are wanted.
        block: (K n, V), for the products and later their gradients.
        token_factors: one list for each component. The loss may leave a factor (n, 1) in it, by which the gradient of
            its product is still to be multiplied: here it costs a pass over m columns, not over V.
    """

    @staticmethod
    def forward(ctx, queries, words, backward_words, grad_words, block, token_factors):
        word_products(queries, words, out=block)
        ctx.queries, ctx.words, ctx.grad_words, ctx.block = queries, backward_words, grad_words, block
        ctx.token_factors = token_factors
        ctx.set_materialize_grads(False)
        # .data: each with a version counter of its own (the buffer rule, 3)
        return tuple(part.data for part in block.chunk(len(token_factors)))

    @staticmethod
    def backward(ctx, *grad_products):
        for part, grad in zip(ctx.block.chunk(len(grad_products)), grad_products):
            if grad is None:
                part.zero_()
            elif grad.data_ptr() != part.data_ptr():
                part.copy_(grad)
        queries, factors = ctx.queries, [entry[0] if entry else None for entry in ctx.token_factors]
        factor: Optional[Tensor] = None
        if any(each is not None for each in factors):
            ones = queries.new_ones(len(queries) // len(factors), 1)
            factor = stacked([ones if each is None else each for each in factors])
            queries = queries * factor
        grad_queries = backward_products(ctx.block, queries, ctx.words, ctx.grad_words)
        return (grad_queries if factor is None else grad_queries.mul_(factor), *[None] * 5)


class LatentProjection(Function):
    """h C_k for each component, (n, d) and (K, d, d) to (K, n, d); backward adds dL/dC to ``grad_maps`` in place, as
    K d x d numbers are too many to make anew for every chunk."""

    @staticmethod
    def forward(ctx, features, maps, grad_maps):
        ctx.features, ctx.maps, ctx.grad_maps = features, maps, grad_maps
        return torch.bmm(features.expand(len(maps), -1, -1), maps)  # matmul would copy C

    @staticmethod
    def backward(ctx, grad):
        ctx.grad_maps.baddbmm_(ctx.features.T.expand(len(grad), -1, -1), grad)
        return torch.bmm(grad, ctx.maps.mT).sum(0), None, None


def all_products(
    kernels: Sequence, contexts: Tensor, words: WordMatrices, token_factors: List[List[Tensor]]
) -> List[List[Tensor]]:
    """The products ``[component][query]``, (n, V) each, that the kernels ask for, in as few matrix products as
    possible; ``contexts`` are (K, n, d)."""
    matrices = len(words.matrices)
    groups: Dict[Tuple, List[Tuple[int, int, Tensor]]] = {}
    asked = [kernel.queries(own) for kernel, own in zip(kernels, contexts)]
    products: List[List[Tensor]] = [[contexts] * len(queries) for queries in asked]  # places, filled below
    for k, queries in enumerate(asked):
        for index, (vectors, columns) in enumerate(queries):
            vectors, columns = widened(vectors.to(contexts.dtype), columns, contexts.size(-1), matrices)
            groups.setdefault((k % matrices, columns.start, columns.stop), []).append((k, index, vectors))
    for (matrix, start, stop), group in groups.items():
        vectors = stacked([vectors for _, _, vectors in group])
        parts = words.products(matrix, slice(start, stop), vectors, [token_factors[k] for k, _, _ in group])
        for (k, index, _), part in zip(group, parts):
            products[k][index] = part
    return products


def widened(vectors: Tensor, columns: slice, width: int, matrices: int) -> Tuple[Tensor, slice]:
    """A query that meets nearly all coordinates, with zeros for the others if it can then share a product."""
    start, stop, _ = columns.indices(width)
    if columns == slice(None) or matrices > 1 or stop - start < WIDE * width:
        return vectors, columns
    return F.pad(vectors, (start, width - stop)), slice(None)


def stacked(parts: List[Tensor]) -> Tensor:
    """Rows one under the other; a single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)
