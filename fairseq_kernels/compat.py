"""What fairseq needs on current torch and numpy."""

import argparse
import types

import numpy as np
import torch


def restore_numpy_compat() -> None:
    """``np.compat.long``, which fairseq's block and length-bucketed datasets name and numpy 2.4 no longer has."""
    if not hasattr(np, "compat"):
        np.compat = types.SimpleNamespace(long=int)


def unscale_once() -> None:
    """Under ``--amp`` fairseq divides gradients by the loss scale for clipping, and again in the step: torch's scaler
    notes by optimizer what it has divided, and the step gives it fairseq's wrapper."""
    from fairseq.optim.amp_optimizer import AMPOptimizer

    def step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()

    AMPOptimizer.step = step


def allow_harmless_classes() -> None:
    """Lets torch's safe loader read what fairseq's checkpoints hold: an ``argparse.Namespace``, and numbers of numpy's
    among the statistics (fairseq issue 5603).

    Since torch 2.6 ``torch.load`` refuses classes it doesn't know. These only hold values; checkpoints that carry code
    stay refused.
    """
    [scalar, *_] = np.float64(0).__reduce__()
    numbers = {type(np.dtype(code)) for code in "?bhilqBHILQefdg"}
    # numpy 1 and 2 name one function by different modules
    named = [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    torch.serialization.add_safe_globals([argparse.Namespace, np.dtype, *numbers, *named])
