"""Helpers of the kernels' Functions for hyper-parameters, which are numbers or, where they are learned, tensors."""

from typing import Union

import torch
from torch import Tensor

Value = Union[int, float, Tensor]


def number(value: Value) -> float:
    """A hyper-parameter's present value."""
    return float(value.detach()) if isinstance(value, Tensor) else value


def dot(one: Tensor, other: Tensor) -> Tensor:
    """Sum of the products of all elements, without a tensor of them."""
    return torch.dot(one.reshape(-1), other.reshape(-1))


def multiplied(one: Tensor, other: Tensor, factor: float) -> Tensor:
    """``one * other * factor`` stored in ``one``, in one pass."""
    return torch.addcmul(one.new_zeros(()), one, other, value=factor, out=one)
