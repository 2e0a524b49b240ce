"""The head, and what passes between it and the forward of its model."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Optional

from torch import Tensor

from ..output_layers import GeneralizedSoftmax


@dataclass
class Call:
    """A forward of a model that is running: the loss it requests from its head, if any, and what the head returned."""

    target: Optional[Tensor] = None  # (B, T) the next words
    ignore_index: int = -100
    items: Optional[Tensor] = None  # words of the whole update, over all its batches; None: of this batch
    output: Optional[Tensor] = None


CALL: ContextVar[Optional[Call]] = ContextVar("CALL", default=None)


class KernelHead(GeneralizedSoftmax):
    """A model's head. When its model requests the loss, it returns this number instead of (B, T, V) log-probabilities,
    so that wrappers of the head (PEFT, FSDP2) see an ordinary call."""

    def forward(self, features: Tensor) -> Tensor:
        call = CALL.get()
        if call is None:
            return super().forward(features)
        if call.target is None:
            call.output = super().forward(features)
            return call.output
        mean = call.items is None
        reduction = "mean" if mean else "sum"
        loss = self.nll(features, call.target.to(features.device), call.ignore_index, reduction=reduction)
        call.output = loss if mean else loss / call.items
        return call.output.view(1, 1, 1)  # what the model does to it counts for nothing
