"""Kernel functions in the softmax layer (Gao et al. 2019), as PyTorch layers and as a fairseq plugin.

In a PyTorch program, ``from fairseq_kernels import GeneralizedSoftmax`` needs torch only. Where fairseq is installed
the import also registers models and criterions: this folder is what ``--user-dir`` takes.
"""

import importlib.util

from .kernels import KERNELS, Kernel
from .output_layers import (
    AllocationSettings,
    GeneralizedSoftmax,
    KerBSoftmax,
    OutputLayer,
    SphericalSoftmax,
    TaylorSoftmax,
)
from .output_layers.factored import FactoredSGD, factored

__version__ = "0.1.0"
__all__ = [
    "KERNELS",
    "AllocationSettings",
    "FactoredSGD",
    "GeneralizedSoftmax",
    "KerBSoftmax",
    "Kernel",
    "OutputLayer",
    "SphericalSoftmax",
    "TaylorSoftmax",
    "factored",
]

if importlib.util.find_spec("fairseq") is not None:
    from . import fairseq_plugin  # noqa: F401
