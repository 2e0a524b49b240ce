"""Causal language models of Hugging Face's transformers, from version 5, whose head is a generalized softmax.

    model = replace_head(AutoModelForCausalLM.from_pretrained(name), kernels="3xlin,log", bias=True)
    Trainer(model, arguments, train_dataset=data).train()
    model.save_pretrained(folder)
    model = from_pretrained(folder)

The model keeps its forward, with one difference: in training with labels the loss comes from the head's ``nll`` and
``logits`` are None, so that no tensor of tokens x words is made. ``skip_logits=False`` computes them anyway,
``skip_logits=True`` omits them in evaluation, too. Logits are normalised log-probabilities.
"""

import functools
import inspect
from contextvars import ContextVar
from typing import NamedTuple, Optional, Type

import torch.nn.functional as F
from torch import Tensor
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, PreTrainedModel

from .output_layers import GeneralizedSoftmax


class LossRequest(NamedTuple):
    """A model's request to its head for the loss, instead of log-probabilities."""

    target: Tensor  # (B, T) the next words
    ignore_index: int
    items: Optional[Tensor]  # words of the whole update, over all batches that it accumulates; None: of this batch


REQUEST: ContextVar[Optional[LossRequest]] = ContextVar("REQUEST", default=None)  # of the forward that is running


class KernelHead(GeneralizedSoftmax):
    """A model's ``lm_head``. When its model requests the loss, it returns this scalar instead of (B, T, V)
    log-probabilities, so that wrappers of the head (PEFT, FSDP2) see an ordinary call."""

    def forward(self, features: Tensor) -> Tensor:
        request = REQUEST.get()
        if request is None:
            return super().forward(features)
        target = request.target.to(features.device)
        if request.items is None:
            return self.nll(features, target, request.ignore_index, reduction="mean")
        return self.nll(features, target, request.ignore_index) / request.items


def replace_head(model: PreTrainedModel, kernels="lin", **options) -> PreTrainedModel:
    """Gives a causal language model a :class:`KernelHead`, in place, which keeps the old head's weight (tied with the
    embeddings, if it was) and bias.

    Args:
        kernels: as in :class:`GeneralizedSoftmax`, like the ``options``; ``config.kernel_head`` keeps them.

    Returns:
        The same model; its class is now :func:`with_kernel_head` of the former one.

    Raises:
        ValueError: the configuration caps or scales the logits, which would change log-probabilities.
    """
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(model.config, name, None) not in (None, 1):
            raise ValueError(f"config.{name} changes log-probabilities: set it to None first, or to 1.0 for a scale")
    head = KernelHead.from_linear(model.get_output_embeddings(), kernels=kernels, **options)
    model.set_output_embeddings(head)
    model.config.kernel_head = {"kernels": kernels, **options, "bias": head.bias is not None}
    if not hasattr(model, "has_kernel_head"):
        model.__class__ = with_kernel_head(type(model))
    return model


def from_pretrained(folder: str, **options) -> PreTrainedModel:
    """The model that ``save_pretrained`` wrote; ``options`` are those of transformers' ``from_pretrained``."""
    host = MODEL_FOR_CAUSAL_LM_MAPPING[type(AutoConfig.from_pretrained(folder))]
    return with_kernel_head(host).from_pretrained(folder, **options)


@functools.cache
def with_kernel_head(host: Type[PreTrainedModel]) -> Type[PreTrainedModel]:
    """A causal language model's subclass, of the same name, whose head is the one in ``config.kernel_head``."""
    signature = inspect.signature(host.forward)

    class WithKernelHead(host):
        has_kernel_head = True

        def __init__(self, config, *args, **kwargs):
            super().__init__(config, *args, **kwargs)
            replace_head(self, **getattr(config, "kernel_head", {}))

        @functools.wraps(host.forward)  # generate and Trainer look at the signature
        def forward(self, *args, skip_logits: Optional[bool] = None, return_dict: Optional[bool] = None, **kwargs):
            return_dict = self.config.return_dict if return_dict is None else return_dict
            labels = signature.bind(self, *args, **kwargs).arguments.get("labels")
            skip_logits = self.training if skip_logits is None else skip_logits
            if labels is None or not skip_logits:
                return super().forward(*args, return_dict=return_dict, **kwargs)
            ignore_index, target = kwargs.get("ignore_index", -100), kwargs.get("shift_labels")
            if target is None:
                target = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
            token = REQUEST.set(LossRequest(target, ignore_index, kwargs.get("num_items_in_batch")))
            try:
                output = super().forward(*args, return_dict=True, **kwargs)
            finally:
                REQUEST.reset(token)
            output = type(output)(**{name: value for name, value in output.items() if name != "logits"})
            return output if return_dict else output.to_tuple()

        @property
        def loss_function(self):
            """The host's; a loss that the head has computed already, which the host takes for logits, stays."""
            return super().loss_function if REQUEST.get() is None else lambda logits, *args, **kwargs: logits

        def _init_weights(self, module):
            if isinstance(module, KernelHead):  # where a checkpoint lacks some of its parameters
                module.reset_parameters()
            else:
                super()._init_weights(module)

        def _get_resized_lm_head(self, old_lm_head, new_num_tokens=None, **options):
            if new_num_tokens is not None:
                old_lm_head.extend_vocabulary(new_num_tokens - old_lm_head.vocab_size)
            return old_lm_head

    WithKernelHead.__name__ = WithKernelHead.__qualname__ = host.__name__  # Trainer and config.json name classes
    return WithKernelHead
