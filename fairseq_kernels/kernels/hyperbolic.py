"""Distance in the Poincare ball (Nickel & Kiela 2017; Dhingra et al. 2018)."""

import torch
from torch import Tensor

from .base import Hyperparameter, Kernel
from .distance import squared_distance, squared_norm

TINY = 1e-30  # keeps the norm's gradient finite at the origin; below the square of any float32 number of interest


class Hyperbolic(Kernel):
    """S = -arcosh(1 + 2 gamma ||w - h||^2 / ((1 - ||w||^2)(1 - ||h||^2))) (Eq. 11; its "acos" can only be arcosh,
    since the argument is never below 1) on points mapped into the unit ball by x -> tanh(||x||) x / ||x||, the radius
    capped below 1.

    The mapped points' inner product is that of W_v and h times a factor of each, so no mapped copy of W is needed.
    """

    name = "hpb"
    hyperparameters = (Hyperparameter("gamma", 1.0, "positive"), Hyperparameter("cap", 0.999, "unit"))

    def _terms(self, vectors: Tensor):
        """Factor onto the ball, ||x||^2 there and 1 - ||x||^2 of each row, each (N, 1)."""
        norm = (squared_norm(vectors, keepdim=True) + TINY).sqrt()
        radius = torch.tanh(norm).minimum(torch.as_tensor(self.value("cap"), dtype=norm.dtype, device=norm.device))
        square = radius.square()
        return radius / norm, square, 1 - square

    def word_terms(self, weight):
        return tuple(term.squeeze(-1) for term in self._terms(weight))

    def context_terms(self, contexts):
        return self._terms(contexts)

    def similarity(self, products, words, contexts):
        factor_w, square_w, gap_w = words
        factor_h, square_h, gap_h = contexts
        distance = squared_distance(products[0] * factor_w * factor_h, square_w, square_h)
        # arcosh's slope is unbounded at 1: below the resolution of the distance the subgradient is 0
        distinct = distance > torch.finfo(distance.dtype).eps * square_h.detach() + TINY
        excess = torch.where(distinct, distance, 1.0) * (2 * self.value("gamma") / gap_h) / gap_w
        # arcosh(1 + x) = log1p(x + sqrt(x (x + 2))) keeps its digits for small x
        return torch.where(distinct, -torch.log1p(excess + (excess * (excess + 2)).sqrt()), 0.0)
