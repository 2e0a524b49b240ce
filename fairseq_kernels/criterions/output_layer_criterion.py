"""The criterion of every output layer: the loss comes from the model's forward, where the layer computes it."""

import math
from dataclasses import dataclass
from typing import Optional

from fairseq import utils
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II

from ..errors import mistake, one_line_errors
from ..models.kernel_model import LossRequest
from ..output_layers import OutputLayer
from ..output_layers.spherical import SphericalFamily
from ..output_layers.table import ANY_LAYER, LAYERS, option

TOP = 10  # words: the error rate of de Brebisson & Vincent (2016, Table 5)
# what a log has of every layer; all else is what the layer observes
EVERY = ("loss", "nll_loss", "ntokens", "nsentences", "sample_size", "top10_errors")


@dataclass
class OutputLayerCriterionConfig(FairseqDataclass):
    label_smoothing: float = option(0.0, "epsilon for label smoothing, 0 means none")
    pi_variance_weight: float = option(
        0.0, "rho of Eq. 14: weight of the mixture weights' variance; no effect for K = 1"
    )
    z_loss: float = option(0.0, "weight of each token's squared log-partition in the loss, such as 1e-4; 0 means none")
    report_top10_error: bool = option(
        False, "log in validation how often the target is not among the ten likeliest words"
    )
    sentence_avg: bool = II("optimization.sentence_avg")


class OutputLayerCriterion(FairseqCriterion):
    """The output layer's loss, in nats (the trainer divides by the sample size).

    Logs fairseq's loss and perplexity, the means over tokens of what the layer observes (``OutputLayer.observe``), and
    in validation, if asked for or of the spherical family, ``top10_error``: the share of tokens whose target is not
    among the ten most probable words.

    A subclass may name the one layer that it is for: :attr:`layer_name`.
    """

    layer_name: Optional[str] = None  # any

    def __init__(
        self, task, sentence_avg, label_smoothing=0.0, pi_variance_weight=0.0, report_top10_error=False, z_loss=0.0
    ):
        super().__init__(task)
        # a model that is built before has written the name of its output layer to the task
        name = self.layer_name or getattr(task, "output_layer_name", None)
        layer = LAYERS[name].layer if name in LAYERS else OutputLayer
        with one_line_errors():
            layer.check_terms(label_smoothing, z_loss)
        if not 0 <= pi_variance_weight < math.inf:
            raise mistake(f"--pi-variance-weight {pi_variance_weight} is not allowed: it must be 0 or more")
        if pi_variance_weight and name not in ("kernels", None):
            raise mistake(f"--output-layer {name} has no mixture weights; leave out --pi-variance-weight")
        self.sentence_avg, self.label_smoothing, self.z_loss = sentence_avg, label_smoothing, z_loss
        self.pi_variance_weight = pi_variance_weight
        self.top10 = report_top10_error or issubclass(layer, SphericalFamily)

    @classmethod
    def build_criterion(cls, cfg, task):
        """As fairseq's; ends the program if the criterion isn't for the model that was built before."""
        own = ANY_LAYER if cls.layer_name is None else LAYERS[cls.layer_name].criterion
        name = getattr(task, "output_layer_name", cls.layer_name or ANY_LAYER)  # None: fairseq's own layer
        if name is None or cls.layer_name not in (None, name):
            there = "fairseq's own output layer: choose --criterion cross_entropy, or --arch kernel_..."
            if name is not None:
                there = f"--output-layer {name}: choose --criterion {LAYERS[name].criterion}"
            raise mistake(f"--criterion {own} doesn't fit this model: it has {there}")
        return super().build_criterion(cfg, task)

    def forward(self, model, sample, reduce=True):
        """Loss in nats (a scalar, or a token each for ``reduce=False``), sample size and logging output."""
        target = sample["target"]
        ranked = self.top10 and not model.training
        reduction = "sum" if reduce else "none"
        request = LossRequest(target, self.padding_idx, self.label_smoothing, reduction, ranked, self.z_loss)
        output = model(**sample["net_input"], loss_request=request)
        loss, counted = output.loss, target.ne(self.padding_idx)
        if self.pi_variance_weight and "pi_variance" in output.observed:
            penalty = self.pi_variance_weight * output.observed["pi_variance"] * counted
            loss = loss + (penalty.sum() if reduce else penalty)
        sample_size = target.size(0) if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": loss.data,
            "ntokens": sample["ntokens"],
            "nsentences": target.size(0),
            "sample_size": sample_size,
            **{name: (value.data * counted).sum() for name, value in output.observed.items()},
        }
        if output.nll is not None:
            logging_output["nll_loss"] = output.nll.data
        if output.ranks is not None:
            logging_output["top10_errors"] = ((output.ranks >= TOP) & counted).sum()
        return (loss if reduce else loss.view(-1)), sample_size, logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """Loss and perplexity as fairseq's criterions (base 2), means of what the layer observes, and top10_error."""

        def total(key: str):
            return sum(log.get(key, 0) for log in logging_outputs)

        names = sorted({name for log in logging_outputs for name in log})
        ntokens, sample_size = total("ntokens"), total("sample_size")
        metrics.log_scalar("loss", total("loss") / sample_size / math.log(2), sample_size, round=3)
        if "nll_loss" in names:
            metrics.log_scalar("nll_loss", total("nll_loss") / ntokens / math.log(2), ntokens, round=3)
            metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        for name in names:
            if name not in EVERY:
                mean = total(name) / ntokens
                metrics.log_scalar(name, mean, ntokens, round=4)
                if name == "pi_variance":
                    # Table 2's "Variance" fits percentage points squared
                    metrics.log_scalar("pi_variance_pp2", 1e4 * mean, ntokens, round=2)
        if "top10_errors" in names:
            metrics.log_scalar("top10_error", total("top10_errors") / ntokens, ntokens, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """All values are sums over tokens."""
        return True
