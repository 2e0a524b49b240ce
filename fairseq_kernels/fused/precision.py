"""Half precision, which some tensors of a layer stay out of."""

from typing import Callable

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


def at_least_float32(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function for ``nn.Module._apply`` that does as ``function``, and changes no tensor to half precision."""

    def apply(tensor: Tensor) -> Tensor:
        result = function(tensor)
        return tensor.to(result.device) if result.dtype in HALF else result

    return apply
