"""Models of Hugging Face's transformers, from version 5, whose head is a generalized softmax: causal language models,
and encoder-decoder models such as T5, BART, Marian and Whisper.

    model = replace_head(AutoModelForCausalLM.from_pretrained(name), kernels="3xlin,log", bias=True)
    Trainer(model, arguments, train_dataset=data).train()
    model.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)    # after the import of this module

The model keeps its forward, with one difference: in training with labels the loss comes from the head's ``nll`` and
``logits`` are None, so that no tensor of tokens x words is made. ``skip_logits=False`` computes them anyway,
``skip_logits=True`` omits them in evaluation, too. Logits are normalised log-probabilities.

A folder that ``save_pretrained`` wrote has the model type ``fairseq_kernels``. So without this module transformers
refuses it, where it would else load another head without a word.
"""

import functools
import inspect
import json
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Dict, Iterable, NamedTuple, Optional, Type, Union

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
    PreTrainedConfig,
    PreTrainedModel,
)

from .kernels import Learned
from .kernels.spec import kernel_of, parse_kernels, parse_parameters
from .output_layers import GeneralizedSoftmax
from .prior import word_prior

AUTO_MODELS = (AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq)


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


class HostFunction(NamedTuple):
    """What a model does to the scores x of its head: c tanh(factor x / c), or factor x without c, plus a bias (V,)."""

    factor: float
    c: Optional[float]
    bias: Optional[Tensor]

    def options(self, kernels="lin", kernel_params=None, **others) -> Dict[str, Any]:
        """A head's options with this function in the place of each ``lin``."""
        if self.factor == 1 and self.c is None:
            return {"kernels": kernels, "kernel_params": kernel_params, **others}
        parameters: Dict[str, Any] = {}
        given = parse_parameters(kernel_params)
        given.setdefault("lin", {}).setdefault("scale", 1.0)
        for component, values in given.items():
            for name, value in values.items():
                start = getattr(value, "start", value)
                if kernel_of(component) == "lin":
                    start = self.factor * (1.0 if start is None else start)
                    if self.c is not None:
                        component, name = component.replace("lin", "cap"), "alpha"
                shown = "learned" if start is None else f"learned:{start}"
                parameters[f"{component}.{name}"] = shown if isinstance(value, Learned) else start
        names = parse_kernels(kernels)
        if self.c is not None:
            names = ["cap" if name == "lin" else name for name in names]
            parameters.setdefault("cap.c", self.c)
        return {"kernels": ",".join(names), "kernel_params": parameters, **others}


def host_function(model: PreTrainedModel, head: nn.Module) -> HostFunction:
    """Finds out what a model does to its head's scores: gives it scores of known size in a forward of two tokens.

    Raises:
        ValueError: it is something else than a factor, a soft cap and a bias.
    """
    name, tried = type(model).__name__, (1e-4, 1e6, 1.0, -1.0, 5.0, -10.0, 20.0, -30.0, 40.0, 60.0, -100.0, 1000.0)
    values = torch.tensor(tried, dtype=torch.float64, device=head.weight.device)
    grid = values.repeat(-(-len(head.weight) // len(tried)))[: len(head.weight)]
    asked = []

    def known_scores(module, arguments, output):
        asked.append(output.shape)
        scores = grid.expand(output.shape).clone()
        scores[..., 0, :] = 0
        return scores

    ids = torch.zeros(1, 2, dtype=torch.long, device=head.weight.device)
    inputs: Dict[str, Any] = {"input_ids": ids}
    if model.config.is_encoder_decoder:
        state = torch.zeros(1, 2, model.config.hidden_size, dtype=head.weight.dtype, device=head.weight.device)
        inputs = {"decoder_input_ids": ids, "encoder_outputs": transformers.modeling_outputs.BaseModelOutput(state)}
    training, hook = model.training, head.register_forward_hook(known_scores)
    try:
        with torch.no_grad():
            logits = model.eval()(**inputs, return_dict=True).logits
    except Exception as error:
        raise ValueError(f"{name} is not supported: a forward of two tokens fails ({error})") from error
    finally:
        hook.remove()
        model.train(training)
    if asked != [logits.shape]:
        raise ValueError(f"{name} is not supported: its logits don't come from its output embedding in one call")
    bias, seen = (row.double() for row in logits.flatten(0, -2)[[0, -1]])
    seen = seen - bias
    factor, largest = (float(f"{value:.7g}") for value in (seen[0] / tried[0], seen[1]))
    c = largest if largest < 0.99e6 * factor else None
    expected = grid * factor if c is None else c * torch.tanh(grid * factor / c)
    tolerance = 8 * max(torch.finfo(torch.float32).eps, torch.finfo(logits.dtype).eps)
    if not (torch.isclose(seen, expected, rtol=tolerance, atol=tolerance).all() and factor > 0):
        shown = ", ".join(f"{x:g} to {y:g}" for x, y in zip(tried, seen.tolist()))
        raise ValueError(f"{name} is not supported: it changes its head's scores by more than a factor, a cap: {shown}")
    if c is not None and getattr(head, "bias", None) is not None:
        raise ValueError(f"{name} is not supported: its head has a bias, and its logits a cap")
    factor = 1.0 if abs(factor - 1) < tolerance else factor
    return HostFunction(factor, c, bias if bias.any() else None)


def replace_head(
    model: PreTrainedModel, kernels="lin", prior: Union[None, Tensor, Iterable] = None, **options
) -> PreTrainedModel:
    """Gives a model a :class:`KernelHead`, in place, which keeps the old head's weight and bias.

    A factor or a soft cap that the model has for its logits (Cohere, Granite, Gemma 2 ...) becomes the head's: ``lin``
    gets the factor as its scale, or becomes ``cap``. Other kernels stay as they are given.

    Args:
        kernels: as in :class:`GeneralizedSoftmax`, like the ``options``; ``config.kernel_head`` keeps them. With a
            ``step`` the head computes what the old one did. But a weight that is tied with the embeddings stays as it
            is, and the scores are ``step`` times as large: this is for models that are still to be trained.
        prior: starts the bias, which the head then has, from the words' probabilities (V,), or counts them in an
            iterable of batches or examples, each a tensor of labels or a mapping with ``labels``.

    Returns:
        The same model; its class is now :func:`with_kernel_head` of the former one.

    Raises:
        ValueError: the model generates no text, or does more to its logits than a factor, a soft cap and a bias.
    """
    old = model.get_output_embeddings() if model.can_generate() else None
    if getattr(getattr(old, "weight", None), "dim", int)() != 2:
        text = "give a causal language model, or an encoder-decoder model of text"
        raise ValueError(f"{type(model).__name__} has no head that predicts the next word: {text}")
    model.__class__ = getattr(model, "host", type(model))
    does, own_bias = host_function(model, old), getattr(old, "bias", None)
    if does.bias is not None or prior is not None:
        options["bias"] = True
    put_head(model, **does.options(kernels, **options))
    head = model.get_output_embeddings()
    if head.bias is not None and (does.bias is not None or own_bias is not None and does.factor != 1):
        added = 0.0 if does.bias is None else does.bias.to(head.bias)
        head.bias = nn.Parameter(head.bias.detach() * does.factor + added)
    if prior is not None:
        if not isinstance(prior, Tensor):
            labels = (batch if isinstance(batch, Tensor) else torch.as_tensor(batch["labels"]) for batch in prior)
            prior = word_prior(labels, head.vocab_size)
        head.set_prior(prior)
    return model


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
        model.config.__class__ = model.config_class
    model.shifts_labels = uses_loss_function(model.host) and shifts(model.loss_function)


def from_pretrained(folder: str, **options) -> PreTrainedModel:
    """The model that ``save_pretrained`` wrote, in version 0.3, too; ``options`` are those of transformers'
    ``from_pretrained``."""
    config = AutoConfig.from_pretrained(folder)
    models = [auto._model_mapping[type(config)] for auto in AUTO_MODELS if type(config) in auto._model_mapping]
    model = next((model for model in models if model.__name__ in config.architectures), models[0])
    return with_kernel_head(getattr(model, "host", model)).from_pretrained(folder, config=config, **options)


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
                    if self.config.is_encoder_decoder and kwargs.get("decoder_input_ids") is None:
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

        def _get_resized_lm_head(self, old_lm_head, new_num_tokens=None, **options):
            if new_num_tokens is not None:
                old_lm_head.extend_vocabulary(new_num_tokens - old_lm_head.vocab_size)
            return old_lm_head

    WithKernelHead.host = host
    WithKernelHead.config_class = with_kernel_head_config(host.config_class)
    WithKernelHead.__name__ = WithKernelHead.__qualname__ = host.__name__  # Trainer and config.json name classes
    return WithKernelHead


def uses_loss_function(host: Type[PreTrainedModel]) -> bool:
    """Whether forward leaves the loss to ``loss_function``; else it compares logits and labels as they are."""
    return "loss_function" in inspect.unwrap(host.forward).__code__.co_names


def previous_words(model: PreTrainedModel, labels: Tensor) -> Tensor:
    """The decoder's input, as an encoder-decoder model makes it of the labels."""
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return model.prepare_decoder_input_ids_from_labels(labels=labels)
    ids = F.pad(labels[..., :-1], (1, 0), value=model.config.decoder_start_token_id)
    return ids.masked_fill(ids == -100, model.config.pad_token_id)


def shifts(loss_function) -> bool:
    """Whether a loss of transformers' compares the logits with the next position's labels."""
    with torch.device("cpu"):  # the model may be on none yet
        return float(loss_function(torch.tensor([[[0.0, 0.0], [9.0, 0.0]]]), torch.tensor([[0, 1]]), 2)) < 1


@functools.cache
def with_kernel_head_config(host: Type[PreTrainedConfig]) -> Type[PreTrainedConfig]:
    """A configuration's subclass, of the same name, that is saved under the model type ``fairseq_kernels``."""

    class WithKernelHeadConfig(host):
        def to_json_string(self, use_diff: bool = True) -> str:
            values = json.loads(super().to_json_string(use_diff))
            values.update(host_model_type=self.model_type, model_type=SavedConfig.model_type)
            return json.dumps(values, indent=2, sort_keys=True) + "\n"

        @classmethod
        def from_dict(cls, config_dict, **options):
            config_dict["model_type"] = config_dict.pop("host_model_type", host.model_type)
            return super().from_dict(config_dict, **options)

    WithKernelHeadConfig.__name__ = WithKernelHeadConfig.__qualname__ = host.__name__
    return WithKernelHeadConfig


class SavedConfig(PreTrainedConfig):
    """What transformers finds under the model type of a saved folder: it becomes the host's."""

    model_type = "fairseq_kernels"

    @classmethod
    def from_dict(cls, config_dict, **options):
        host = transformers.CONFIG_MAPPING[config_dict["host_model_type"]]
        own = with_kernel_head_config(host)
        for auto in AUTO_MODELS:
            if host in auto._model_mapping:
                auto.register(own, with_kernel_head(auto._model_mapping[host]), exist_ok=True)
        return own.from_dict(config_dict, **options)


AutoConfig.register(SavedConfig.model_type, SavedConfig)


def __getattr__(name: str):
    """A class with a kernel head by its host's name, as pickle looks for it."""
    host = getattr(transformers, name, None)
    if isinstance(host, type) and issubclass(host, PreTrainedModel):
        return with_kernel_head(host)
    if isinstance(host, type) and issubclass(host, PreTrainedConfig):
        return with_kernel_head_config(host)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
