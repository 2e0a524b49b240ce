"""The spherical family (de Brebisson & Vincent 2016): exact losses without the V outputs."""

import math
from typing import NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..fused.matrix_products import chunks, multiply, word_blocks
from ..kernels.base import DOMAINS
from .base import STATISTICS_TOKENS, OutputLayer, WorkSpace
from .chunked_loss import by_formula, without_autocast

Statistics = Tuple[Tensor, Tensor, Tensor]
GRAM_BLOCK = 128  # columns of W in a block of W^T W, of which the lower half is a mirror image


class WordSums(NamedTuple):
    """The sums over all words from which the statistics follow; o = W h + beta."""

    gram: Tensor  # Q = W^T W, (d, d)
    weights: Tensor  # sum_v W_v, (d,)
    weighted: Tensor  # W^T beta, (d,)
    biases: Tensor  # sum_v beta_v, scalar
    squares: Tensor  # sum_v beta_v^2, scalar

    @classmethod
    @torch.no_grad()
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
    def backward(ctx, grad_output, grad_total, grad_square):
        features, target, weight, bias, quadratic, total_weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *by_formula(plain_statistics, ctx.saved_tensors[:4], (grad_output, grad_total, grad_square)), None
        wants_features, _, wants_weight, wants_bias, _ = ctx.needs_input_grad
        grad_features = grad_weight = grad_bias = None
        with without_autocast(features):
            row, doubled = grad_total @ features, 2 * (grad_square @ features)
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


def plain_statistics(features: Tensor, target: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Statistics:
    """What :class:`SphericalStatistics` gives, from the outputs (N, V)."""
    outputs = F.linear(features, weight, bias)
    return outputs.gather(1, target.unsqueeze(1)).squeeze(1), outputs.sum(1), outputs.square().sum(1)


class SphericalFamily(OutputLayer):
    """p(v | h) = g(o_v) / sum_u g(o_u), o = W h + beta, trained by a spherical loss (de Brebisson & Vincent 2016, 3).

    The loss of N tokens costs O(V d^2 + N d^2) in time, not O(N V d): it needs o_y, sum_v o_v and sum_v o_v^2 alone
    (:class:`SphericalStatistics`). A subclass gives :attr:`kind`, :meth:`numerator`, :meth:`loss` and
    :meth:`prior_bias`.

    Starts as the paper did (section 4): W = 0, and with :meth:`set_prior` from the words' prior.

    Args:
        embed_dim, num_embeddings, memory_budget, settings: as in :class:`OutputLayer`.
        bias: whether every output has the word's bias beta_v.
        device, dtype: of the parameters, as in ``nn.Linear``.

    Attributes:
        zero_is_flat: whether o = 0 has no gradient.
    """

    kind: str
    zero_is_flat = has_partition = False

    def __init__(
        self,
        embed_dim: int,
        num_embeddings: int,
        bias: bool = True,
        memory_budget: Optional[int] = None,
        *,
        settings: str = "",
        device=None,
        dtype: Optional[torch.dtype] = None,
    ):
        super().__init__(embed_dim, num_embeddings, self.kind, settings, memory_budget)
        self.weight = nn.Parameter(torch.empty(num_embeddings, embed_dim))
        self.bias = nn.Parameter(torch.empty(num_embeddings)) if bias else None
        self.to(device=device, dtype=dtype)
        self.reset_parameters()

    def numerator(self, output: Tensor) -> Tensor:
        """g(o) > 0, to which the probabilities are proportional, of any shape."""
        raise NotImplementedError

    def distribution(self, outputs: Tensor) -> Tensor:
        """Log-probabilities (N, V) from the outputs (N, V)."""
        numerator = self.numerator(outputs)
        return (numerator / numerator.sum(-1, keepdim=True)).log()

    def loss(self, output: Tensor, total: Tensor, square: Tensor) -> Tensor:
        """The loss of each example, (N,), from o_y, s = sum_v o_v and q = sum_v o_v^2, (N,) each."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """W = 0, as the paper, and biases with which all words are alike; W random where o = 0 has no gradient."""
        super().reset_parameters()
        if self.bias is None and self.zero_is_flat:
            nn.init.normal_(self.weight, std=self.embed_dim**-0.5)
        else:
            nn.init.zeros_(self.weight)
        if self.bias is not None:
            nn.init.constant_(self.bias, float(self.zero_is_flat))

    def work_space(self):
        return WorkSpace(4 * self.vocab_size)

    def log_probabilities(self, features: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(features.dtype)
        return self.distribution(F.linear(features, self.weight.to(features.dtype), bias))

    def statistics(self, features: Tensor, target: Tensor) -> Statistics:
        """o_y, sum_v o_v and sum_v o_v^2 of features (N, d) and words (N,): (N,) each, differentiable."""
        weight = self.weight.to(features.dtype)
        bias = None if self.bias is None else self.bias.to(features.dtype)
        # between updates, in evaluation, the words' sums stay
        sums = self.cached(features.dtype, lambda: WordSums.of(weight, bias))
        return SphericalStatistics.apply(features, target, weight, bias, sums)

    def losses(self, tokens, smoothing, summed):
        return self.losses_of(self.statistics(tokens.features, tokens.target), tokens, summed)

    def losses_of(self, statistics: Statistics, tokens, summed):
        """:meth:`losses`, given what :meth:`statistics` returns."""
        each = self.loss(*statistics)
        loss = each if tokens.weight is None else each * tokens.weight
        return (loss.sum() if summed else loss), {"nll": each.detach()} if self.loss_is_nll else {}


class TaylorSoftmax(SphericalFamily):
    """p(v | h) = g(o_v) / sum_u g(o_u) with g(o) = 1 + o + o^2 / 2, the second-order expansion of exp (section 3.2)."""

    kind = "taylor"

    def numerator(self, output):
        return torch.addcmul(1 + output, output, output, value=0.5)

    def loss(self, output, total, square):
        return (self.vocab_size + total + square / 2).log() - self.numerator(output).log()

    def prior_bias(self, prior):
        # the rarest word at 0, as nothing would move it from g's minimum
        return (2 * prior / prior.min() - 1).sqrt() - 1


class SphericalSoftmax(SphericalFamily):
    """p(v | h) = g(o_v) / sum_u g(o_u) with g(o) = o^2 + epsilon (section 3.1). ``epsilon`` is from 1e-12 to 1e10;
    0.0198 is the paper's for text."""

    kind = "spherical"
    zero_is_flat = True

    def __init__(self, *sizes, epsilon: float = 0.0198, **options):
        DOMAINS["positive"].check("epsilon", epsilon)
        super().__init__(*sizes, settings=f"epsilon={epsilon:g}", **options)
        self.epsilon = float(epsilon)

    def numerator(self, output):
        return output.square() + self.epsilon

    def loss(self, output, total, square):
        return (square + self.vocab_size * self.epsilon).log() - self.numerator(output).log()

    def prior_bias(self, prior):
        # the rarest word where its gradient 2 o / g(o) is largest
        return self.epsilon**0.5 * (2 * prior / prior.min() - 1).sqrt()


class SquaredError(SphericalFamily):
    """||o - e_y||^2 = ||o||^2 - 2 o_y + 1, the outputs' squared error to a one-hot target (section 1).

    It is minimal in expectation where o is the distribution. So p is o, clamped to 1e-8 or more and normalised.
    """

    kind = "squared error"
    loss_is_nll = False
    least = 1e-8

    def numerator(self, output):
        return output.clamp_min(self.least)

    def loss(self, output, total, square):
        return square - 2 * output + 1

    def prior_bias(self, prior):
        return prior


class SoftmaxBound(SphericalFamily):
    """softmax(o), trained by Bouchard's upper bound of its log-loss (2007; section 2) with the best alpha; the bound's
    ``xi`` is a number from 1e-12 to 1e10, or None for the tightest bound of each example."""

    kind = "softmax bound"
    loss_is_nll = False

    def __init__(self, *sizes, xi: Optional[float] = None, **options):
        if xi is not None:
            DOMAINS["positive"].check("xi", xi)
        super().__init__(*sizes, settings="" if xi is None else f"xi={xi:g}", **options)
        self.xi = xi

    def distribution(self, outputs):
        return outputs.log_softmax(-1)

    def loss(self, output, total, square):
        words = self.vocab_size
        spread = square - total.square() / words
        if self.xi is None:
            with torch.no_grad():  # at the minimum over xi the bound's slope in it is 0
                xi = tightest_xi(spread / words, words)
        else:
            xi = torch.full_like(output, self.xi)
        tanh, gap = torch.tanh(xi / 2), 2 / (xi.exp() + 1)  # the latter is 1 - tanh
        # V (log(1 + e^xi) - xi / 2 - lambda xi^2) - (V - 2)^2 / (16 V lambda), lambda(xi) = tanh / 4 xi: the terms of
        # size V cancel
        level = words * torch.log1p(torch.exp(-xi)) + xi * ((1 - 1 / words) - words * gap.square() / 4) / tanh
        bound = level + total / words + spread * tanh / (4 * xi) - output
        if self.xi is None:  # a 0 with the second derivative that the bound has because the best xi follows the spread
            slope = 2 * xi * (1 - ((1 - 2 / words) / tanh) ** 2) + (xi - 2 * xi / words) ** 2 * (1 - tanh**2) / tanh**3
            gain = (xi * (1 - tanh**2) / 2 - tanh) / (8 * words * xi**2 * slope.clamp_min(1e-12))
            bound = bound + gain * (spread - spread.detach()).square()
        return bound


def tightest_xi(variance: Tensor, words: int) -> Tensor:
    """The tightest bound's xi: xi^2 (1 - (1 - 2/V)^2 / tanh(xi/2)^2) = Var_v(o), by bisection; (N,) to (N,).

    The left side grows from 0, where tanh(xi/2) = 1 - 2/V, without limit.
    """
    if words == 1:  # the bound falls to the loss, 0, as xi grows
        return torch.full_like(variance, 40.0)
    ratio = 1 - 2 / words
    start, dtype = 2 * math.atanh(ratio), variance.dtype
    variance = variance.double().clamp_min(0)
    low = torch.full_like(variance, start)
    # from start + 2 on the bracket has at least 0.86 of its limit 1 - (1 - 2/V)^2
    high = start + 2 + 1.1 * (variance / (1 - ratio**2)).sqrt()
    for _ in range(60):
        middle = (low + high) / 2
        value = middle.square() * (1 - (ratio / torch.tanh(middle / 2)) ** 2)
        low, high = torch.where(value < variance, middle, low), torch.where(value < variance, high, middle)
    return ((low + high) / 2).clamp_min(1e-6).to(dtype)
