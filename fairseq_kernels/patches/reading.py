"""Checkpoints are read by torch's safe loader, published and older ones too; nothing in them is run as a program."""

import ast
import sys
from pathlib import Path

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils

from ..checkpoint import allow_harmless_classes, checked
from . import replaces

# of Python, what fairseq's own defaults need, such as "[(512, 3)] * 20"
VALUES = (ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load)
VALUES += (ast.UnaryOp, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div)


@replaces(None, "torch.serialization's safe classes", issue=5603)
def let_checkpoints_be_read() -> None:
    """fairseq stores an argparse.Namespace and numpy's numbers, which torch's safe loader refuses since 2.6.

    Lost: no checkpoint could be read.
    """
    allow_harmless_classes()


@replaces(checkpoint_utils, "load_checkpoint_to_cpu")
def load_checkpoint_to_cpu(theirs, path, *args, **options):
    """fairseq passes on any exception of a bad file, with torch's advice to load it without the safe loader.

    Lost: the error did not name the bad file. A changed byte was loaded as a different weight.
    """
    return checked(Path(path), lambda: theirs(path, *args, **options))


@replaces(checkpoint_utils, "_upgrade_state_dict", issue=4915)
def upgraded(theirs, state):
    """fairseq expects the state of a training in every checkpoint.

    Lost: published models failed with a KeyError, as they have no training state or no position in an epoch.
    """
    if "optimizer_history" not in state and "best_loss" not in state:  # the latter is of fairseq's first versions
        nothing = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
        state["optimizer_history"] = [nothing]
    if "epoch" not in state or "extra_state" in state:
        extra = state.setdefault("extra_state", {})
        start = {"epoch": 1, "iterations_in_epoch": 0}
        extra["train_iterator"] = {**start, **(extra.get("train_iterator") or {})}
    return theirs(state)


def evaluated(text: str):
    """The value of numbers, strings, lists and arithmetic with them; anything else is a ValueError or TypeError."""
    try:
        tree = ast.parse(text.lstrip(" \t") if isinstance(text, str) else text, mode="eval")
    except SyntaxError:
        tree = None
    if tree is None or not all(isinstance(node, VALUES) for node in ast.walk(tree)):
        raise ValueError(f"the setting {text!r} is not allowed: give a number, or a list of numbers as (0.9,0.98)")
    return eval(compile(tree, "setting", "eval"), {"__builtins__": {}})


@replaces(None, "eval, in fairseq's modules")
def evaluate_values_alone() -> None:
    """fairseq evaluates settings as Python programs, those of a checkpoint too.

    Lost: somebody else's checkpoint ran its code.
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("fairseq", "fairseq_cli") and module is not None:
            module.eval = evaluated  # type: ignore[attr-defined]


@replaces(utils, "_broadcast_object_slow")
def broadcast_object(theirs, content, src_rank: int, group, dist_device):
    """fairseq sends a checkpoint's settings to other processes as a file that torch's safe loader refuses.

    Lost: trainings in several processes could not go on.
    """
    contents = [content]
    torch.distributed.broadcast_object_list(contents, src_rank, group, dist_device)
    return contents[0]
