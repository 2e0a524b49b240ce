"""What fairseq needs on current torch and numpy, and of checkpoints that aren't one's own."""

import argparse
import ast
import sys
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


# of Python, what fairseq's own defaults need, such as "[(512, 3)] * 20"
VALUES = (ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load)
VALUES += (ast.UnaryOp, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div)


def evaluated(text: str):
    """
    Raises:
        ValueError: it is more than numbers, strings, lists and what arithmetic makes of them.
        TypeError: it is no string.
    """
    try:
        tree = ast.parse(text.lstrip(" \t") if isinstance(text, str) else text, mode="eval")
    except SyntaxError:
        tree = None
    if tree is None or not all(isinstance(node, VALUES) for node in ast.walk(tree)):
        raise ValueError(f"the setting {text!r} is not allowed: give a number, or a list of numbers as (0.9,0.98)")
    return eval(compile(tree, "setting", "eval"), {"__builtins__": {}})


def evaluate_values_alone() -> None:
    """fairseq's modules evaluate settings as Python programs, those of a checkpoint too, which would run its code."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("fairseq", "fairseq_cli") and module is not None:
            module.eval = evaluated


def allow_harmless_classes() -> None:
    """Lets torch's safe loader read what fairseq's checkpoints hold: an ``argparse.Namespace``, and numbers of numpy's
    among the statistics (fairseq issue 5603), and arrays with ``--eval-bleu``.

    Since torch 2.6 ``torch.load`` refuses classes it doesn't know. These only hold values; checkpoints that carry code
    stay refused.
    """
    functions = {"scalar": np.float64(0).__reduce__()[0], "_reconstruct": np.zeros(0).__reduce__()[0]}
    numbers = {type(np.dtype(code)) for code in "?bhilqBHILQefdg"}
    # numpy 1 and 2 name a function by different modules
    named = [(functions[name], f"numpy.{core}.multiarray.{name}") for name in functions for core in ("core", "_core")]
    torch.serialization.add_safe_globals([argparse.Namespace, np.dtype, np.ndarray, *numbers, *named])
