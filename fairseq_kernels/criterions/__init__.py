"""fairseq criterions."""

from . import kernel_mixture_cross_entropy, spherical  # noqa: F401
