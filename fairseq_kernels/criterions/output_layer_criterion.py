"""What the criterions share: the loss comes from the model's forward, where its output layer computes it."""

import math
from typing import Dict, Tuple

from fairseq import utils
from fairseq.criterions import FairseqCriterion
from fairseq.logging import metrics
from torch import Tensor

from ..models.kernel_model import LossRequest
from ..output_layers import OutputLayer

TOP = 10  # words: the error rate of de Brebisson & Vincent (2016, Table 5)


class OutputLayerCriterion(FairseqCriterion):
    """-sum_n log p(y_n), by the output layer of a model of this package (the trainer divides by the tokens).

    Logs fairseq's loss and perplexity, and in validation, with ``top10``, ``top10_error``: the share of tokens whose
    target is not among the ten most probable words.

    A subclass says which layers it fits: :meth:`fits` and ``needs``.
    """

    needs: str  # what an unfit model is told

    def __init__(self, task, sentence_avg: bool, label_smoothing: float = 0.0, top10: bool = False):
        super().__init__(task)
        if not 0 <= label_smoothing < 1:
            raise SystemExit(f"--label-smoothing {label_smoothing} is not allowed: it must be at least 0 and below 1")
        self.sentence_avg, self.label_smoothing, self.top10 = sentence_avg, label_smoothing, top10

    def fits(self, layer: OutputLayer) -> bool:
        """Whether the criterion is the loss of this layer."""
        raise NotImplementedError

    def extra_loss(self, layer: OutputLayer, output: Dict[str, Tensor], kept: Tensor) -> Tuple[Tensor, Dict]:
        """A loss (B, T) to add, or None, and more sums over tokens to log."""
        return None, {}

    def forward(self, model, sample, reduce=True):
        """Loss in nats (a scalar, or a token each for ``reduce=False``), sample size and logging output."""
        layer = getattr(model, "output_layer_module", None)
        if layer is None or not self.fits(layer):
            found = f"{type(layer).__name__} as output layer" if layer is not None else "fairseq's own output layer"
            raise SystemExit(
                f"fairseq_kernels: error: --criterion {self.registered_name} doesn't fit this model, which has "
                f"{found}: {self.needs}"
            )
        target = sample["target"]
        ranked = self.top10 and not model.training
        request = LossRequest(target, self.padding_idx, self.label_smoothing, "sum" if reduce else "none", ranked)
        output = model(**sample["net_input"], loss_request=request)
        loss, kept = output["loss"], target.ne(self.padding_idx)
        extra, sums = self.extra_loss(layer, output, kept)
        if extra is not None:
            loss = loss + (extra.sum() if reduce else extra)
        if ranked:
            sums["top10_errors"] = ((output["ranks"] >= TOP) & kept).sum()
        sample_size = target.size(0) if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": loss.data,
            "nll_loss": output["nll_loss"].data,
            "ntokens": sample["ntokens"],
            "nsentences": target.size(0),
            "sample_size": sample_size,
            **{name: value.data for name, value in sums.items()},
        }
        return (loss if reduce else loss.view(-1)), sample_size, logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """Loss and perplexity as fairseq's criterions (base 2), and top10_error."""
        ntokens, sample_size = total(logging_outputs, "ntokens"), total(logging_outputs, "sample_size")
        metrics.log_scalar("loss", total(logging_outputs, "loss") / sample_size / math.log(2), sample_size, round=3)
        nll = total(logging_outputs, "nll_loss") / ntokens / math.log(2)
        metrics.log_scalar("nll_loss", nll, ntokens, round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        if any("top10_errors" in log for log in logging_outputs):
            metrics.log_scalar("top10_error", total(logging_outputs, "top10_errors") / ntokens, ntokens, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """All values are sums over tokens."""
        return True


def total(logging_outputs, key: str):
    """A logged value's sum over batches and processes."""
    return sum(log.get(key, 0) for log in logging_outputs)
