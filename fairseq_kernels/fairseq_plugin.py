"""Registers models, criterions and optimizer with fairseq, and prepares it for current torch and numpy."""

from . import checkpoints, criterions, models, optim  # noqa: F401
from .compat import allow_namespaces, restore_numpy_compat
from .errors import explain_wrong_files

allow_namespaces()
restore_numpy_compat()
explain_wrong_files()
checkpoints.install()
