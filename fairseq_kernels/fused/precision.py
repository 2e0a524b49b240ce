"""Half precision, which some tensors of a layer stay out of."""

from typing import Callable

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


def at_least_float32(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """What ``nn.Module._apply`` does to each tensor, but for a change to half precision."""

    def apply(tensor: Tensor) -> Tensor:
        result = function(tensor)
        return tensor.to(result.device) if result.dtype in HALF else result

    return apply
