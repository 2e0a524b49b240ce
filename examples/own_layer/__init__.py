"""An output layer of one's own: the scores are divided by a learned temperature of the context, tau(h).

    fairseq-train DATA-BIN --user-dir examples/own_layer --task language_modeling --arch kernel_lstm_lm \\
        --output-layer temperature --coldest 0.2 --criterion output_layer_loss --optimizer adam --lr 0.001 ...
"""

from dataclasses import dataclass

import torch

from fairseq_kernels import GeneralizedSoftmax, Options, option, register_output_layer


@dataclass
class TemperatureOptions(Options):
    coldest: float = option(0.1, "tau(h) is this at least")


@register_output_layer("temperature", TemperatureOptions)
class Temperature(GeneralizedSoftmax):
    """p(v | h) = softmax_v(W_v . h / tau(h) + beta_v) with tau(h) = coldest + log(1 + e^(u . h))."""

    def __init__(self, embed_dim, num_embeddings, bias=True, memory_budget=None, coldest=0.1):
        super().__init__(embed_dim, num_embeddings, "lin", bias, memory_budget=memory_budget)
        self.direction, self.coldest = torch.nn.Parameter(torch.zeros(embed_dim)), coldest

    def cooled(self, features):
        """h / tau(h), in whose place the scores are the linear kernel's; (..., d) to (..., d)."""
        return features / (self.coldest + torch.nn.functional.softplus(features @ self.direction)).unsqueeze(-1)

    def log_probabilities(self, features):
        return super().log_probabilities(self.cooled(features))

    def losses(self, tokens, smoothing, summed):
        return super().losses(tokens._replace(features=self.cooled(tokens.features)), smoothing, summed)
