"""What fairseq needs on current torch and numpy."""

import argparse
import types

import numpy as np
import torch


def restore_numpy_compat() -> None:
    """``np.compat.long``, which fairseq's block and length-bucketed datasets name and numpy 2.4 no longer has."""
    if not hasattr(np, "compat"):
        np.compat = types.SimpleNamespace(long=int)


def allow_namespaces() -> None:
    """Lets torch's safe loader read fairseq's checkpoints, which hold an ``argparse.Namespace``.

    Since torch 2.6 ``torch.load`` refuses classes it doesn't know. A Namespace only holds values; checkpoints that
    carry code stay refused.
    """
    torch.serialization.add_safe_globals([argparse.Namespace])
