"""Kernels that are functions of the inner product g = W_v . h."""

import torch.nn.functional as F

from .base import Hyperparameter, Kernel


class Linear(Kernel):
    """S = W_v . h, the stock softmax's (Gao et al. 2019, Eq. 4)."""

    name = "lin"

    closed_form_buffers = 1

    def similarity(self, products, words, contexts):
        return products[0]

    def closed_form_scores_and_pullback(self, products, words, contexts):
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

    closed_form_buffers = 2

    def closed_form_scores_and_pullback(self, products, words, contexts):
        alpha, power = self.value("alpha"), self.value("p")
        base = (products[0] if alpha == 1 else products[0].mul_(alpha)).add_(self.value("c"))
        scores = base**power

        def pullback(gradient):
            # into the products, which are the block's
            slope = (base if power == 2 else base.pow_(power - 1)).mul_(power * alpha)
            return (slope.mul_(gradient),), (), (), ()

        return scores, pullback


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
