"""Output layers: from context vectors to a distribution over words. Torch only."""

from .base import OutputLayer
from .generalized_softmax import GeneralizedSoftmax

__all__ = ["GeneralizedSoftmax", "OutputLayer"]
