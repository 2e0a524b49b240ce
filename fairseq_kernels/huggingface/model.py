"""A model's subclass that keeps its forward and has a kernel head."""

import functools
import inspect
from typing import Iterable, Mapping, Optional, Type, Union

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from ..prior import word_prior
from .config import with_kernel_head_config
from .head import CALL, Call, KernelHead
from .host import host_function, previous_words, shifts_labels, uses_loss_function

AUTO_MODELS = [auto for auto in vars(modeling_auto).values() if hasattr(auto, "from_pretrained")]


def replace_head(
    model: PreTrainedModel, kernels="lin", prior: Union[None, Tensor, Iterable] = None, **options
) -> PreTrainedModel:
    """Gives a model a :class:`KernelHead`, in place, which keeps the old head's weight and bias.

    A factor or a soft cap that the model has for its logits (Cohere, Granite, Gemma 2 ...) becomes the head's: ``lin``
    gets the factor as its scale, or becomes ``cap``. Other kernels stay as they are given.

    Args:
        kernels: as in :class:`GeneralizedSoftmax`, like the ``options``; ``config.kernel_head`` keeps them. With a
            ``step`` the head computes what the old one did, with a ``start`` as many times as much. But a weight that
            is tied with the embeddings stays as it is: there the scores are ``step`` times as large, and ``start`` is
            ignored. Both that and ``start`` are for models that are still to be trained.
        prior: starts the bias, which the head then has, from the words' probabilities (V,), or counts them in an
            iterable of batches or examples, each a tensor of labels or a mapping with ``labels``.

    Returns:
        The same model; its class is now :func:`with_kernel_head` of the former one.

    Raises:
        ValueError: the model generates no text, does more to its logits than a factor, a soft cap and a bias, or has
            another loss than their cross-entropy.
    """
    old = model.get_output_embeddings() if isinstance(model, PreTrainedModel) and model.can_generate() else None
    if getattr(getattr(old, "weight", None), "dim", int)() != 2:
        text = "give a causal language model, or an encoder-decoder model of text, before PEFT or torch.compile"
        raise ValueError(f"{type(model).__name__} has no head that predicts the next word: {text}")
    does, own_bias = host_function(model, old), getattr(old, "bias", None)
    if does.bias is not None or prior is not None:
        options["bias"] = True
    if prior is not None and not isinstance(prior, Tensor):
        prior = word_prior(map(labels_of, prior), len(old.weight))
    put_head(model, **does.options(kernels, **options))
    head = model.get_output_embeddings()
    computes = not isinstance(old, KernelHead) and (does.bias is not None or own_bias is not None and does.factor != 1)
    if head.bias is not None and computes:
        added = 0.0 if does.bias is None else does.bias.to(head.bias)
        head.bias = nn.Parameter(head.bias.detach() * does.factor + added)
    if prior is not None:
        head.set_prior(prior)
    return model


def labels_of(batch):
    """The labels of a batch or an example, or what is given for labels, which ``word_prior`` checks."""
    if isinstance(batch, Mapping) and "labels" not in batch:
        has = f"prior: an example has no labels, but {', '.join(batch)}"
        raise ValueError(f"{has}; if the collator makes them, give the batches of a DataLoader")
    return batch["labels"] if isinstance(batch, Mapping) else batch


def put_head(model: PreTrainedModel, **options) -> None:
    """Gives a model the head of these options, and its class and configuration what they need to keep it."""
    old = model.get_output_embeddings()
    head = KernelHead.from_linear(old, **options)
    head._is_hf_initialized = not head.weight.is_meta  # else the host's post_init would start it anew
    if sum(value is old.weight for module in model.modules() for value in module._parameters.values()) > 1:
        head.weight = old.weight  # of which a step makes a copy
    model.set_output_embeddings(head)
    model.config.kernel_head = {**options, "bias": head.bias is not None}
    if not hasattr(model, "host"):
        model.__class__ = with_kernel_head(type(model))
        model.config.__class__ = registered_config(model.host.config_class)
        if "_old_forward" in vars(model):  # accelerate's, of a model on several devices
            model._old_forward = functools.partial(type(model).forward, model)
    model.shifts_labels = shifts_labels(model)


@functools.cache
def registered_config(host: Type[PreTrainedConfig]) -> Type[PreTrainedConfig]:
    """The host's configuration for kernel heads; transformers' AutoModels find its models from now on."""
    own = with_kernel_head_config(host)
    for auto in AUTO_MODELS:
        model = (auto._model_mapping or {}).get(host, None)  # the base class has none
        if isinstance(model, type) and model.can_generate():
            auto.register(own, with_kernel_head(model), exist_ok=True)
    return own


@functools.cache
def with_kernel_head(host: Type[PreTrainedModel]) -> Type[PreTrainedModel]:
    """A model's subclass, of the same name, whose head is the one in ``config.kernel_head``."""
    parameters = list(inspect.signature(host.forward).parameters)[1:]
    has_loss_function = uses_loss_function(host)

    class WithKernelHead(host):
        def __init__(self, config, *args, **kwargs):
            super().__init__(config, *args, **kwargs)
            put_head(self, **getattr(config, "kernel_head", {}))

        @functools.wraps(host.forward)  # generate and Trainer look at the signature
        def forward(self, *args, skip_logits: Optional[bool] = None, return_dict: Optional[bool] = None, **kwargs):
            return_dict = self.config.return_dict if return_dict is None else return_dict
            kwargs.update(zip(parameters, args))
            labels, call = kwargs.get("labels"), Call()
            if labels is not None:
                target, call.ignore_index = kwargs.get("shift_labels"), kwargs.get("ignore_index", -100)
                if target is None:
                    next_labels = F.pad(labels, (0, 1), value=call.ignore_index)[..., 1:]
                    target = next_labels if self.shifts_labels else labels
                if self.training if skip_logits is None else skip_logits:
                    call.target, call.items = target, kwargs.get("num_items_in_batch")
                if not has_loss_function:
                    del kwargs["labels"]
                    given = [kwargs.get(name) for name in ("decoder_input_ids", "decoder_inputs_embeds")]
                    if self.config.is_encoder_decoder and given == [None, None]:
                        kwargs["decoder_input_ids"] = previous_words(self, labels)
            token = CALL.set(call)
            try:
                output = super().forward(**kwargs, return_dict=True)
            finally:
                CALL.reset(token)
            values = {**output, "logits": call.output}  # without what the host has done to them
            if labels is not None and not has_loss_function:
                loss = call.output
                if call.target is None:
                    loss = F.nll_loss(loss.flatten(0, -2), target.flatten(), ignore_index=call.ignore_index)
                values = {"loss": loss, **values}
            if call.target is not None:
                del values["logits"]
            output = type(output)(**values)
            return output if return_dict else output.to_tuple()

        @property
        def loss_function(self):
            """The host's, of what the head returned, or the loss that the head has computed already."""
            call, loss = CALL.get(), super().loss_function
            if call is None:
                return loss
            if call.target is not None:
                return lambda *args, **options: call.output
            return lambda logits, *args, **options: loss(call.output, *args, **options)

        @classmethod
        def is_custom_code(cls):
            return host.is_custom_code()  # of custom code transformers initialises fewer buffers

        def _init_weights(self, module):
            if isinstance(module, KernelHead):  # where a checkpoint lacks some of its parameters
                module.reset_parameters()
            else:
                super()._init_weights(module)

        def _get_resized_lm_head(self, old_lm_head, *args, **options):
            return old_lm_head

        def resize_token_embeddings(self, *args, **options):
            embeddings, head = super().resize_token_embeddings(*args, **options), self.get_output_embeddings()
            if embeddings.num_embeddings != head.vocab_size:  # else the parameters stay those that an optimizer has
                head.extend_vocabulary(embeddings.num_embeddings - head.vocab_size)
                self.tie_weights()
            return embeddings

    WithKernelHead.host = host
    WithKernelHead.config_class = with_kernel_head_config(host.config_class)
    WithKernelHead.__module__ = __package__  # where pickle finds it
    WithKernelHead.__name__ = WithKernelHead.__qualname__ = host.__name__  # Trainer and config.json name classes
    return WithKernelHead
