"""The state of an output layer beside its parameters: its kind, in checkpoints, and the cache of decoding."""

import logging
from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

logger = logging.getLogger(__name__)

optimizer_steps = [0]  # of all optimizers: fused ones don't raise the _version of what they change


def count_step(*_) -> None:
    """After each step of an optimizer of torch's kind."""
    optimizer_steps[0] += 1


register_optimizer_step_post_hook(count_step)


def traced() -> bool:
    """Whether a compiler or a transform of ``torch.func`` follows the operations, which must then be differentiable."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


class LayerState(nn.Module):
    """A module that writes into checkpoints what it is, and computes once what depends on its parameters alone.

    Args:
        kind: the kind of layer, with which a checkpoint's must agree.
        settings: what changes the distribution and not the parameters; loading a checkpoint with others warns.
    """

    kind_version: Tensor

    def __init__(self, kind: str, settings: str):
        super().__init__()
        self.kind, self.settings = kind, settings
        # fairseq's moving average of parameters leaves alone what has "version" in its name
        self.register_buffer("kind_version", self.encoded_kind())
        self._cached: Optional[Tuple] = None

    def reset_parameters(self) -> None:
        """Gives parameters and buffers their start values, also after the layer was made on the meta device."""
        self.kind_version.copy_(self.encoded_kind())

    def encoded_kind(self) -> Tensor:
        """Kind and settings, which checkpoints say too."""
        # int32: fairseq's average_checkpoints.py adds all tensors up before it divides
        return torch.tensor(list(f"{self.kind}; {self.settings}".encode()), dtype=torch.int32)

    def saved_kind(self, state_dict: Dict[str, Tensor], prefix: str) -> str:
        """Kind and settings as a checkpoint says them; "" where it doesn't."""
        return bytes([*state_dict.get(f"{prefix}kind_version", ())]).decode()

    def check_state(self, state_dict: Dict[str, Tensor], prefix: str) -> None:
        """Compares a checkpoint's layer with this one: warns of other settings, refuses another kind of layer."""
        kind, _, settings = self.saved_kind(state_dict, prefix).partition("; ")
        if kind != self.kind:
            raise ValueError(f"the checkpoint has the output layer {kind!r}, the model {self.kind!r}")
        if settings != self.settings:
            logger.warning("the checkpoint was trained with %s, the model has %s", settings, self.settings)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        # torch's AveragedModel may have averaged the buffer with the others
        destination[f"{prefix}kind_version"] = self.encoded_kind().to(self.kind_version.device)

    def adapt_state(self, state_dict: Dict[str, Tensor], prefix: str) -> None:
        """Makes of a checkpoint's state what this version and its settings expect."""

    def _load_from_state_dict(self, state_dict, prefix, *args):
        self.adapt_state(state_dict, prefix)
        key = f"{prefix}kind_version"
        if key in state_dict:
            self.check_state(state_dict, prefix)
            state_dict[key] = self.encoded_kind()  # the buffer may be on no device yet
        super()._load_from_state_dict(state_dict, prefix, *args)

    def __getstate__(self):
        return {**vars(self), "_cached": None}

    def train(self, mode: bool = True):
        """As ``nn.Module.train``; drops what :meth:`cached` keeps, as ``.data`` may have been written (fp16)."""
        self._cached = None
        return super().train(mode)

    def cached(self, dtype: torch.dtype, compute: Callable[[], Any]) -> Any:
        """``compute()``, which depends on parameters and buffers alone; in decoding done once, not at every step."""
        if traced():
            return compute()
        if torch.is_grad_enabled() or self.training:
            self._cached = None
            return compute()
        tensors = [*self.parameters(), *self.buffers()]
        if any(tensor.is_inference() for tensor in tensors):  # a layer made in inference mode has no _version
            return compute()
        state = [(t.data_ptr(), t._version, t.dtype, t.device) for t in tensors], dtype, *optimizer_steps
        if self._cached is None or self._cached[0] != state:
            self._cached = state, compute()
        return self._cached[1]
