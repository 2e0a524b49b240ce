"""The parameters and buffers in a checkpoint of fairseq's."""

import re
import zipfile
from pathlib import Path
from typing import Callable, Dict, Iterable, Tuple

import torch
from torch import Tensor

from ..compat import allow_harmless_classes
from ..errors import mistake, unreadable
from ..kernels import KERNELS
from ..kernels.base import DOMAINS


def model_state(checkpoint: Path) -> Dict[str, Tensor]:
    """By name, on the CPU; read by torch's safe loader.

    Raises:
        SystemExit: one line: no such file, or no checkpoint.
    """
    return load(checkpoint)["model"]


def learned_values(state: Dict[str, Tensor]) -> Dict[str, float]:
    """A mixture's trained hyper-parameters: ``{"log.gamma": 0.01}``, or ``"2.log.gamma"`` of the third component."""
    values, prefix = {}, "decoder.output_projection."
    kind = bytes(state.get(f"{prefix}kind_version", torch.empty(0)).to(torch.uint8).tolist()).decode()
    names = kind.partition("; ")[0].split(",")
    for key, real in state.items():
        match = re.fullmatch(rf"{re.escape(prefix)}kernels\.(\d+)\._real\.(\w+)", key)
        if match:
            name = names[int(match[1])]
            hyper = next(hyper for hyper in KERNELS[name].all_hyperparameters() if hyper.name == match[2])
            component = f"{match[1]}." if len(names) > 1 else ""
            values[f"{component}{name}.{hyper.name}"] = float(DOMAINS[hyper.domain].from_real(real))
    return values


def updates(checkpoint: Path) -> int:
    """How many its training had made.

    Raises:
        SystemExit: as :func:`model_state`.
    """
    return load(checkpoint)["optimizer_history"][-1]["num_updates"]


def place(checkpoint: Path) -> Tuple[int, int]:
    """Where it stands among those of its folder: how often the training had been started or continued, and updates.
    A training that starts anew from another's model (``--reset-optimizer``) counts its updates from 0.

    Raises:
        SystemExit: as :func:`model_state`.
    """
    history = load(checkpoint)["optimizer_history"]
    return len(history), history[-1]["num_updates"]


def load(checkpoint: Path) -> Dict:
    allow_harmless_classes()
    return checked(checkpoint, lambda: torch.load(checkpoint, map_location="cpu", weights_only=True))


def checked(checkpoint: Path, read: Callable[[], Dict]) -> Dict:
    """What ``read`` returns, if the file is a whole checkpoint of fairseq's.

    Raises:
        SystemExit: one line: as :func:`model_state`.
    """
    try:
        check_sums(checkpoint)
        content = read()
        check_parts(content)
        return content
    except Exception as error:  # torch and fairseq raise all kinds for wrong files
        raise mistake(unreadable(checkpoint, error)) from error


def task_settings(content: Dict) -> Dict:
    """Those of the task in a checkpoint, which older versions of fairseq have among all arguments."""
    task = (content.get("cfg") or {}).get("task") or content.get("args")
    return task if isinstance(task, dict) else getattr(task, "__dict__", {})


def check_sums(checkpoint: Path) -> None:
    """torch doesn't look at the sums in its files: a changed byte would be another weight.

    Raises:
        ValueError: one is wrong; and what zipfile raises for a damaged file.
    """
    if zipfile.is_zipfile(checkpoint):  # files of torch before 1.6 are none
        with zipfile.ZipFile(checkpoint) as file:
            if file.testzip():
                raise ValueError(f"{checkpoint} has changed since it was written")


def check_parts(content: Dict) -> None:
    """
    Raises:
        LookupError, TypeError, AttributeError: it isn't made as fairseq's checkpoints are.
    """
    if not all(isinstance(value, Tensor) for value in content["model"].values()):
        raise TypeError("no parameters")
    content["extra_state"]
    if content.get("cfg") is not None:  # older versions of fairseq have "args"
        content["cfg"]["model"], content["cfg"]["task"]


def check_finite(checkpoint: Path, values: Iterable[Tensor]) -> None:
    """
    Raises:
        SystemExit: one line: numbers that are none among a model's.
    """
    if not all(value.isfinite().all() for value in values):
        raise mistake(f"{checkpoint} has parameters that are no numbers: its training diverged; train it anew")
