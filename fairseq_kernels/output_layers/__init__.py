"""Output layers: from context vectors to a distribution over words. Torch only."""

from .base import OutputLayer
from .generalized_softmax import GeneralizedSoftmax
from .kerbs import KerBSoftmax
from .sense_allocation import AllocationSettings
from .spherical import SphericalSoftmax, TaylorSoftmax

__all__ = [
    "AllocationSettings",
    "GeneralizedSoftmax",
    "KerBSoftmax",
    "OutputLayer",
    "SphericalSoftmax",
    "TaylorSoftmax",
]
