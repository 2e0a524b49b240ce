"""Output layers: from context vectors to a distribution over words. Torch only."""

from .base import OutputLayer
from .generalized_softmax import GeneralizedSoftmax
from .spherical import SphericalSoftmax, TaylorSoftmax

__all__ = ["GeneralizedSoftmax", "OutputLayer", "SphericalSoftmax", "TaylorSoftmax"]
