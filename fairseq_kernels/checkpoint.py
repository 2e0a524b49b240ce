"""Reads fairseq's checkpoints by torch's safe loader, and writes them whole; a wrong file is named in one line."""

import argparse
import errno
import logging
import os
import pickle
import re
import zipfile
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from .errors import mistake

logger = logging.getLogger(__name__)
OWN = re.compile(r"checkpoint(_last|_best|\.best_|\d|_\d+_\d)")  # names that trainings give, and averaging doesn't

class Damaged(SystemExit):
    """The one line of a file that is no whole checkpoint."""


def allow_harmless_classes() -> None:
    """Lets torch's safe loader read an ``argparse.Namespace``, and numbers and arrays of numpy's (fairseq issue 5603).

    They only hold values; checkpoints that carry code stay refused.
    """
    functions = {"scalar": np.float64(0).__reduce__()[0], "_reconstruct": np.zeros(0).__reduce__()[0]}
    numbers = {type(np.dtype(code)) for code in "?bhilqBHILQefdg"}
    # numpy 1 and 2 name a function by different modules
    named = [(functions[name], f"numpy.{core}.multiarray.{name}") for name in functions for core in ("core", "_core")]
    torch.serialization.add_safe_globals([argparse.Namespace, np.dtype, np.ndarray, *numbers, *named])


def load(checkpoint: Path) -> Dict:
    """The content of a checkpoint, on the CPU.

    Raises:
        SystemExit: one line: no such file, or no checkpoint.
    """
    allow_harmless_classes()
    return checked(checkpoint, lambda: torch.load(checkpoint, map_location="cpu", weights_only=True))


def model_state(checkpoint: Path) -> Dict[str, Tensor]:
    """Parameters and buffers by name, on the CPU.

    Raises:
        SystemExit: as :func:`load`.
    """
    return load(checkpoint)["model"]


def place(checkpoint: Path) -> Tuple[int, int]:
    """How often the training had been started or continued, and its updates; (0, 0) for a published model.

    A training that starts anew from another's model (``--reset-optimizer``) counts its updates from 0.

    Raises:
        SystemExit: as :func:`load`.
    """
    history = load(checkpoint).get("optimizer_history")
    return (len(history), history[-1]["num_updates"]) if history else (0, 0)


def task_settings(content: Dict) -> Dict:
    """The task's settings in a checkpoint; older versions of fairseq have them among all arguments."""
    task = (content.get("cfg") or {}).get("task") or content.get("args")
    return task if isinstance(task, dict) else getattr(task, "__dict__", {})


def checked(checkpoint: Path, read: Callable[[], Dict]) -> Dict:
    """Returns what ``read`` does, if the file is a whole checkpoint of fairseq's.

    Raises:
        Damaged: it isn't.
        SystemExit: one line: it can't be read at the moment, and may be whole.
    """
    try:
        check_sums(checkpoint)
        content = read()
        check_parts(content)
        return content
    except Exception as error:  # torch and fairseq raise all kinds for wrong files
        raise wrong(checkpoint, error) from error


def check_sums(checkpoint: Path) -> None:
    """Checks the file's CRCs, which torch doesn't: a changed byte would change a weight.

    Raises:
        ValueError: one is wrong; and what zipfile raises for a damaged file.
    """
    if zipfile.is_zipfile(checkpoint):  # files of torch before 1.6 are none
        with zipfile.ZipFile(checkpoint) as file:
            if file.testzip():
                raise ValueError(f"{checkpoint} has changed since it was written")


def check_parts(content: Dict) -> None:
    """Checks for parameters and settings, which are all that published checkpoints have.

    Raises:
        LookupError, TypeError, AttributeError: they are missing or malformed.
    """
    if not all(isinstance(value, Tensor) for value in content["model"].values()):
        raise TypeError("no parameters")
    if content.get("cfg") is None:
        vars(content["args"])  # of older versions of fairseq
    else:
        content["cfg"]["model"], content["cfg"]["task"]


def wrong(checkpoint: object, error: Exception) -> SystemExit:
    """The line that says why a checkpoint can't be read, without torch's advice to load it unsafely."""
    memory = isinstance(error, MemoryError) or re.search("can't allocate memory|not enough memory", str(error))
    # zipfile reads before the start of a cut-off file, which is EINVAL
    if memory or isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        why = error.strerror if isinstance(error, OSError) else "out of memory"
        return mistake(f"checkpoint {checkpoint} can't be read ({why}); check it, or give another one of fairseq-train")
    code = re.search(r"GLOBAL (\S+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
    if code and zipfile.is_zipfile(str(checkpoint)):
        return mistake(f"{checkpoint} is refused: it holds {code[1]}, which may run code; give another .pt file")
    line = mistake(f"{checkpoint} is damaged, or no checkpoint of fairseq-train's; give another .pt file")
    return Damaged(line.code)


def newest(folder: Path) -> Optional[Path]:
    """The whole checkpoint that the training in the folder has written last: ``checkpoint_last``, or one written after
    it that is further on; None if there is none. The program ends where all are damaged."""
    best, chosen, written, damaged = (0, 0), None, 0, None
    times = {path: path.stat().st_mtime_ns for path in folder.glob("*.pt") if OWN.match(path.name)}
    for path in sorted(times, key=lambda path: (not path.name.startswith("checkpoint_last"), -times[path])):
        if times[path] < written:  # the training has gone on since, from this one or from an older one
            continue
        try:
            here = place(path)
        except Damaged as error:
            damaged = error
            logger.warning(f"{path} is damaged: looking for another whole checkpoint")
            continue
        if here[1] and here > best:
            best, chosen, written = here, path, times[path]
    if damaged and not chosen:
        raise damaged
    return chosen


def write(path: str, fill) -> None:
    """Writes a file beside ``path`` by ``fill(file)``, then renames it."""
    part = f"{path}.tmp"
    try:
        with open(part, "wb") as file:
            fill(file)
        os.replace(part, path)
    except (OSError, RuntimeError) as error:
        cause = error.__context__ or error  # torch hides a full disk, or Ctrl-C, behind a RuntimeError
        if isinstance(cause, KeyboardInterrupt):
            raise cause from None
        further = "make room or allow writing there, then give the same command"
        raise mistake(f"{path} can't be written ({cause}); {further}") from error
    finally:
        Path(part).unlink(missing_ok=True)
