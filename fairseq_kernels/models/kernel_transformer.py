"""fairseq's transformer with a kernel output layer."""

import dataclasses
import inspect
from typing import Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    BaseFairseqModel,
    register_model,
    register_model_architecture,
)
from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase, TransformerModelBase
from omegaconf import II
from torch import nn

from .kernel_model import KernelModel
from .output_layer_config import OutputLayerConfig, set_defaults


def flat_config(name: str, nested: type, base: type) -> type:
    """A dataclass with the options of a nested fairseq config under their command-line names.

    Nested configs don't flatten on fairseq's command line, and its legacy transformer isn't a dataclass model, which
    ``fairseq-hydra-train`` needs.
    """
    flat = []
    for outer in dataclasses.fields(nested):
        if inspect.isclass(outer.type) and issubclass(outer.type, FairseqDataclass):
            inner = [(f"{outer.name}_{f.name}", f) for f in dataclasses.fields(outer.type) if f.name != "_name"]
        else:
            inner = [(outer.name, outer)] if outer.name != "_name" else []
        for key, field in inner:
            default = field.default
            if default == II("model.decoder.embed_dim"):
                default = II("model.decoder_embed_dim")
            # fairseq splits these lists itself
            kind = Optional[str] if key.endswith("layers_to_keep") else field.type
            flat.append((key, kind, dataclasses.field(default=default, metadata=field.metadata)))
    return dataclasses.make_dataclass(name, flat, bases=(base, FairseqDataclass), namespace={"__module__": __name__})


KernelTransformerConfig = flat_config("KernelTransformerConfig", TransformerConfig, OutputLayerConfig)


@register_model("kernel_transformer", dataclass=KernelTransformerConfig)
class KernelTransformer(KernelModel, TransformerModelBase):
    """Transformer (Vaswani et al. 2017) whose softmax layer has kernels (Gao et al. 2019, section 4)."""

    # the options of our dataclass; the base class' method names TransformerConfig
    add_args = classmethod(BaseFairseqModel.add_args.__func__)

    default_bias = "false"  # as the stock output_projection, which has none

    @classmethod
    def stock_settings(cls, cfg):
        for name in ("decoder_input_dim", "decoder_output_dim"):
            if getattr(cfg, name) is None:  # the interpolation is not resolved outside of hydra
                setattr(cfg, name, cfg.decoder_embed_dim)
        return TransformerConfig.from_namespace(cfg)

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens):
        return TransformerDecoderBase(
            cfg,
            tgt_dict,
            embed_tokens,
            no_encoder_attn=cfg.no_cross_attention,
            output_projection=nn.Identity(),  # the layer takes its place
        )


def register_twins(stock: str, model: str) -> None:
    """Registers ``kernel_NAME`` for every named architecture of a stock model, with the same settings."""
    for name in list(ARCH_MODEL_INV_REGISTRY[stock]):
        if name != stock:
            register_model_architecture(model, f"kernel_{name}")(without_adaptive_softmax(ARCH_CONFIG_REGISTRY[name]))


def without_adaptive_softmax(architecture):
    """The architecture's settings without its adaptive softmax, which the kernels replace."""

    def configure(args):
        cutoff = getattr(args, "adaptive_softmax_cutoff", None)
        architecture(args)
        args.adaptive_softmax_cutoff = cutoff
        args.tie_adaptive_weights = args.tie_adaptive_proj = False

    return configure


register_twins("transformer", "kernel_transformer")


@register_model_architecture("kernel_transformer", "kernel_transformer_small")
def kernel_transformer_small(args):
    """A transformer for CPU work: 256, feed-forward 512, 4 heads, 3 + 3 layers."""
    sizes = {"embed_dim": 256, "ffn_embed_dim": 512, "attention_heads": 4, "layers": 3}
    for side in ("encoder", "decoder"):
        set_defaults(args, **{f"{side}_{name}": value for name, value in sizes.items()})
    without_adaptive_softmax(ARCH_CONFIG_REGISTRY["transformer_iwslt_de_en"])(args)
