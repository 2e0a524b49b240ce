"""Kernels that are functions of the inner product g = W_v . h."""

import torch.nn.functional as F

from .base import Hyperparameter, Kernel


class Linear(Kernel):
    """S = W_v . h, the stock softmax's (Gao et al. 2019, Eq. 4)."""

    name = "lin"

    @property
    def overwrites(self):
        return self._fixed.get("scale") == 1.0

    @property
    def buffers(self):
        return 1 if self.overwrites else super().buffers

    def similarity(self, products, words, contexts):
        return products[0]

    def scores_and_pullback(self, products, words, contexts):
        if not self.overwrites:
            return super().scores_and_pullback(products, words, contexts)
        return products[0], lambda gradient: ((gradient,), (), (), ())


class Polynomial(Kernel):
    """S = (alpha W_v . h + c)^p (Eq. 7). p is an integer: the base can be negative."""

    name = "pol"
    hyperparameters = (
        Hyperparameter("alpha", 1.0, "real"),
        Hyperparameter("c", 1.0, "real"),
        Hyperparameter("p", 2, "count"),
    )

    def similarity(self, products, words, contexts):
        return (products[0] * self.value("alpha") + self.value("c")) ** self.value("p")


class Sigsoftmax(Kernel):
    """S = g + log sigmoid(g) (Kanai et al. 2018), the comparison that Gao et al. name."""

    name = "sig"

    def similarity(self, products, words, contexts):
        return products[0] + F.logsigmoid(products[0])


class Absolute(Kernel):
    """S = |g|, the "softmax of absolute values" of de Brebisson & Vincent (2016, Table 5)."""

    name = "abs"

    def similarity(self, products, words, contexts):
        return products[0].abs()
