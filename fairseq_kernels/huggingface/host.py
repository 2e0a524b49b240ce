"""What a model of transformers does to its head's scores and to its labels."""

import inspect
from typing import Any, Dict, NamedTuple, Optional, Type

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from ..kernels import Learned
from ..kernels.spec import kernel_of, parse_kernels, parse_parameters
from .head import KernelHead


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
    """Finds out what a model does to its head's scores: gives it scores of known size in forwards of two tokens.

    Raises:
        ValueError: it is something else than a factor, a soft cap and a bias, or its loss no cross-entropy of that, or
            its head more than a matrix and a bias.
    """
    name, tried = type(model).__name__, (1e-4, 1e6, 1.0, -1.0, 5.0, -10.0, 20.0, -30.0, 40.0, 60.0, -100.0, 1000.0)
    values = torch.tensor(tried, dtype=torch.float64, device=head.weight.device)
    grid = values.repeat(-(-len(head.weight) // len(tried)))[: len(head.weight)]
    kind, learning = type(model), [part for part in model.modules() if part.training]
    asked, given, rest, own_head = [], [torch.stack([torch.zeros_like(grid), grid])], [], isinstance(head, KernelHead)

    def known_scores(module, arguments, output):
        asked.append(output.shape)
        if not own_head:
            expected = F.linear(arguments[0], module.weight, getattr(module, "bias", None))
            error, size = (output - expected).abs().max(), expected.abs().max()
            if error > 0.02 * size:
                raise ValueError("its head isn't a matrix and a bias alone: a hook, an adapter or a forward of its own")
        return given[-1].expand(output.shape).clone()

    ids = torch.zeros(1, 2, dtype=torch.long, device=head.weight.device)
    inputs: Dict[str, Any] = {"input_ids": ids}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids
        if model.main_input_name != "input_ids":
            state = torch.zeros(1, 2, head.weight.size(1), dtype=head.weight.dtype, device=head.weight.device)
            inputs = {"decoder_input_ids": ids, "encoder_outputs": BaseModelOutput(state)}
    hook = head.register_forward_hook(known_scores)
    model.__class__ = getattr(model, "host", kind)
    try:
        with torch.no_grad():
            logits = model.eval()(**inputs, return_dict=True).logits
            shifted = shifts_labels(model)
            for largest in (1.0, 10.0):  # what else is in the loss, a router's for instance, is the same for both
                given.append(torch.full_like(given[0], largest))
                given[-1][0, 2] *= 2
                output = model(**inputs, labels=ids + 2, return_dict=True)
                own = F.cross_entropy(output.logits[0, : 2 - shifted].float(), ids[0, shifted:] + 2)
                rest.append(output.loss.float() - own)
    except Exception as error:
        raise ValueError(f"{name} is not supported: a forward of two tokens fails ({error})") from error
    finally:
        hook.remove()
        model.__class__ = kind
        for part in learning:
            part.training = True
    if asked != 3 * [logits.shape]:
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
    if c is not None and not own_head and getattr(head, "bias", None) is not None:
        raise ValueError(f"{name} is not supported: its head has a bias, and its logits a cap")
    if abs(rest[1] - rest[0]) > max(1e-3, 4 * tolerance):
        raise ValueError(f"{name} is not supported: its loss is not the cross-entropy made by forward or loss_function")
    factor = 1.0 if abs(factor - 1) < tolerance else factor
    return HostFunction(factor, c, bias if bias.any() else None)


def uses_loss_function(host: Type[PreTrainedModel]) -> bool:
    """Whether forward leaves the loss to ``loss_function``; else it compares logits and labels as they are."""
    return "loss_function" in inspect.unwrap(host.forward).__code__.co_names


def previous_words(model: PreTrainedModel, labels: Tensor) -> Tensor:
    """The decoder's input, as an encoder-decoder model makes it of the labels."""
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return model.prepare_decoder_input_ids_from_labels(labels=labels)
    ids = F.pad(labels[..., :-1], (1, 0), value=model.config.decoder_start_token_id)
    return ids.masked_fill(ids == -100, model.config.pad_token_id)


def shifts_labels(model: PreTrainedModel) -> bool:
    """Whether a model leaves the loss to ``loss_function``, and this compares the logits with the next labels."""
    if not uses_loss_function(getattr(model, "host", type(model))):
        return False
    with torch.device("cpu"):  # the model may be on none yet
        logits, labels = torch.tensor([[[0.0, 0.0], [9.0, 0.0]]]), torch.tensor([[0, 1]])
        return float(model.loss_function(logits=logits, labels=labels, vocab_size=2)) < 1
