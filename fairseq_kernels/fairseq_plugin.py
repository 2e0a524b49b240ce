"""Registers models, criterions and optimizer with fairseq, and applies the patches of it (docs/patches.md)."""

from . import criterions, models, optim, patches  # noqa: F401

patches.apply()
