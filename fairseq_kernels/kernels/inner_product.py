"""Kernels that are functions of the inner product g = W_v . h."""

import torch.nn.functional as F

from .base import Gradients, Hyperparameter, Kernel, dot


class Linear(Kernel):
    """S = W_v . h, the stock softmax's (Gao et al. 2019, Eq. 4)."""

    name = "lin"

    closed_form_buffers = 1

    def similarity(self, products, words, contexts):
        return products[0]

    def closed_form_scores_and_pullback(self, products, words, contexts):
        return products[0], lambda gradient: Gradients((gradient,))


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
        [product] = products
        alpha, power = self.number("alpha"), self.number("p")
        if "alpha" in self._real:
            base = product * alpha
        else:
            base = product if alpha == 1 else product.mul_(alpha)
        scores = base.add_(self.number("c")) ** power

        def pullback(gradient):
            of_power = (base if power == 2 else base.pow_(power - 1)).mul_(gradient)  # but for the factor p
            of_values = {"c": of_power.sum() * power} if "c" in self._real else {}
            if "alpha" in self._real:
                of_values["alpha"] = dot(of_power, product) * power
            return Gradients((of_power,), factor=power * alpha, values=of_values)

        return scores, pullback


class Sigsoftmax(Kernel):
    """S = g + log sigmoid(g) (Kanai et al. 2018), the comparison that Gao et al. name."""

    name = "sig"

    def similarity(self, products, words, contexts):
        return products[0] + F.logsigmoid(products[0])

    closed_form_buffers = 2

    def closed_form_scores_and_pullback(self, products, words, contexts):
        [product] = products
        scores = F.logsigmoid(product).add_(product)

        def pullback(gradient):
            return Gradients((product.sigmoid_().sub_(2).mul_(gradient),), factor=-1.0)

        return scores, pullback


class Absolute(Kernel):
    """S = |g|, the softmax of the outputs' absolute values in de Brebisson & Vincent (2016, Table 5)."""

    name = "abs"

    def similarity(self, products, words, contexts):
        return products[0].abs()

    closed_form_buffers = 2

    def closed_form_scores_and_pullback(self, products, words, contexts):
        [product] = products
        return product.abs(), lambda gradient: Gradients((product.sign_().mul_(gradient),))
