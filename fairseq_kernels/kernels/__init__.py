"""The kernels S(W_v, h) that take the place of the inner product in the softmax layer. Formulas alone; torch only."""

from .base import KERNELS, Hyperparameter, Kernel, Learned, register_kernel
from .distance import Logarithm, Power, RadialBasis, Wavelet
from .gaussian import MixtureOfGaussians, SphericalGaussian
from .hyperbolic import Hyperbolic
from .inner_product import Absolute, Cosine, Linear, Polynomial, Sigsoftmax, SoftCap

# The nine of Gao et al. (2019) in the order of their Table 1.
PAPER_KERNELS = {
    name: register_kernel(name)(kernel)
    for name, kernel in {
        "lin": Linear,
        "log": Logarithm,
        "pow": Power,
        "pol": Polynomial,
        "rbf": RadialBasis,
        "ssg": SphericalGaussian,
        "mog": MixtureOfGaussians,
        "hpb": Hyperbolic,
        "wav": Wavelet,
    }.items()
}
# And Kanai et al. (2018), which they discuss; de Brebisson & Vincent (2016, Table 5); two of today's heads.
register_kernel("sig")(Sigsoftmax)
register_kernel("abs")(Absolute)
register_kernel("cap")(SoftCap)
register_kernel("cos")(Cosine)

__all__ = [
    "KERNELS",
    "PAPER_KERNELS",
    "Hyperparameter",
    "Kernel",
    "Learned",
    "register_kernel",
    *sorted(kernel.__name__ for kernel in KERNELS.values()),
]
