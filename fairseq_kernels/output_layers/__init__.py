"""Output layers: from context vectors to a distribution over words. Torch only."""

from .base import OutputLayer
from .factored import FactoredSGD, factored
from .generalized_softmax import GeneralizedSoftmax
from .kerbs import KerBSoftmax
from .sense_allocation import AllocationSettings
from .spherical import SoftmaxBound, SphericalSoftmax, SquaredError, TaylorSoftmax

__all__ = [
    "AllocationSettings",
    "FactoredSGD",
    "GeneralizedSoftmax",
    "KerBSoftmax",
    "OutputLayer",
    "SoftmaxBound",
    "SphericalSoftmax",
    "SquaredError",
    "TaylorSoftmax",
    "factored",
]
