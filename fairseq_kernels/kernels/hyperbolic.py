"""Distance in the Poincare ball (Nickel & Kiela 2017; Dhingra et al. 2018)."""

import torch
from torch import Tensor

from .base import Gradients, Hyperparameter, Kernel
from .distance import TINY, distinct, indistinct, squared_distance, squared_norm


class Hyperbolic(Kernel):
    """S = -arcosh(1 + 2 gamma ||w - h||^2 / ((1 - ||w||^2)(1 - ||h||^2))) (Eq. 11; its "acos" can only be arcosh,
    since the argument is never below 1) on points mapped into the unit ball by x -> tanh(||x||) x / ||x||, the radius
    capped below 1.

    The words meet the context's mapped point; their own way onto the ball is a factor, so no mapped copy of W is made.
    """

    name = "hpb"
    hyperparameters = (Hyperparameter("gamma", 1.0, "positive"), Hyperparameter("cap", 0.999, "unit"))
    closed_form_buffers = 5

    def _on_ball(self, vectors: Tensor):
        """Factor onto the ball and ||x||^2 there of each row, each (N, 1)."""
        norm = (squared_norm(vectors, keepdim=True) + TINY).sqrt()  # whose gradient is finite at the origin, too
        radius = torch.tanh(norm).minimum(torch.as_tensor(self.value("cap"), dtype=norm.dtype, device=norm.device))
        return radius / norm, radius.square()

    def queries(self, contexts):
        return [(contexts * self._on_ball(contexts)[0], slice(None))]

    def word_terms(self, weight):
        return tuple(term.squeeze(-1) for term in self._on_ball(weight))

    def context_terms(self, contexts):
        return (self._on_ball(contexts)[1],)

    def similarity(self, products, words, contexts):
        [product], [factor, square_w], [square_h] = products, words, contexts
        distance = squared_distance(product * factor, square_w, square_h)
        apart = distinct(distance, square_h)
        excess = torch.where(apart, distance, 1.0) * (2 * self.value("gamma") / (1 - square_h)) / (1 - square_w)
        # arcosh(1 + x) = log1p(x + sqrt(x (x + 2))) keeps its digits for small x
        return torch.where(apart, -torch.log1p(excess + (excess * (excess + 2)).sqrt()), 0.0)

    def closed_form_scores_and_pullback(self, products, words, contexts):
        [product], [factor, square_w], [square_h] = products, words, contexts
        gap_w, gap_h = 1 - square_w, 1 - square_h
        gamma = self.number("gamma")
        steepness = 2 * gamma / gap_h
        distance = torch.addcmul(square_w, product, factor, value=-2).add_(square_h).clamp_min_(0)
        same = indistinct(distance, square_h)
        excess = distance.mul_(steepness).mul_(1 / gap_w)
        if same is not None:
            excess.masked_fill_(same, 1.0)
        root = (excess + 2).mul_(excess).sqrt_()
        scores = torch.add(excess, root).log1p_().neg_()
        if same is not None:
            scores.masked_fill_(same, 0.0)

        def pullback(gradient):
            # dS/dx = -1 / sqrt(x (x + 2)); x = 2 gamma D / (gap_w gap_h)
            gradient.div_(root)
            if same is not None:
                gradient.masked_fill_(same, 0.0)
            excess.mul_(gradient)
            of_gap_w, of_gap_h = excess.sum(0) / gap_w, excess.sum(1, keepdim=True) / gap_h
            of_gamma = -excess.sum() / gamma
            of_distance = gradient.mul_(steepness).mul_(-1 / gap_w)
            of_square_w, of_square_h = of_distance.sum(0), of_distance.sum(1, keepdim=True)
            of_factor = product.mul_(of_distance).sum(0) * -2
            of_product = torch.mul(of_distance, -2 * factor, out=product)
            of_words = (of_factor, of_square_w - of_gap_w)
            return Gradients((of_product,), of_words, (of_square_h - of_gap_h,), values={"gamma": of_gamma})

        return scores, pullback
