"""The kernels S(W_v, h) that take the place of the inner product in the softmax layer. Torch only."""

from .base import Hyperparameter, Kernel, Learned
from .distance import Logarithm, Power, RadialBasis, Wavelet
from .gaussian import MixtureOfGaussians, SphericalGaussian
from .hyperbolic import Hyperbolic
from .inner_product import Absolute, Linear, Polynomial, Sigsoftmax

# New kernels go to the end: checkpoints name their kernels by the places here.
# The nine of Gao et al. (2019) in the order of their Table 1, then the two they and de Brebisson & Vincent compare to.
KERNELS = {
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
        Sigsoftmax,
        Absolute,
    )
}

__all__ = ["KERNELS", "Hyperparameter", "Kernel", "Learned", *sorted(kernel.__name__ for kernel in KERNELS.values())]
