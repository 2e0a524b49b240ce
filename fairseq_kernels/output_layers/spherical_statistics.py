"""The three numbers of an example from which every loss of the spherical family follows, without the V outputs."""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from ..fused.matrix_products import chunks, multiply, word_blocks
from .base import STATISTICS_TOKENS
from .chunked_loss import first_order

GRAM_BLOCK = 128  # columns of W in a block of W^T W, of which the lower half is a mirror image


class WordSums(NamedTuple):
    """The sums over all words from which the statistics follow; o = W h + beta."""

    gram: Tensor  # Q = W^T W, (d, d)
    weights: Tensor  # sum_v W_v, (d,)
    weighted: Tensor  # W^T beta, (d,)
    biases: Tensor  # sum_v beta_v, scalar
    squares: Tensor  # sum_v beta_v^2, scalar

    @classmethod
    def of(cls, weight: Tensor, bias: Optional[Tensor]) -> "WordSums":
        zero = weight.new_zeros(())
        if bias is None:
            return cls(gram(weight), weight.sum(0), weight.new_zeros(weight.size(1)), zero, zero)
        return cls(gram(weight), weight.sum(0), bias @ weight, bias.sum(), bias @ bias)


def gram(weight: Tensor) -> Tensor:
    """W^T W (d, d), its upper blocks alone computed: V x d to d x d."""
    size = weight.size(1)
    result = weight.new_zeros(size, size)
    for words in word_blocks(len(weight), size, weight.device):
        for start in range(0, size, GRAM_BLOCK):
            end = min(start + GRAM_BLOCK, size)
            result[start:end, start:].add_(multiply(weight[words, start:end].T, weight[words, start:]))
    for end in range(GRAM_BLOCK, size, GRAM_BLOCK):
        result[end:, end - GRAM_BLOCK : end] = result[end - GRAM_BLOCK : end, end:].T
    return result


class SphericalStatistics(torch.autograd.Function):
    """(o_y, s, q) of each example: the target's output, s = sum_v o_v and q = sum_v o_v^2 (de Brebisson & Vincent
    2016, section 1), (N,) each, in O(V d^2 + N d^2): s = w.h with w = sum_v W_v, and q = h^T Q h with Q = W^T W.

    Backward: with their gradients c3, c1, c2, dL/dh = c1 w + 2 c2 Q h + c3 W_y, and dL/dW is the row sum_n c1 h for
    every word, 2 W (sum_n c2 h h^T) and the target rows, in one V x d tensor.
    """

    @staticmethod
    def forward(ctx, features, target, weight, bias, sums: WordSums):
        quadratic = multiply(features, sums.gram)
        output, square = features.new_empty(len(features)), features.new_empty(len(features))
        for some in chunks(len(features), STATISTICS_TOKENS):
            torch.linalg.vecdot(features[some], weight[target[some]], out=output[some])
            torch.linalg.vecdot(features[some], quadratic[some], out=square[some])
        total = features @ sums.weights + sums.biases
        if bias is not None:
            output += bias[target]
            square += 2 * (features @ sums.weighted) + sums.squares
            quadratic += sums.weighted
        ctx.save_for_backward(features, target, weight, bias, quadratic, sums.weights)
        return output, total, square

    @staticmethod
    @first_order
    def backward(ctx, grad_output, grad_total, grad_square):
        features, target, weight, bias, quadratic, total_weights = ctx.saved_tensors
        wants_features, _, wants_weight, wants_bias, _ = ctx.needs_input_grad
        row, doubled = grad_total @ features, 2 * (grad_square @ features)
        grad_features = grad_weight = grad_bias = None
        if wants_features:
            grad_features = torch.empty_like(features)
            for some in chunks(len(features), STATISTICS_TOKENS):
                part = torch.mul(weight[target[some]], grad_output[some].unsqueeze(1), out=grad_features[some])
                part.addcmul_(quadratic[some], grad_square[some].unsqueeze(1), value=2)
                part.addr_(grad_total[some], total_weights)
        if wants_weight:
            second = weight.new_zeros(features.size(1), features.size(1))
            for some in chunks(len(features), STATISTICS_TOKENS):
                second.add_(multiply(features[some].T, features[some] * grad_square[some].unsqueeze(1)), alpha=2)
            grad_weight = torch.empty_like(weight)
            for words in word_blocks(len(weight), weight.size(1), weight.device):
                part = multiply(weight[words], second, out=grad_weight[words]).add_(row)
                if bias is not None:
                    part.addr_(bias[words], doubled)
            for some in chunks(len(features), STATISTICS_TOKENS):
                grad_weight.index_add_(0, target[some], features[some] * grad_output[some].unsqueeze(1))
        if bias is not None and wants_bias:
            grad_bias = weight @ doubled + grad_total.sum() + 2 * grad_square.sum() * bias
            grad_bias.index_add_(0, target, grad_output)
        return grad_features, None, grad_weight, grad_bias, None


Statistics = Tuple[Tensor, Tensor, Tensor]
