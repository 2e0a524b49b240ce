"""fairseq's transformer language model with a kernel output layer."""

from dataclasses import dataclass

from fairseq.models import register_model
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig

from .kernel_model import KernelModel
from .kernel_transformer import register_twins
from .output_layer_config import OutputLayerConfig


@dataclass
class KernelTransformerLanguageModelConfig(OutputLayerConfig, TransformerLanguageModelConfig):
    pass


@register_model("kernel_transformer_lm", dataclass=KernelTransformerLanguageModelConfig)
class KernelTransformerLanguageModel(KernelModel, TransformerLanguageModel):
    """Transformer language model whose softmax layer has kernels."""


register_twins("transformer_lm", "kernel_transformer_lm")
