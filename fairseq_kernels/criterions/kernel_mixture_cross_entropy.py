"""Cross-entropy of a kernel mixture, with the regularisation of its weights (Gao et al. 2019, Eq. 14)."""

import math
from dataclasses import dataclass, field

from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II

from ..models.kernel_model import LossRequest
from ..output_layers import GeneralizedSoftmax


@dataclass
class KernelMixtureCrossEntropyConfig(FairseqDataclass):
    label_smoothing: float = field(default=0.0, metadata={"help": "epsilon for label smoothing, 0 means none"})
    pi_variance_weight: float = field(
        default=0.0, metadata={"help": "rho of Eq. 14: weight of the mixture weights' variance; no effect for K = 1"}
    )
    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("kernel_mixture_cross_entropy", dataclass=KernelMixtureCrossEntropyConfig)
class KernelMixtureCrossEntropy(FairseqCriterion):
    """L = sum_n [-log p(y_n) + rho Var_k(pi_{n,k})] (Eq. 14; the trainer divides by the number of tokens).

    Var is the population variance over one token's K weights. The loss comes from the model's forward, where the
    output layer computes it without a tensor of N x V.
    """

    def __init__(self, task, sentence_avg, label_smoothing, pi_variance_weight):
        super().__init__(task)
        if not 0 <= label_smoothing < 1:
            raise SystemExit(f"--label-smoothing {label_smoothing} is not allowed: it must be at least 0 and below 1")
        if not 0 <= pi_variance_weight < math.inf:
            raise SystemExit(f"--pi-variance-weight {pi_variance_weight} is not allowed: it must be 0 or more")
        self.sentence_avg = sentence_avg
        self.label_smoothing = label_smoothing
        self.pi_variance_weight = pi_variance_weight

    def forward(self, model, sample, reduce=True):
        """Loss in nats (a scalar, or a token each for ``reduce=False``), sample size and logging output."""
        layer = getattr(model, "output_layer_module", None)
        if not isinstance(layer, GeneralizedSoftmax):
            raise SystemExit(
                "--criterion kernel_mixture_cross_entropy doesn't fit this model: it needs a kernel mixture as output "
                "layer, as --arch kernel_lstm_lm, kernel_transformer_lm and kernel_transformer have; for other models "
                "choose --criterion cross_entropy"
            )
        target = sample["target"]
        request = LossRequest(target, self.padding_idx, self.label_smoothing, "sum" if reduce else "none")
        output = model(**sample["net_input"], loss_request=request)
        loss, nll, weights = output["loss"], output["nll_loss"], output["mixture_weights"]
        sample_size = target.size(0) if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": loss.data,
            "nll_loss": nll.data,
            "ntokens": sample["ntokens"],
            "nsentences": target.size(0),
            "sample_size": sample_size,
        }
        if weights.size(-1) > 1:
            kept = target.ne(self.padding_idx)
            variance = weights.var(dim=-1, unbiased=False) * kept
            if self.pi_variance_weight:
                penalty = self.pi_variance_weight * variance
                loss = loss + (penalty.sum() if reduce else penalty)
                logging_output["loss"] = loss.data
            logging_output["pi_variance"] = variance.sum().data
            for name, weight in zip(layer.component_names(), weights.unbind(-1)):
                logging_output[f"pi_{name}"] = (weight * kept).sum().data
        return (loss if reduce else loss.view(-1)), sample_size, logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """Loss and perplexity as fairseq's criterions (base 2), mean mixture weights and their variance."""

        def total(key):
            return sum(log.get(key, 0) for log in logging_outputs)

        ntokens, sample_size = total("ntokens"), total("sample_size")
        metrics.log_scalar("loss", total("loss") / sample_size / math.log(2), sample_size, round=3)
        metrics.log_scalar("nll_loss", total("nll_loss") / ntokens / math.log(2), ntokens, round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        for key in sorted({key for log in logging_outputs for key in log if key.startswith("pi_")}):
            metrics.log_scalar(key, total(key) / ntokens, ntokens, round=4)
            if key == "pi_variance":
                # Table 2's "Variance" fits percentage points squared
                metrics.log_scalar("pi_variance_pp2", 1e4 * total(key) / ntokens, ntokens, round=2)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """All values are sums over tokens."""
        return True
