"""Kernels that are functions of the inner product g = W_v . h."""

import torch.nn.functional as F

from ..fused import inner_product as fused
from .base import Hyperparameter, Kernel


class Linear(Kernel):
    """S = W_v . h, the stock softmax's (Gao et al. 2019, Eq. 4)."""

    fused = fused.Product

    def similarity(self, products, words, contexts):
        return products[0]


class Polynomial(Kernel):
    """S = (alpha W_v . h + c)^p (Eq. 7). p is an integer: the base can be negative."""

    hyperparameters = (
        Hyperparameter("alpha", 1.0, "real"),
        Hyperparameter("c", 1.0, "real"),
        Hyperparameter("p", 2, "count"),
    )
    fused = fused.Polynomial

    def similarity(self, products, words, contexts):
        return (products[0] * self.value("alpha") + self.value("c")) ** self.value("p")


class Sigsoftmax(Kernel):
    """S = g + log sigmoid(g) (Kanai et al. 2018), the comparison that Gao et al. name."""

    fused = fused.Sigsoftmax

    def similarity(self, products, words, contexts):
        return products[0] + F.logsigmoid(products[0])


class Absolute(Kernel):
    """S = |g|, the softmax of the outputs' absolute values in de Brebisson & Vincent (2016, Table 5)."""

    fused = fused.Absolute

    def similarity(self, products, words, contexts):
        return products[0].abs()
