"""Kernels that are functions of the inner product g = W_v . h, and its cosine."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..fused import inner_product as fused
from .base import Hyperparameter, Kernel


class InnerProductKernel(Kernel):
    """A function of g alone, so that a factor of the word vectors may be one of the contexts."""

    takes_step = True


class Linear(InnerProductKernel):
    """S = W_v . h, the stock softmax's (Gao et al. 2019, Eq. 4)."""

    fused = fused.Product
    scaled_queries = True

    def similarity(self, products, words, contexts):
        return products[0]


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


class SoftCap(InnerProductKernel):
    """S = c tanh(alpha g / c): the soft cap of Gemma 2 and later models' logits; lin for a large c."""

    hyperparameters = (Hyperparameter("c", 30.0, "positive"), Hyperparameter("alpha", 1.0, "positive"))
    fused = fused.SoftCap

    def similarity(self, products, words, contexts):
        c = self.value("c")
        return torch.tanh(products[0] * (self.value("alpha") / c)) * c


def inverse_norm(vectors: Tensor) -> Tensor:
    """1 / ||x|| of each row, (N, m) to (N,); 0, without a gradient, where ||x||^2 is below the least normal number."""
    norm = torch.linalg.vector_norm(vectors, dim=-1)  # of ||x||^2 the gradient's factor, its power -3/2, would overflow
    zero = norm < torch.finfo(norm.dtype).tiny ** 0.5
    return norm.masked_fill(zero, 1.0).reciprocal().masked_fill(zero, 0.0)


class Cosine(Kernel):
    """S = s cos(W_v, h), s being the scale: the head of nGPT (Loshchilov et al. 2024) and of normalised classifiers."""

    scale = Hyperparameter("scale", 1.0, "positive", learn_from=10.0)
    scaled_queries = True
    fused = fused.Cosine

    def queries(self, contexts):
        return super().queries(contexts * inverse_norm(contexts).unsqueeze(1))

    def word_terms(self, weight):
        return (inverse_norm(weight),)

    def similarity(self, products, words, contexts):
        return products[0] * words[0]
