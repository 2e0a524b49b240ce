"""Cross-entropy of a kernel mixture, with the regularisation of its weights (Gao et al. 2019, Eq. 14)."""

import math
from dataclasses import dataclass, field

from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II

from ..output_layers import GeneralizedSoftmax
from .output_layer_criterion import OutputLayerCriterion, total


@dataclass
class KernelMixtureCrossEntropyConfig(FairseqDataclass):
    label_smoothing: float = field(default=0.0, metadata={"help": "epsilon for label smoothing, 0 means none"})
    pi_variance_weight: float = field(
        default=0.0, metadata={"help": "rho of Eq. 14: weight of the mixture weights' variance; no effect for K = 1"}
    )
    report_top10_error: bool = field(
        default=False, metadata={"help": "log in validation how often the target is not among the ten likeliest words"}
    )
    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("kernel_mixture_cross_entropy", dataclass=KernelMixtureCrossEntropyConfig)
class KernelMixtureCrossEntropy(OutputLayerCriterion):
    """L = sum_n [-log p(y_n) + rho Var_k(pi_{n,k})] (Eq. 14; the trainer divides by the number of tokens).

    Var is the population variance over one token's K weights.
    """

    registered_name = "kernel_mixture_cross_entropy"
    needs = (
        "it needs a kernel mixture, as --arch kernel_lstm_lm, kernel_transformer_lm and kernel_transformer have by "
        "default; for other models choose --criterion cross_entropy, or that of their output layer"
    )

    def __init__(self, task, sentence_avg, label_smoothing, pi_variance_weight, report_top10_error=False):
        if not 0 <= pi_variance_weight < math.inf:
            raise SystemExit(f"--pi-variance-weight {pi_variance_weight} is not allowed: it must be 0 or more")
        super().__init__(task, sentence_avg, label_smoothing, report_top10_error)
        self.pi_variance_weight = pi_variance_weight

    def fits(self, layer):
        return isinstance(layer, GeneralizedSoftmax)

    def extra_loss(self, layer, output, kept):
        weights = output["mixture_weights"]
        if weights.size(-1) == 1:
            return None, {}
        variance = weights.var(dim=-1, unbiased=False) * kept
        sums = {"pi_variance": variance.sum()}
        for name, weight in zip(layer.component_names(), weights.unbind(-1)):
            sums[f"pi_{name}"] = (weight * kept).sum()
        return (self.pi_variance_weight * variance if self.pi_variance_weight else None), sums

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """And mean mixture weights and their variance."""
        super().reduce_metrics(logging_outputs)
        ntokens = total(logging_outputs, "ntokens")
        for key in sorted({key for log in logging_outputs for key in log if key.startswith("pi_")}):
            mean = total(logging_outputs, key) / ntokens
            metrics.log_scalar(key, mean, ntokens, round=4)
            if key == "pi_variance":
                # Table 2's "Variance" fits percentage points squared
                metrics.log_scalar("pi_variance_pp2", 1e4 * mean, ntokens, round=2)
