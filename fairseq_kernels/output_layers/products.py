"""The inner products that a mixture's kernels ask for, those with the same words in one matrix product."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .matrix_products import pull_back_scores, scores_of

WIDE = 3 / 4  # of the coordinates: then the zeros cost less than a product of its own


class Query(NamedTuple):
    """Vectors (N, m) of one component that meet some columns of a word matrix."""

    component: int
    index: int  # among the component's products
    vectors: Tensor
    columns: slice
    matrix: int


class ProductBatch:
    """All queries of a mixture over N tokens.

    Args:
        kernels: the K components' kernels.
        contexts: their context vectors h_k, (K, N, d).
        matrices: the number of word matrices: 1 (tied) or K.
        products: the groups' products, with the room that they keep from one batch to the next.
    """

    def __init__(self, kernels: Sequence, contexts: Tensor, matrices: int, products: Optional[Dict] = None):
        self.queries = [
            Query(k, i, *widened(vectors, columns, contexts.size(-1), matrices), k % matrices)
            for k, kernel in enumerate(kernels)
            for i, (vectors, columns) in enumerate(kernel.queries(contexts[k]))
        ]
        self.products = {} if products is None else products
        groups: Dict[Tuple, List[Query]] = {}
        for query in self.queries:
            groups.setdefault((query.matrix, query.columns.start, query.columns.stop), []).append(query)
        self.groups = list(groups.values())
        self.components = len(kernels)

    def multiply(self, matrices: Sequence[Tensor]) -> List[List[Tensor]]:
        """``products[component][index]``, (N, V) each: views of one block a group."""
        products: List[List[Tensor]] = [[] for _ in range(self.components)]
        self.vectors, self.blocks = [], []
        found = {}
        for index, group in enumerate(self.groups):
            self.vectors.append(stack([query.vectors for query in group]))
            product = self.products.setdefault(index, WordProduct())
            self.blocks.append(product(self.vectors[-1], columns_of(matrices, group[0])))
            for query, product in zip(group, self.blocks[-1].chunk(len(group))):
                found[query.component, query.index] = product
        for query in self.queries:
            products[query.component].append(found[query.component, query.index])
        return products

    def pull_back(
        self,
        gradients: Sequence[Sequence[Tensor]],
        row_weights: Sequence[Optional[Tensor]],
        matrices: Sequence[Tensor],
        matrix_gradients: Sequence[Tensor],
    ) -> List[Tensor]:
        """Adds to ``matrix_gradients`` and returns the gradient of each query's vectors, given the products'.

        ``row_weights[component]``, (N, 1) or None, multiplies the products' gradients: done on the d-sized side it
        saves a pass over the V-sized one. The blocks are overwritten.
        """
        found = {}
        for group, vectors, block in zip(self.groups, self.vectors, self.blocks):
            weights = []
            for query, part in zip(group, block.chunk(len(group))):
                gradient, weight = gradients[query.component][query.index], row_weights[query.component]
                if gradient.data_ptr() != part.data_ptr():
                    part.copy_(gradient)
                weights.append(part.new_ones(len(part), 1) if weight is None else weight)
            weighted = any(row_weights[query.component] is not None for query in group)
            scale = stack(weights) if weighted else None
            words, of_words = (columns_of(those, group[0]) for those in (matrices, matrix_gradients))
            of_vectors = pull_back_scores(block, vectors * scale if weighted else vectors, words, of_words)
            if weighted:
                of_vectors *= scale
            for query, gradient in zip(group, of_vectors.chunk(len(group))):
                found[query.component, query.index] = gradient
        return [found[query.component, query.index] for query in self.queries]


class Room:
    """Work space (n, columns), the same for all chunks: memory that is taken and given back leaves holes."""

    def __init__(self):
        self.buffer: Optional[Tensor] = None

    def rows(self, vectors: Tensor, columns: int) -> Tensor:
        """Room for as many rows as there are vectors, with what the last chunk left in it; never more columns than at
        first."""
        if self.buffer is None or len(self.buffer) < len(vectors):
            self.buffer = vectors.new_empty(len(vectors), columns)
        return self.buffer[: len(vectors), :columns]


class WordProduct:
    """``vectors @ words.T``: (n, m) with (V, m) to (n, V)."""

    def __init__(self):
        self.room = Room()

    def __call__(self, vectors: Tensor, words: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return vectors @ words.T
        product = self.room.rows(vectors, words.size(0))
        scores_of(vectors, words, out=product)
        return product


def widened(vectors: Tensor, columns: slice, width: int, matrices: int) -> Tuple[Tensor, slice]:
    """A query that meets nearly all coordinates, with zeros for the others if it can then share a product."""
    start, stop, _ = columns.indices(width)
    if columns == slice(None) or matrices > 1 or stop - start < WIDE * width:
        return vectors, columns
    return F.pad(vectors, (start, width - stop)), slice(None)


def columns_of(matrices: Sequence[Tensor], query: Query) -> Tensor:
    """The part (V, m) of the word matrices that a query meets."""
    return matrices[query.matrix][:, query.columns]


def stack(parts: List[Tensor]) -> Tensor:
    """Rows one under the other; a single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)
