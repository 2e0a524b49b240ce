"""Distance in the Poincare ball (Nickel & Kiela 2017; Dhingra et al. 2018)."""

import torch
from torch import Tensor

from ..fused import hyperbolic as fused
from ..fused.distance import TINY
from .base import Hyperparameter, Kernel
from .distance import squared_distance, squared_norm


class Hyperbolic(Kernel):
    """S = -arcosh(1 + 2 gamma ||w - h||^2 / ((1 - ||w||^2)(1 - ||h||^2))) (Eq. 11; its "acos" can only be arcosh,
    since the argument is never below 1) on points mapped into the unit ball by x -> tanh(||x||) x / ||x||, the radius
    capped below 1.

    The products are of W and the mapped context. A factor maps each word, so no mapped copy of W is made.
    """

    hyperparameters = (Hyperparameter("gamma", 1.0, "positive"), Hyperparameter("cap", 0.999, "unit"))
    fused = fused.Hyperbolic

    def _on_ball(self, vectors: Tensor):
        """Factor onto the ball and ||x||^2 there of each row, each (N,)."""
        norm = (squared_norm(vectors) + TINY).sqrt()  # whose gradient is finite at the origin, too
        radius = torch.tanh(norm).minimum(torch.as_tensor(self.value("cap"), dtype=norm.dtype, device=norm.device))
        return radius / norm, radius.square()

    def queries(self, contexts):
        return [(contexts * self._on_ball(contexts)[0].unsqueeze(-1), slice(None))]

    def word_terms(self, weight):
        return self._on_ball(weight)

    def context_terms(self, contexts):
        return (self._on_ball(contexts)[1].unsqueeze(-1),)

    def similarity(self, products, words, contexts):
        [product], [factor, square_w], [square_h] = products, words, contexts
        distance = squared_distance(product * factor, square_w, square_h)
        zero = distance <= TINY
        excess = torch.where(zero, 1.0, distance) * (2 * self.value("gamma") / (1 - square_h)) / (1 - square_w)
        # arcosh(1 + x) = log1p(x + sqrt(x (x + 2))) keeps its digits for small x
        return torch.where(zero, 0.0, -torch.log1p(excess + (excess * (excess + 2)).sqrt()))

    def fused_values(self):
        return (self.value("gamma"),)  # the cap is in the word and context terms
