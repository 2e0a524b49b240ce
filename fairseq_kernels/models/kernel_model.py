"""The mixin of all models of the package: the loss inside forward, and checkpoints that are checked when loaded."""

import logging
from typing import Dict, Iterable, NamedTuple, Optional

import torch
from torch import Tensor

from ..errors import mistake
from ..output_layers import OutputLayer
from .output_layer_config import build_output_layer, refuse_unsupported, with_defaults

logger = logging.getLogger(__name__)
ANOTHER_FOLDER = "another --save-dir (--finetune-from-model starts a new training from this checkpoint's weights)"


class LossRequest(NamedTuple):
    """A criterion's request for the loss, which a model's forward then returns instead of log-probabilities."""

    target: Tensor  # (B, T) word indices
    ignore_index: int
    label_smoothing: float = 0.0
    reduction: str = "sum"
    with_ranks: bool = False  # of the targets, 0 for the most probable word
    z_loss: float = 0.0


class LossOutput(NamedTuple):
    """The answer of a model's forward to a :class:`LossRequest`."""

    loss: Tensor  # (), or (B, T) for reduction "none"
    nll: Optional[Tensor]  # -log p(target), without smoothing; None in training where the loss is another one
    observed: Dict[str, Tensor]  # ``OutputLayer.observe``: (B, T) or ()
    ranks: Optional[Tensor]  # (B, T), at least if asked for


class KernelModel:
    """Mixin, before a fairseq model whose ``decoder.output_projection`` is an :class:`OutputLayer`.

    Called as fairseq calls its models, forward returns normalised log-probabilities (B, T, V) instead of
    logits: stock criterions, generation and scoring work unchanged. Called with ``loss_request`` it returns the loss;
    it is computed in here, not in the criterion, so that wrappers of the model (DDP and others) see its parameters
    used.
    """

    default_bias = "true"  # of kernels
    finetuned = False  # whether a checkpoint's output layer may be another one
    warned = False  # of a criterion of fairseq's

    @classmethod
    def options(cls) -> type:
        """The dataclass of the model's options, with which fairseq has registered it."""
        return getattr(cls, "__dataclass")

    @classmethod
    def stock_settings(cls, cfg):
        """The settings as fairseq's ``build_model`` takes them."""
        return cfg

    @classmethod
    def build_model(cls, cfg, task):
        """Builds fairseq's model, and the layer in the place of its output projection."""
        cfg = with_defaults(cfg, cls.options())
        refuse_unsupported(cfg)
        model = super().build_model(cls.stock_settings(cfg), task)
        decoder = model.decoder
        shared = decoder.embed_tokens if decoder.share_input_output_embed else None
        decoder.output_projection = build_output_layer(cfg, task, decoder.output_embed_dim, shared, cls.default_bias)
        return model

    @property
    def output_layer_module(self) -> OutputLayer:
        return self.decoder.output_projection

    def forward(self, *args, loss_request: Optional[LossRequest] = None, **kwargs):
        if loss_request is None:
            if self.training and not self.warned:
                self.warned = True
                logger.warning(
                    "the criterion is one of fairseq's: no memory is saved, no mixture weights (pi) are logged and no "
                    "senses move; give output_layer_loss, or the layer's (python -m fairseq_kernels --criterion LAYER)"
                )
            output = super().forward(*args, **kwargs)
            self.refuse_nan(output[0][..., 0])  # one NaN in a token's scores makes all of its log-probabilities NaN
            return output
        features, _ = super().forward(*args, features_only=True, **kwargs)
        return self.loss_output(features, loss_request)

    def loss_output(self, features: Tensor, request: LossRequest) -> LossOutput:
        """The layer's losses, and what it observes of the tokens."""
        layer, target = self.output_layer_module, request.target
        counted = target.ne(request.ignore_index)
        loss, metrics = layer.nll(
            features, target, request.ignore_index, request.label_smoothing, request.reduction, return_metrics=True,
            z_loss=request.z_loss,
        )  # fmt: skip
        self.refuse_nan(loss)
        nll, ranks = metrics.get("nll"), None
        if request.with_ranks or nll is None and not self.training:
            log_probability, ranks = layer.evaluate(features, target * counted)
            nll = -log_probability * counted if nll is None else nll
        if nll is not None and request.reduction == "sum":
            nll = nll.sum()
        return LossOutput(loss, nll, layer.observe(features), ranks)

    def refuse_nan(self, values: Tensor) -> None:
        """Ends an evaluation with NaN, where fairseq says "ppl nan" and exits with 0. It checks training itself."""
        if not self.training and values.isnan().any():
            raise FloatingPointError("the model gives NaN: its training diverged; use an earlier checkpoint")

    def upgrade_state_dict_named(self, state_dict, name):
        """Lets a stock model's checkpoint in; one of ours must have the same kernels, unless it is finetuned."""
        super().upgrade_state_dict_named(state_dict, name)
        decoder = f"{name}.decoder." if name else "decoder."
        prefix = f"{decoder}output_projection."
        layer = self.output_layer_module
        given = state_dict.get(f"{prefix}weight")
        layer.adapt_state(state_dict, prefix)
        self.check_sharing(state_dict.get(f"{decoder}embed_tokens.weight"), given, state_dict.get(f"{prefix}weight"))
        own, marker = layer.state_dict(prefix=prefix), f"{prefix}kind_version"
        ours = marker in state_dict
        if ours:
            try:
                layer.check_state(state_dict, prefix)
            except ValueError as error:
                if not self.finetuned:
                    raise mistake(f"{error}; use the same --output-layer and --kernels, or {ANOTHER_FOLDER}") from error
        state_dict[marker] = own[marker]
        saved = {key for key in state_dict if key.startswith(prefix)}
        if not ours or self.finetuned:
            self.take_what_fits(state_dict, saved, own, prefix)
        elif saved != set(own):
            different = names(saved ^ set(own), prefix)
            raise mistake(
                f"the checkpoint's output layer has other parameters ({different}); use the same --output-bias, "
                f"--untied-projections, --latent-projection and --kernel-params, or {ANOTHER_FOLDER}"
            )

    def check_sharing(self, input_weight, output_weight: Optional[Tensor], adapted: Optional[Tensor]) -> None:
        """Refuses embeddings that the model alone shares (finetuning warns), and shared ones that are ``adapted``."""
        embeddings = getattr(self.decoder, "embed_tokens", None)
        shared = getattr(embeddings, "weight", None) is self.output_layer_module.weight
        if not shared or input_weight is None or output_weight is None:
            return
        if adapted is not output_weight:
            text = f"--output-step {self.output_layer_module.step:g} is not the checkpoint's, whose shared embeddings"
            raise mistake(f"{text} it would change; give that one (of fairseq's models: 1)")
        if torch.equal(input_weight.nan_to_num(), output_weight.nan_to_num()):  # NaN, of a divergence, is said later
            return
        text = "the model shares input and output embeddings, the checkpoint doesn't"
        if not self.finetuned:
            raise mistake(f"{text}; leave out the option that shares them, or use {ANOTHER_FOLDER}")
        logger.warning("%s: the checkpoint's output embeddings are used for both", text)

    def take_what_fits(self, state_dict, saved, own, prefix: str) -> None:
        """Makes of the parameters ``saved`` of another output layer those of ``own``."""
        fitting = {key for key in saved & set(own) if state_dict[key].shape == own[key].shape}
        if not self.finetuned:  # a training doesn't go on with another matrix: torch refuses one of another shape
            fitting |= {f"{prefix}weight"} & saved
        for key in saved - set(own):
            del state_dict[key]
        start = {key: own[key] for key in set(own) - fitting}
        if [*start] == [f"{prefix}bias"] and self.output_layer_module.kind == "lin":  # a trained W has the frequencies
            start = {key: torch.zeros_like(value) for key, value in start.items()}
        state_dict.update(start)
        shown = (names(keys, prefix) for keys in (fitting, start, saved - set(own)))
        text = "output layer: from the checkpoint %s; start values: %s; in the checkpoint but not used: %s"
        logger.info(text, *shown)


def names(keys: Iterable[str], prefix: str) -> str:
    """Parameters of the output layer, for messages."""
    shown = sorted(key.removeprefix(prefix) for key in keys if key != f"{prefix}kind_version")
    return ", ".join(shown) or "none"
