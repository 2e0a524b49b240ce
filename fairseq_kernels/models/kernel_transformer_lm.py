"""fairseq's transformer language model with a kernel output layer."""

from dataclasses import dataclass

from fairseq.models import register_model
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig

from .kernel_model import KernelModel
from .kernel_transformer import register_twins
from .output_layer_config import OutputLayerConfig, build_output_layer, refuse_unsupported, with_defaults


@dataclass
class KernelTransformerLanguageModelConfig(OutputLayerConfig, TransformerLanguageModelConfig):
    pass


@register_model("kernel_transformer_lm", dataclass=KernelTransformerLanguageModelConfig)
class KernelTransformerLanguageModel(KernelModel, TransformerLanguageModel):
    """Transformer language model whose softmax layer has kernels."""

    @classmethod
    def build_model(cls, cfg, task):
        """Build a new model instance."""
        cfg = with_defaults(cfg, cls.options())
        refuse_unsupported(cfg)
        model = super().build_model(cfg, task)
        decoder = model.decoder
        # the stock method hard-codes its decoder, so the layer takes its place afterwards
        decoder.output_projection = build_output_layer(
            cfg,
            task,
            task.target_dictionary,
            decoder.output_embed_dim,
            shared=decoder.embed_tokens if decoder.share_input_output_embed else None,
        )
        return model


register_twins("transformer_lm", "kernel_transformer_lm")
