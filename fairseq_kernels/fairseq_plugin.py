"""Registers models, criterions and optimizer with fairseq, and prepares it for current torch and numpy, wrong input and
interruptions."""

from . import checkpoints, criterions, data_files, distributed, models, optim  # noqa: F401
from .compat import allow_harmless_classes, evaluate_values_alone, restore_numpy_compat, unscale_once
from .errors import explain_mistakes
from .options import install as explain_options

allow_harmless_classes()
restore_numpy_compat()
unscale_once()
evaluate_values_alone()
explain_mistakes()
explain_options()
checkpoints.install()
data_files.install()
distributed.install()
