"""Kernels that are functions of the inner product g = W_v . h."""

import torch.nn.functional as F

from ..fused import inner_product as fused
from ..fused.mixture_nll import Scores
from .base import Hyperparameter, Kernel


class InnerProductKernel(Kernel):
    """A function of g alone, so that a factor of the word vectors may be one of the contexts."""

    takes_step = True


class Linear(InnerProductKernel):
    """S = W_v . h, the stock softmax's (Gao et al. 2019, Eq. 4)."""

    fused = fused.Product

    def queries(self, contexts):
        """The scale is a factor of the contexts: a pass over (N, d), not over (N, V)."""
        scale = self.value("scale")
        return super().queries(contexts if isinstance(scale, float) and scale == 1 else contexts * scale)

    def similarity(self, products, words, contexts):
        return products[0]

    def scores(self, products, words, contexts):
        return products[0]

    def fused_scores(self, products, words, contexts, token_factor):
        return Scores(products[0], True, token_factor)


class Polynomial(InnerProductKernel):
    """S = (alpha W_v . h + c)^p (Eq. 7). p is an integer: the base can be negative."""

    hyperparameters = (
        Hyperparameter("alpha", 1.0, "real"),
        Hyperparameter("c", 1.0, "real"),
        Hyperparameter("p", 2, "count"),
    )
    fused = fused.Polynomial

    def similarity(self, products, words, contexts):
        return (products[0] * self.value("alpha") + self.value("c")) ** self.value("p")


class Sigsoftmax(InnerProductKernel):
    """S = g + log sigmoid(g) (Kanai et al. 2018), the comparison that Gao et al. name."""

    fused = fused.Sigsoftmax

    def similarity(self, products, words, contexts):
        return products[0] + F.logsigmoid(products[0])


class Absolute(InnerProductKernel):
    """S = |g|, the softmax of the outputs' absolute values in de Brebisson & Vincent (2016, Table 5)."""

    fused = fused.Absolute

    def similarity(self, products, words, contexts):
        return products[0].abs()
