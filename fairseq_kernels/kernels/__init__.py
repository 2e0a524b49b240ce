"""The kernels S(W_v, h) that take the place of the inner product in the softmax layer. Torch only."""

from .base import Hyperparameter, Kernel, Learned
from .distance import Logarithm, Power, RadialBasis, Wavelet
from .gaussian import MixtureOfGaussians, SphericalGaussian
from .hyperbolic import Hyperbolic
from .inner_product import Absolute, Linear, Polynomial, Sigsoftmax

# The nine of Gao et al. (2019) in the order of their Table 1.
PAPER_KERNELS = {
    kernel.name: kernel
    for kernel in (
        Linear,
        Logarithm,
        Power,
        Polynomial,
        RadialBasis,
        SphericalGaussian,
        MixtureOfGaussians,
        Hyperbolic,
        Wavelet,
    )
}
# And two more: Kanai et al. (2018), which they discuss, and de Brebisson & Vincent (2016, Table 5).
KERNELS = {**PAPER_KERNELS, **{kernel.name: kernel for kernel in (Sigsoftmax, Absolute)}}

__all__ = [
    "KERNELS",
    "PAPER_KERNELS",
    "Hyperparameter",
    "Kernel",
    "Learned",
    *sorted(kernel.__name__ for kernel in KERNELS.values()),
]
