"""fairseq models whose output layer is the package's."""

from .kernel_lstm_lm import KernelLSTMLanguageModel
from .kernel_transformer import KernelTransformer
from .kernel_transformer_lm import KernelTransformerLanguageModel

__all__ = ["KernelLSTMLanguageModel", "KernelTransformer", "KernelTransformerLanguageModel"]
