"""The spherical family (de Brebisson & Vincent 2016): exact losses without the V outputs."""

from typing import Optional, Type

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import spherical_losses as functions
from .base import OutputLayer
from .spherical_losses import SphericalFunction
from .spherical_statistics import SphericalStatistics, Statistics, WordSums


class SphericalFamily(OutputLayer):
    """p(v | h) = g(o_v) / sum_u g(o_u) and o = W h + beta (section 3), trained by a spherical loss of o.

    The loss of N tokens costs O(V d^2 + N d^2) in time, not O(N V d): it needs o_y, sum_v o_v and sum_v o_v^2 alone
    (:class:`~fairseq_kernels.output_layers.spherical_statistics.SphericalStatistics`).

    Starts as the paper did (section 4): W = 0, and with :meth:`set_log_prior` from the words' prior.

    Args:
        embed_dim: d, dimension of context and word vectors.
        num_embeddings: V, number of words.
        bias: whether every output has the word's bias beta_v.
        memory_budget: bytes of work space for :meth:`forward` without gradients and :meth:`evaluate`.
        settings: of the subclass' loss.

    Attributes:
        weight: projection matrix W (V, d).
        bias: beta (V,) or None.
        function: g and the loss.
    """

    make_function: Type[SphericalFunction]

    def __init__(
        self, embed_dim: int, num_embeddings: int, bias: bool = True, memory_budget: Optional[int] = None, **settings
    ):
        function = self.make_function(**settings)
        super().__init__(embed_dim, num_embeddings, function.name, function.settings, memory_budget)
        self.function, self.has_bias, self.loss_is_nll = function, bias, function.loss_is_nll
        self.weight = nn.Parameter(torch.empty(num_embeddings, embed_dim))
        self.bias = nn.Parameter(torch.empty(num_embeddings)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """W = 0, as the paper, and biases with which all words are alike; W random where o = 0 has no gradient."""
        super().reset_parameters()
        if self.bias is None and self.function.zero_is_flat:
            nn.init.normal_(self.weight, std=self.embed_dim**-0.5)
        else:
            nn.init.zeros_(self.weight)
        if self.bias is not None:
            nn.init.constant_(self.bias, float(self.function.zero_is_flat))

    def prior_bias(self, prior):
        return self.function.prior_output(prior)

    def row_bytes(self, dtype):
        return 4 * self.vocab_size * dtype.itemsize

    def extra_repr(self) -> str:
        sizes = f"embed_dim={self.embed_dim}, num_embeddings={self.vocab_size}, bias={self.has_bias}"
        return ", ".join(filter(None, [sizes, self.function.settings]))

    def outputs(self, features: Tensor) -> Tensor:
        """o = W h + beta: (N, d) to (N, V)."""
        bias = None if self.bias is None else self.bias.to(features.dtype)
        return F.linear(features, self.weight.to(features.dtype), bias)

    def log_probabilities(self, features: Tensor) -> Tensor:
        return self.function.log_probabilities(self.outputs(features))

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
        if smoothing:
            raise ValueError(
                f"label_smoothing={smoothing:g} is not allowed: it needs every word's log-probability, which a "
                "spherical loss never computes; set it to 0, or choose another output layer"
            )
        each = self.function.loss(*self.statistics(tokens.features, tokens.target), self.vocab_size)
        loss = each if tokens.weight is None else each * tokens.weight
        return (loss.sum() if summed else loss), {"nll": each.detach()} if self.loss_is_nll else {}


class TaylorSoftmax(SphericalFamily):
    """p(v | h) = (1 + o_v + o_v^2 / 2) / sum_u (1 + o_u + o_u^2 / 2)   (section 3.2)."""

    name = "taylor"
    make_function = functions.Taylor


class SphericalSoftmax(SphericalFamily):
    """p(v | h) = (o_v^2 + epsilon) / sum_u (o_u^2 + epsilon)   (section 3.1); ``epsilon`` > 0, 0.0198 as the paper's
    for text."""

    name = "spherical"
    make_function = functions.Spherical


class SquaredError(SphericalFamily):
    """||o - e_y||^2, whose minimum is o_v = p(v | h)   (section 1)."""

    name = "squared-error"
    make_function = functions.SquaredError


class SoftmaxBound(SphericalFamily):
    """softmax(o), trained by an upper bound of its log-loss   (section 2); its parameter ``xi`` > 0, or None: the
    tightest one of each example."""

    name = "softmax-bound"
    make_function = functions.SoftmaxBound
