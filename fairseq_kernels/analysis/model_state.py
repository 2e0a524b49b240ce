"""The trained hyper-parameters in a checkpoint."""

import re
from typing import Dict

import torch
from torch import Tensor

from ..kernels import KERNELS
from ..kernels.base import DOMAINS


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
