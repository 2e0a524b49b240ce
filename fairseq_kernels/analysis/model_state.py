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
    allow_namespaces()
    try:
        return torch.load(checkpoint, map_location="cpu", weights_only=True)["model"]
    except FileNotFoundError as error:
        raise SystemExit(f"error: checkpoint {checkpoint} not found; give a .pt file of fairseq-train's") from error
    except Exception as error:  # torch raises all kinds for wrong files
        raise SystemExit(
            f"error: {checkpoint} is damaged, no checkpoint, or carries code; give a .pt file of fairseq-train's"
        ) from error
