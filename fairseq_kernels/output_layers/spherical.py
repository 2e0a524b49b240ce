"""The spherical family (de Brebisson & Vincent 2016): exact losses without the V outputs."""

import math
from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..kernels.base import LARGEST, SMALLEST
from .base import OutputLayer, WorkSpace
from .spherical_statistics import SphericalStatistics, Statistics, WordSums

WITHIN = f", from {SMALLEST:g} to {LARGEST:g}"


class SphericalFamily(OutputLayer):
    """p(v | h) = g(o_v) / sum_u g(o_u) and o = W h + beta (section 3), trained by a spherical loss of o.

    The loss of N tokens costs O(V d^2 + N d^2) in time, not O(N V d): it needs o_y, sum_v o_v and sum_v o_v^2 alone
    (:class:`~fairseq_kernels.output_layers.spherical_statistics.SphericalStatistics`). A subclass gives :attr:`kind`,
    :meth:`numerator`, :meth:`loss` and :meth:`prior_bias`.

    Starts as the paper did (section 4): W = 0, and with :meth:`set_log_prior` from the words' prior.

    Args:
        embed_dim: d, dimension of context and word vectors.
        num_embeddings: V, number of words.
        bias: whether every output has the word's bias beta_v.
        memory_budget: bytes of work space for :meth:`forward` without gradients and :meth:`evaluate`.
        device, dtype: of the parameters, as of ``nn.Linear``.
        settings: what checkpoints should agree with.

    Attributes:
        weight: projection matrix W (V, d).
        bias: beta (V,) or None.
        zero_is_flat: whether o = 0 has no gradient.
    """

    kind: str
    zero_is_flat = False

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

    def extra_repr(self) -> str:
        sizes = f"embed_dim={self.embed_dim}, num_embeddings={self.vocab_size}, bias={self.bias is not None}"
        return ", ".join(filter(None, [sizes, self.settings]))

    def log_probabilities(self, features: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(features.dtype)
        return self.distribution(F.linear(features, self.weight.to(features.dtype), bias))

    def statistics(self, features: Tensor, target: Tensor) -> Statistics:
        """o_y, sum_v o_v and sum_v o_v^2 of features (N, d) and words (N,): (N,) each, differentiable."""
        weight = self.weight.to(features.dtype)
        bias = None if self.bias is None else self.bias.to(features.dtype)
        # between updates, in evaluation, the words' sums stay
        sums = self.cached(
            features.dtype, lambda: WordSums.of(weight.detach(), None if bias is None else bias.detach())
        )
        return SphericalStatistics.apply(features, target, weight, bias, sums)

    def losses(self, tokens, smoothing, summed):
        return self.losses_of(self.statistics(tokens.features, tokens.target), tokens, smoothing, summed)

    def losses_of(self, statistics: Statistics, tokens, smoothing, summed):
        """:meth:`losses`, given what :meth:`statistics` returns."""
        if smoothing:
            raise ValueError(
                f"label_smoothing={smoothing:g} is not allowed: it needs every word's log-probability, which a "
                "spherical loss never computes; set it to 0, or choose another output layer"
            )
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
    """p(v | h) = g(o_v) / sum_u g(o_u) with g(o) = o^2 + epsilon (section 3.1); ``epsilon`` > 0, 0.0198 as the paper's
    for text."""

    kind = "spherical"
    zero_is_flat = True

    def __init__(self, *sizes, epsilon: float = 0.0198, **options):
        if not SMALLEST <= epsilon <= LARGEST:
            raise ValueError(f"epsilon={epsilon:g} is not allowed: it must be a number > 0{WITHIN}, such as 0.0198")
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
    """||o - e_y||^2 = q - 2 o_y + 1, the outputs' squared error to a one-hot target (section 1).

    It is least where o is the distribution, so p is o, from :attr:`least` up and divided by its sum.
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
    """softmax(o), trained by an upper bound of its log-loss (Bouchard 2007; section 2), whose alpha is at the optimum;
    its parameter ``xi`` is a number from 1e-12 to 1e10, or None for each example's tightest."""

    kind = "softmax bound"
    loss_is_nll = False

    def __init__(self, *sizes, xi: Optional[float] = None, **options):
        if xi is not None and not SMALLEST <= xi <= LARGEST:
            raise ValueError(
                f"xi={xi:g} is not allowed: it must be a number > 0{WITHIN}, or None for the tightest bound"
            )
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
        return level + total / words + spread * tanh / (4 * xi) - output

    def prior_bias(self, prior):
        return prior.log()


def tightest_xi(variance: Tensor, words: int) -> Tensor:
    """The minimum of the bound: xi^2 (1 - (1 - 2/V)^2 / tanh(xi/2)^2) = Var_v(o), by bisection; (N,) to (N,).

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
