"""The inner products that a mixture's kernels ask for, those with the same words in one matrix product."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor


class Query(NamedTuple):
    """Vectors (N, m) of one component that meet some columns of a word matrix."""

    component: int
    index: int  # among the component's products
    vectors: Tensor
    matrix: int
    columns: slice


class ProductBatch:
    """All queries of a mixture over N tokens.

    Args:
        kernels: the K components' kernels.
        contexts: their context vectors h_k, (K, N, d).
        matrices: the number of word matrices: 1 (tied) or K.
    """

    def __init__(self, kernels: Sequence, contexts: Tensor, matrices: int):
        self.queries = [
            Query(k, i, vectors, k % matrices, columns)
            for k, kernel in enumerate(kernels)
            for i, (vectors, columns) in enumerate(kernel.queries(contexts[k]))
        ]
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
        for group in self.groups:
            self.vectors.append(stack([query.vectors for query in group]))
            self.blocks.append(self.vectors[-1] @ columns_of(matrices, group[0]).T)
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
            columns_of(matrix_gradients, group[0]).addmm_(block.T, vectors * scale if weighted else vectors)
            of_vectors = block @ columns_of(matrices, group[0])
            if weighted:
                of_vectors *= scale
            for query, gradient in zip(group, of_vectors.chunk(len(group))):
                found[query.component, query.index] = gradient
        return [found[query.component, query.index] for query in self.queries]


def columns_of(matrices: Sequence[Tensor], query: Query) -> Tensor:
    """The part (V, m) of the word matrices that a query meets."""
    return matrices[query.matrix][:, query.columns]


def stack(parts: List[Tensor]) -> Tensor:
    """Rows one under the other; a single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)
