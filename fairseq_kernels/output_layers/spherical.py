"""Taylor and spherical softmax (de Brebisson & Vincent 2016): exact losses without the V outputs."""

import math
from functools import partial
from typing import Optional, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import spherical_losses as losses
from .base import OutputLayer
from .spherical_statistics import SphericalStatistics, Statistics, WordSums

Function = Union[losses.Taylor, losses.Spherical]


class SphericalFamily(OutputLayer):
    """p(v | h) = g(o_v) / sum_u g(o_u), g a polynomial of degree 2 and o = W h + beta (section 3).

    The loss of N tokens costs O(V d^2 + N d^2) in time, not O(N V d): it needs o_y, sum_v o_v and sum_v o_v^2 alone
    (:class:`~fairseq_kernels.output_layers.spherical_statistics.SphericalStatistics`).

    Starts as the paper did (section 4): W = 0, and with :meth:`set_log_prior` from the words' prior.

    Args:
        embed_dim: d, dimension of context and word vectors.
        num_embeddings: V, number of words.
        function: g.
        bias: whether every output has the word's bias beta_v.
        memory_budget: bytes of work space for :meth:`forward` without gradients and :meth:`rank`.

    Attributes:
        weight: projection matrix W (V, d).
        bias: beta (V,) or None.
    """

    def __init__(
        self, embed_dim: int, num_embeddings: int, function: Function, bias: bool, memory_budget: Optional[int]
    ):
        super().__init__(embed_dim, num_embeddings, function.name, function.settings, memory_budget)
        self.function, self.has_bias = function, bias
        self.weight = nn.Parameter(torch.empty(num_embeddings, embed_dim))
        self.bias = nn.Parameter(torch.empty(num_embeddings)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """W = 0, as the paper, and biases with which all words are alike; W random where o = 0 has no gradient."""
        if self.bias is None and self.function.zero_is_flat:
            nn.init.normal_(self.weight, std=self.embed_dim**-0.5)
        else:
            nn.init.zeros_(self.weight)
        if self.bias is not None:
            nn.init.constant_(self.bias, float(self.function.zero_is_flat))

    def prior_bias(self, prior):
        return self.function.prior_output(prior)

    def row_bytes(self, dtype):
        return 4 * self.num_embeddings * dtype.itemsize

    def extra_repr(self) -> str:
        sizes = f"embed_dim={self.embed_dim}, num_embeddings={self.num_embeddings}, bias={self.has_bias}"
        return ", ".join(filter(None, [sizes, self.function.settings]))

    def outputs(self, features: Tensor) -> Tensor:
        """o = W h + beta: (N, d) to (N, V)."""
        bias = None if self.bias is None else self.bias.to(features.dtype)
        return F.linear(features, self.weight.to(features.dtype), bias)

    def log_probabilities(self, features: Tensor) -> Tensor:
        numerator = self.function.numerator(self.outputs(features))
        return (numerator / numerator.sum(-1, keepdim=True)).log()

    def statistics(self, features: Tensor, target: Tensor) -> Statistics:
        """o_y, sum_v o_v and sum_v o_v^2 of features (N, d) and words (N,): (N,) each, differentiable."""
        weight = self.weight.to(features.dtype)
        bias = None if self.bias is None else self.bias.to(features.dtype)
        # between updates, in evaluation, the words' sums stay
        sums = self.kept(features.dtype, lambda: WordSums.of(weight.detach(), None if bias is None else bias.detach()))
        return SphericalStatistics.apply(features, target, weight, bias, sums)

    def losses(self, features, target, smoothing, reduction):
        if smoothing:
            raise ValueError(
                f"label_smoothing={smoothing:g} is not allowed: it needs every word's log-probability, which a "
                "spherical loss never computes; set it to 0, or choose another output layer"
            )
        loss = self._reduced(self.function.loss, features, target, reduction)
        return loss, loss.detach()

    def _reduced(self, loss, features, target, reduction):
        losses = loss(*self.statistics(features, target), self.num_embeddings)
        return losses.sum() if reduction == "sum" else losses

    def squared_error(
        self, features: Tensor, target: Tensor, ignore_index: Optional[int] = None, reduction: str = "sum"
    ) -> Tensor:
        """||o - e_y||^2, the squared error of the outputs to a one-hot target (section 1); arguments as ``nll``."""
        return self._other_loss(losses.squared_error, features, target, ignore_index, reduction)

    def softmax_upper_bound(
        self,
        features: Tensor,
        target: Tensor,
        ignore_index: Optional[int] = None,
        reduction: str = "sum",
        xi: Optional[float] = None,
    ) -> Tensor:
        """The spherical upper bound of the log-softmax loss of o (section 2); arguments as ``nll``.

        Args:
            xi: the bound's parameter, > 0, the same for all examples; None: the tightest one of each example.

        Raises:
            ValueError: as ``nll``, and for another ``xi``.
        """
        if xi is not None and not 0 < xi < math.inf:
            raise ValueError(f"xi={xi} is not allowed: it must be a number > 0, or None for the tightest bound")
        return self._other_loss(partial(losses.softmax_upper_bound, xi=xi), features, target, ignore_index, reduction)

    def _other_loss(self, function, features, target, ignore_index, reduction):
        def compute(flat, words):
            return (self._reduced(function, flat, words, reduction),)

        return self.over_tokens(compute, features, target, ignore_index, reduction)[0]


class TaylorSoftmax(SphericalFamily):
    """p(v | h) = (1 + o_v + o_v^2 / 2) / sum_u (1 + o_u + o_u^2 / 2)   (section 3.2)."""

    def __init__(self, embed_dim: int, num_embeddings: int, bias: bool = True, memory_budget: Optional[int] = None):
        super().__init__(embed_dim, num_embeddings, losses.Taylor(), bias, memory_budget)


class SphericalSoftmax(SphericalFamily):
    """p(v | h) = (o_v^2 + epsilon) / sum_u (o_u^2 + epsilon)   (section 3.1).

    Args:
        epsilon: > 0; 0.0198 is the paper's for text.

    Raises:
        ValueError: epsilon is not a number > 0.
    """

    def __init__(
        self,
        embed_dim: int,
        num_embeddings: int,
        bias: bool = True,
        epsilon: float = 0.0198,
        memory_budget: Optional[int] = None,
    ):
        super().__init__(embed_dim, num_embeddings, losses.Spherical(epsilon), bias, memory_budget)
