"""Cross-entropy of KerBS (Miao et al. 2019, Eq. 11)."""

from dataclasses import dataclass, field

from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II

from ..output_layers import KerBSoftmax
from .output_layer_criterion import OutputLayerCriterion, total


@dataclass
class KerBSCrossEntropyConfig(FairseqDataclass):
    label_smoothing: float = field(default=0.0, metadata={"help": "epsilon for label smoothing, 0 means none"})
    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("kerbs_cross_entropy", dataclass=KerBSCrossEntropyConfig)
class KerBSCrossEntropy(OutputLayerCriterion):
    """-sum_n log p(y_n). Logs the mean theta, and the numbers of words with several senses, of senses in use and of
    those moved so far."""

    registered_name = "kerbs_cross_entropy"
    needs = "it needs --output-layer kerbs, with --arch kernel_lstm_lm, kernel_transformer_lm or kernel_transformer"

    def fits(self, layer):
        return isinstance(layer, KerBSoftmax)

    def extra_loss(self, layer, output, kept):
        tokens = kept.sum()
        sums = {f"kerbs_{name}": value * tokens for name, value in layer.summary().items()}
        return None, sums

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """And the layer's summary."""
        super().reduce_metrics(logging_outputs)
        ntokens = total(logging_outputs, "ntokens")
        for key in sorted({key for log in logging_outputs for key in log if key.startswith("kerbs_")}):
            metrics.log_scalar(key[len("kerbs_") :], total(logging_outputs, key) / ntokens, ntokens, round=4)
