"""From the scores of a chunk to its losses and the gradients of scores and mixture weights.

Notation: p_k(v) = softmax_v S_k(v); p(v) = sum_k pi_k p_k(v); y the target; t_v its (smoothed) distribution.
``scores`` are K tensors (n, V), each with whether it may be overwritten; the gradient of component k's scores is
returned as (n, V) and a factor a token, (n, 1) or None for 1.
"""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .fusion import fused

Scores = Sequence[Tuple[Tensor, bool]]


class Smoothing(NamedTuple):
    """t_v = ``everywhere`` for every word, and ``on_target`` on top of it for y: fairseq's label smoothing."""

    everywhere: float
    on_target: float

    @classmethod
    def over(cls, words: int, epsilon: float) -> "Smoothing":
        if words == 1:  # no other word to give a share to
            return cls(0.0, 1.0)
        everywhere = epsilon / (words - 1)
        return cls(everywhere, 1 - epsilon - everywhere)


class Weighed(NamedTuple):
    loss: Tensor  # (n,)
    nll: Tensor  # (n,) without smoothing
    scores: List[Tensor]  # dL/dS_k but for the factor, (n, V) each
    factors: List[Optional[Tensor]]
    log_pi: Optional[Tensor]  # dL/dlog pi, (n, K)


@fused
def weigh(scores: Scores, log_pi: Optional[Tensor], target: Tensor, epsilon: float, with_gradients: bool) -> Weighed:
    """Losses and gradients, by the cheapest exact way."""
    smoothing = Smoothing.over(scores[0][0].size(1), epsilon)
    if log_pi is None:
        return single(scores, target, smoothing, with_gradients)
    if epsilon:
        return smoothed_mixture(scores, log_pi, target, smoothing, with_gradients)
    return mixture(scores, log_pi, target, with_gradients)


def single(scores: Scores, target: Tensor, smoothing: Smoothing, with_gradients: bool) -> Weighed:
    """K = 1: d(-sum t log p)/dS(v) = p(v) - t_v."""
    [(score, free)] = scores
    word = target.unsqueeze(1)
    at_target = score.gather(1, word).squeeze(1)
    everywhere = score.sum(1) * smoothing.everywhere if smoothing.everywhere else 0.0
    probability, partition = softmax(score, free, with_gradients)
    nll = partition - at_target
    loss = nll if not smoothing.everywhere else partition - smoothing.on_target * at_target - everywhere
    if with_gradients:
        if smoothing.everywhere:
            probability -= smoothing.everywhere
        add_at(probability, word, -smoothing.on_target)
    return Weighed(loss, nll, [probability], [None], None)


def mixture(scores: Scores, log_pi: Tensor, target: Tensor, with_gradients: bool) -> Weighed:
    """K > 1 needs one number a token and component, the partition: log p(y) = logsumexp_k(log pi_k + log p_k(y)),
    and with r_k = pi_k p_k(y) / p(y): dL/dS_k(v) = r_k (p_k(v) - [v = y]), dL/dlog pi_k = -r_k."""
    word = target.unsqueeze(1)
    gradients, terms = [], []
    for k, (score, free) in enumerate(scores):
        at_target = score.gather(1, word).squeeze(1)
        probability, partition = softmax(score, free, with_gradients)
        terms.append(log_pi[:, k] + at_target - partition)
        if with_gradients:
            add_at(probability, word, -1.0)
            gradients.append(probability)
    joint = torch.stack(terms, dim=1)
    loss = -joint.logsumexp(1)
    responsibility = (joint + loss.unsqueeze(1)).exp() if with_gradients else None
    factors = list(responsibility.split(1, dim=1)) if with_gradients else []
    return Weighed(loss, loss, gradients, factors, -responsibility if with_gradients else None)


def smoothed_mixture(
    scores: Scores, log_pi: Tensor, target: Tensor, smoothing: Smoothing, with_gradients: bool
) -> Weighed:
    """With label smoothing every word has responsibilities of its own, R_k(v) = pi_k p_k(v) / p(v):
    dL/dS_k(v) = p_k(v) c_k - t_v R_k(v) and dL/dlog pi_k = -c_k with c_k = sum_u t_u R_k(u)."""
    word = target.unsqueeze(1)
    joint = []  # log pi_k p_k(v), in the log domain throughout: every word counts, however improbable
    for k, (score, free) in enumerate(scores):
        shift = log_pi[:, k : k + 1] - score.logsumexp(1, keepdim=True)
        joint.append(score.add_(shift) if free else score + shift)
    total = joint[0].clone()
    for term in joint[1:]:
        torch.logaddexp(total, term, out=total)
    nll = -total.gather(1, word).squeeze(1)
    loss = smoothing.on_target * nll - smoothing.everywhere * total.sum(1)
    if not with_gradients:
        return Weighed(loss, nll, [], [], None)
    gradients, to_log_pi = [], []
    for k, term in enumerate(joint):
        weighted = (term - total).exp_()  # R_k(v)
        at_target = weighted.gather(1, word)
        weighted *= smoothing.everywhere
        weighted.scatter_add_(1, word, at_target * smoothing.on_target)
        share = weighted.sum(1, keepdim=True)
        gradient = term.sub_(log_pi[:, k : k + 1]).exp_()
        gradients.append(gradient.mul_(share).sub_(weighted))
        to_log_pi.append(-share)
    return Weighed(loss, nll, gradients, [None] * len(gradients), torch.cat(to_log_pi, dim=1))


def softmax(score: Tensor, free: bool, with_gradients: bool) -> Tuple[Optional[Tensor], Tensor]:
    """Probabilities (n, V), over the scores where they are free, and log partition (n,)."""
    if not with_gradients:
        return None, score.logsumexp(1)
    peak = score.amax(1)
    # torch's CPU softmax finishes reading a row before it writes it, so that it can work in place
    in_place = free and score.device.type == "cpu"
    probability = torch.softmax(score, 1, out=score) if in_place else torch.softmax(score, 1)
    return probability, peak - probability.amax(1).log()  # the peak's probability is e^(peak - LSE)


def add_at(values: Tensor, column: Tensor, amount: float) -> None:
    """Adds to one column (n, 1) of each row."""
    values.scatter_add_(1, column, values.new_full(column.shape, amount))
