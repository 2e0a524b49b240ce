"""fairseq criterions."""

from . import kerbs_cross_entropy, kernel_mixture_cross_entropy, spherical  # noqa: F401
