"""fairseq optimizers."""

from . import fused_adamw  # noqa: F401
