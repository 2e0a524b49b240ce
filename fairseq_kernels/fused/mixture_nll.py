"""From the scores of a chunk to its losses, and back.

Notation: p_k(v) = softmax_v (S_k(v) + beta_v); p(v) = sum_k pi_k p_k(v); y the target; t_v its (smoothed) distribution.
"""

import functools
import logging
import os
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils._pytree import tree_leaves

logger = logging.getLogger(__name__)


class Scores(NamedTuple):
    """One component's scores, without the words' biases.

    Args:
        values: S_k (n, V).
        free: whether the loss may overwrite them (the buffer rule).
        token_factor: a list, where the scores are a product as it is: the factor (n, 1) of its gradient is left in it
            instead of being multiplied (see ``word_product.WordProduct``).
    """

    values: Tensor
    free: bool
    token_factor: Optional[List[Tensor]] = None


class Smoothing(NamedTuple):
    """t_v = ``everywhere`` for every word, and ``on_target`` on top of it for y: fairseq's label smoothing."""

    everywhere: float
    on_target: float

    @classmethod
    def over(cls, words: int, epsilon: float) -> "Smoothing":
        """1 - epsilon on the target, epsilon / (V - 1) on each other word."""
        if words == 1:  # no other word to give a share to
            return cls(0.0, 1.0)
        everywhere = epsilon / (words - 1)
        return cls(everywhere, 1 - epsilon - everywhere)


class ZLoss(NamedTuple):
    """factor sum_k pi_k (log Z_k)^2 of each token (PaLM, Chowdhery et al. 2022); dlog Z_k/dS_k(v) = p_k(v)."""

    loss: Tensor  # (n,)
    slope: Tensor  # dL/dlog Z_k (n, K)
    grad_log_pi: Tensor  # (n, K)

    @classmethod
    def of(cls, factor: float, log_partition: Tensor, pi: Union[float, Tensor] = 1.0) -> "ZLoss":
        """``log_partition`` and ``pi`` are (n, K)."""
        weighted = log_partition * pi * factor
        parts = weighted * log_partition
        return cls(parts.sum(1), 2 * weighted, parts)


class Losses(NamedTuple):
    """The losses of n tokens, with the gradients of their scores.

    Args:
        loss: -sum_v t_v log p(v), and the z-loss, (n,).
        nll: -log p(y), (n,).
        log_partition: log sum_v exp(S_k(v) + beta_v) of each component, (n, K).
        correct: whether the target is the most probable word, (n,); None for a mixture, where that is not free.
        grad_scores: dL/dS_k, (n, V) each, to be multiplied by its factor.
        factors: (n, 1) each, or None for 1.
        grad_log_pi: dL/dlog pi, (n, K), or None.
    """

    loss: Tensor
    nll: Tensor
    log_partition: Tensor
    correct: Optional[Tensor]
    grad_scores: List[Tensor]
    factors: List[Optional[Tensor]]
    grad_log_pi: Optional[Tensor]


class MixtureNLL(Function):
    """The loss of each token from log pi (n, K), the words' biases and K scores (n, V).

    The gradients of the scores are computed in forward, in the place of the scores where these are free; backward
    multiplies them by the incoming gradient. dL/dbias is added to ``grad_bias`` in place.

    Args:
        terms: epsilon of the label smoothing, factor of the z-loss.
        metrics: a dict, which receives ``nll`` (n,), ``log_partition`` (n, K) and for K = 1 ``correct`` (n,).
    """

    @staticmethod
    def forward(ctx, log_pi, bias, grad_bias, target, terms, metrics: Dict[str, Tensor], scores, *values):
        # `values` are the scores' tensors, for autograd to see
        with_gradients = any(ctx.needs_input_grad)
        losses = mixture_losses(log_pi, bias, target, *terms, with_gradients, [(s.values, s.free) for s in scores])
        metrics.update(nll=losses.nll.detach(), log_partition=losses.log_partition)
        if losses.correct is not None:
            metrics["correct"] = losses.correct
        # without the loss, which would form a reference cycle with ctx
        ctx.grad_scores, ctx.factors, ctx.grad_log_pi = losses.grad_scores, losses.factors, losses.grad_log_pi
        ctx.grad_bias, ctx.token_factors = grad_bias, [s.token_factor for s in scores]
        return losses.loss

    @staticmethod
    def backward(ctx, grad_loss):
        grad_log_pi, token = ctx.grad_log_pi, grad_loss.unsqueeze(1)
        if token.device.type == "cpu" and (token == 1).all():  # a look that is worth it there
            token = None
        for grad, factor, token_factor in zip(ctx.grad_scores, ctx.factors, ctx.token_factors):
            factor = token if factor is None else factor if token is None else factor * token
            if ctx.grad_bias is not None:
                ctx.grad_bias.addmv_(grad.T, grad.new_ones(len(grad)) if factor is None else factor.squeeze(1))
            if token_factor is not None:
                token_factor[:] = [] if factor is None else [factor]
            elif factor is not None:
                grad.mul_(factor)
        if grad_log_pi is not None and token is not None:
            grad_log_pi = grad_log_pi * token
        return grad_log_pi, None, None, None, None, None, None, *ctx.grad_scores


def compiled_on_cuda(function: Callable) -> Callable:
    """``function``, compiled by ``torch.compile`` at its first call with CUDA tensors: one pass over memory there. On
    the CPU, whose caches do as much, and with ``FAIRSEQ_KERNELS_FUSE=0`` it stays eager.

    Where compilation fails (no Triton, an unsupported device) it says so once and stays eager: slower, not wrong.
    """
    compiled = None

    @functools.wraps(function)
    def call(*args):
        nonlocal compiled
        if not any(torch.is_tensor(leaf) and leaf.is_cuda for leaf in tree_leaves(args)):
            return function(*args)
        if compiled is None:
            off = os.environ.get("FAIRSEQ_KERNELS_FUSE", "1") == "0"
            # chunks differ in size: shapes are variables of one kernel, not constants of many
            compiled = function if off else torch.compile(function, dynamic=True)
        try:
            return compiled(*args)
        except torch._dynamo.exc.TorchDynamoException as error:  # raised before anything has run
            compiled, reason = function, str(error).strip().splitlines()[0]
            logger.warning("%s runs without torch.compile, slower: %s", function.__name__, reason)
            return function(*args)

    return call


@compiled_on_cuda
def mixture_losses(
    log_pi: Optional[Tensor],
    bias: Optional[Tensor],
    target: Tensor,
    epsilon: float,
    z_factor: float,
    with_gradients: bool,
    scores: Sequence[Tuple[Tensor, bool]],
) -> Losses:
    """Losses and gradients, by the cheapest exact way. ``scores``: each with whether it may be overwritten."""
    if bias is not None:
        scores = [(score.add_(bias) if free else score + bias, True) for score, free in scores]
    smoothing = Smoothing.over(scores[0][0].size(1), epsilon)
    if log_pi is None:
        return single_losses(scores, target, smoothing, z_factor, with_gradients)
    if epsilon:
        return smoothed_mixture_losses(scores, log_pi, target, smoothing, z_factor, with_gradients)
    return unsmoothed_mixture_losses(scores, log_pi, target, z_factor, with_gradients)


def single_losses(scores, target: Tensor, smoothing: Smoothing, z_factor: float, with_gradients: bool) -> Losses:
    """K = 1: d(-sum t log p)/dS(v) = p(v) - t_v."""
    [(score, free)] = scores
    word = target.unsqueeze(1)
    at_target = score.gather(1, word).squeeze(1)
    total = score.sum(1) if smoothing.everywhere else None
    peak = score.amax(1)
    if with_gradients:
        probability, log_sum = softmax(score, free)
    else:
        log_sum = log_sum_exp(score, free, peak)
    below = peak - at_target  # at first, as a logarithm added to a large score would lose its digits
    nll = loss = log_sum + below
    if total is not None:
        loss = log_sum + smoothing.on_target * below + smoothing.everywhere * (score.size(1) * peak - total)
    grad_scores, log_partition = [], (peak + log_sum).unsqueeze(1)
    z = ZLoss.of(z_factor, log_partition)
    if with_gradients:
        if z_factor:
            probability *= 1 + z.slope
        if smoothing.everywhere:
            probability -= smoothing.everywhere
        add_at(probability, word, -smoothing.on_target)
        grad_scores.append(probability)
    return Losses(loss + z.loss, nll, log_partition, at_target >= peak, grad_scores, [None], None)


def unsmoothed_mixture_losses(scores, log_pi: Tensor, target: Tensor, z_factor: float, with_gradients: bool) -> Losses:
    """K > 1 needs one number a token and component, the partition: log p(y) = logsumexp_k(log pi_k + log p_k(y)),
    and with r_k = pi_k p_k(y) / p(y): dL/dS_k(v) = r_k (p_k(v) - [v = y]), dL/dlog pi_k = -r_k."""
    word = target.unsqueeze(1)
    grad_scores, log_probabilities, log_partitions = [], [], []
    for score, free in scores:
        peak = score.amax(1)
        below = peak - score.gather(1, word).squeeze(1)
        if with_gradients:
            probability, log_sum = softmax(score, free)
            add_at(probability, word, -1.0)
            grad_scores.append(probability)
        else:
            log_sum = log_sum_exp(score, free, peak)
        log_probabilities.append(-(log_sum + below))
        log_partitions.append(peak + log_sum)
    joint = log_pi + torch.stack(log_probabilities, dim=1)
    nll = -joint.logsumexp(1)
    responsibility = (joint + nll.unsqueeze(1)).exp()
    factors: List[Optional[Tensor]] = list(responsibility.split(1, dim=1))
    log_partition = torch.stack(log_partitions, dim=1)
    z = ZLoss.of(z_factor, log_partition, log_pi.exp())
    if z_factor:
        for k, grad in enumerate(grad_scores):  # r (p - [v = y]) + slope p
            slope = z.slope[:, k : k + 1]
            grad.mul_(responsibility[:, k : k + 1] + slope).scatter_add_(1, word, slope)
            factors[k] = None
    return Losses(nll + z.loss, nll, log_partition, None, grad_scores, factors, z.grad_log_pi - responsibility)


def smoothed_mixture_losses(
    scores, log_pi: Tensor, target: Tensor, smoothing: Smoothing, z_factor: float, with_gradients: bool
) -> Losses:
    """With label smoothing every word has responsibilities of its own, R_k(v) = pi_k p_k(v) / p(v):
    dL/dS_k(v) = p_k(v) c_k - t_v R_k(v) and dL/dlog pi_k = -c_k with c_k = sum_u t_u R_k(u)."""
    word = target.unsqueeze(1)
    joint, log_partitions = [], []  # log pi_k p_k(v), in the log domain: every word counts, however improbable
    for k, (score, free) in enumerate(scores):
        log_partitions.append(score.logsumexp(1, keepdim=True))
        shift = log_pi[:, k : k + 1] - log_partitions[-1]
        joint.append(score.add_(shift) if free else score + shift)
    total = joint[0].clone()
    for term in joint[1:]:
        torch.logaddexp(total, term, out=total)
    nll = -total.gather(1, word).squeeze(1)
    log_partition = torch.cat(log_partitions, 1)
    z = ZLoss.of(z_factor, log_partition, log_pi.exp())
    loss = smoothing.on_target * nll - smoothing.everywhere * total.sum(1) + z.loss
    grad_scores, shares = [], []
    for k, term in enumerate(joint if with_gradients else ()):
        weighted = (term - total).exp_()  # R_k(v)
        at_target = weighted.gather(1, word)
        weighted *= smoothing.everywhere
        weighted.scatter_add_(1, word, at_target * smoothing.on_target)
        shares.append(weighted.sum(1, keepdim=True))
        probability = term.sub_(log_pi[:, k : k + 1]).exp_()
        grad_scores.append(probability.mul_(shares[-1] + z.slope[:, k : k + 1]).sub_(weighted))
    grad_log_pi = z.grad_log_pi - torch.cat(shares, dim=1) if with_gradients else None
    return Losses(loss, nll, log_partition, None, grad_scores, [None] * len(joint), grad_log_pi)


def softmax(score: Tensor, free: bool) -> Tuple[Tensor, Tensor]:
    """Probabilities (n, V), over the scores where they are free, and log sum_v exp(S(v) - max S), (n,)."""
    # torch's CPU softmax finishes reading a row before it writes it, so that it can work in place
    in_place = free and score.device.type == "cpu"
    probability = torch.softmax(score, 1, out=score) if in_place else torch.softmax(score, 1)
    return probability, -probability.amax(1).log()  # the maximum's probability is the sum's inverse


def log_sum_exp(score: Tensor, free: bool, peak: Tensor) -> Tensor:
    """log sum_v exp(S(v) - max S), (n,), given the maxima (n,)."""
    shifted = score.sub_(peak.unsqueeze(1)) if free else score - peak.unsqueeze(1)
    return shifted.exp_().sum(1).log()


def add_at(values: Tensor, column: Tensor, amount: float) -> None:
    """Adds to one column (n, 1) of each row."""
    values.scatter_add_(1, column, values.new_full(column.shape, amount))
