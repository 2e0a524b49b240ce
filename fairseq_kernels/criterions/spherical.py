"""The log-losses of the spherical family (de Brebisson & Vincent 2016)."""

from dataclasses import dataclass, field

from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from ..output_layers import SphericalSoftmax, TaylorSoftmax
from .output_layer_criterion import OutputLayerCriterion


@dataclass
class SphericalLossConfig(FairseqDataclass):
    label_smoothing: float = field(default=0.0, metadata={"help": "refused: a spherical loss sees the target alone"})
    sentence_avg: bool = II("optimization.sentence_avg")


class SphericalLoss(OutputLayerCriterion):
    """-log p(y) without the V outputs, and in validation the top-10 error rate (Table 5)."""

    def __init__(self, task, sentence_avg, label_smoothing=0.0):
        if label_smoothing:
            raise SystemExit(
                f"fairseq_kernels: error: --label-smoothing {label_smoothing} is not allowed with "
                f"{self.registered_name}: it needs every word's log-probability, which a spherical loss never "
                "computes; leave it out"
            )
        super().__init__(task, sentence_avg, top10=True)

    def fits(self, layer):
        return isinstance(layer, self.layer)


@register_criterion("log_taylor_softmax", dataclass=SphericalLossConfig)
class LogTaylorSoftmax(SphericalLoss):
    """-log [(1 + o_y + o_y^2 / 2) / sum_v (1 + o_v + o_v^2 / 2)]   (section 3.2)"""

    registered_name, layer = "log_taylor_softmax", TaylorSoftmax
    needs = "it needs --output-layer taylor, with --arch kernel_lstm_lm, kernel_transformer_lm or kernel_transformer"


@register_criterion("log_spherical_softmax", dataclass=SphericalLossConfig)
class LogSphericalSoftmax(SphericalLoss):
    """-log [(o_y^2 + epsilon) / sum_v (o_v^2 + epsilon)]   (section 3.1); epsilon is the output layer's."""

    registered_name, layer = "log_spherical_softmax", SphericalSoftmax
    needs = "it needs --output-layer spherical, with --arch kernel_lstm_lm, kernel_transformer_lm or kernel_transformer"
