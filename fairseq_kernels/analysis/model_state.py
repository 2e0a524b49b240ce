"""The parameters and buffers in a checkpoint of fairseq's."""

from pathlib import Path
from typing import Dict

import torch
from torch import Tensor

from ..compat import allow_namespaces


def model_state(checkpoint: Path) -> Dict[str, Tensor]:
    """By name, on the CPU; read by torch's safe loader.

    Raises:
        SystemExit: one line: no such file, or no checkpoint.
    """
    return load(checkpoint)["model"]


def training_seconds(checkpoint: Path) -> float:
    """How long its training took in all, interruptions left out.

    Raises:
        SystemExit: as :func:`model_state`.
    """
    return load(checkpoint)["extra_state"]["previous_training_time"]


def updates(checkpoint: Path) -> int:
    """How many its training had made.

    Raises:
        SystemExit: as :func:`model_state`.
    """
    return load(checkpoint)["optimizer_history"][-1]["num_updates"]


def load(checkpoint: Path) -> Dict:
    allow_namespaces()
    try:
        content = torch.load(checkpoint, map_location="cpu", weights_only=True)
        content["model"]
        return content
    except FileNotFoundError as error:
        raise SystemExit(f"error: checkpoint {checkpoint} not found; give a .pt file of fairseq-train's") from error
    except Exception as error:  # torch raises all kinds for wrong files
        raise SystemExit(
            f"error: {checkpoint} is damaged, no checkpoint, or carries code; give a .pt file of fairseq-train's"
        ) from error
