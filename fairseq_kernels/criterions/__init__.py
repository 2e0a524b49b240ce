"""fairseq criterions: one for all output layers, under a name for each."""

from . import registered  # noqa: F401
