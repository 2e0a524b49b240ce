"""fairseq criterions."""

from . import kernel_mixture_cross_entropy  # noqa: F401
