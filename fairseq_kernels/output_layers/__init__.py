"""Output layers: from context vectors to a distribution over words. Torch only."""

from .base import OutputLayer
from .factored import FactoredSGD, factored
from .generalized_softmax import GeneralizedSoftmax
from .kerbs import KerBSoftmax
from .sense_allocation import AllocationSettings
from .spherical import SoftmaxBound, SphericalSoftmax, SquaredError, TaylorSoftmax
from .table import LAYERS, Options, option, register_output_layer

__all__ = [
    "LAYERS",
    "AllocationSettings",
    "FactoredSGD",
    "GeneralizedSoftmax",
    "KerBSoftmax",
    "Options",
    "OutputLayer",
    "SoftmaxBound",
    "SphericalSoftmax",
    "SquaredError",
    "TaylorSoftmax",
    "factored",
    "option",
    "register_output_layer",
]
