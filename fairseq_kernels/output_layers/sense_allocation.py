"""Dynamic sense allocation (Miao et al. 2019, section 4.2 and Algorithm 1): senses move to where they are missed."""

import functools
import logging
import weakref
from dataclasses import dataclass
from typing import List, Optional, Tuple

import torch
from torch import Tensor, distributed, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..kernels.base import at_least_float32
from .base import check_integer, several_processes

logger = logging.getLogger(__name__)

OBSERVED = ("log_probability", "occurrences", "usage")  # of words, words and senses


@dataclass(frozen=True)
class AllocationSettings:
    """When senses move, and how many.

    Args:
        every: updates between two reallocations.
        rate: beta of the moving averages (Eq. 12, 13).
        minimum: senses that a word keeps.
        maximum: the most senses of a word.
        share: the most senses that move at a time, as a part of V; one at least.
        frequent: only this part of the vocabulary, its most frequent words, receives senses.
        noise: a moved sense starts as its new word's most used sense plus Gaussian noise, of this many times the
            standard deviation of that sense's coordinates.
    """

    every: int = 500
    rate: float = 0.01
    minimum: int = 1
    maximum: int = 4
    share: float = 0.005
    frequent: float = 0.5
    noise: float = 0.1

    def __post_init__(self):
        check_integer("every", self.every)
        check_integer("minimum", self.minimum)
        check_integer("maximum", self.maximum, self.minimum)
        for name in ("rate", "share", "frequent"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name):g} is not allowed: it must be above 0 and at most 1")


class SenseAllocation(nn.Module):
    """Statistics of words and senses, and the moves that follow from them.

    Moving averages, each updated only where the target is the word: log p(y) of a word (Eq. 12), and of a sense its
    part in its word, p(s | y). Eq. 13 has p(s), which is at most p(y), so that the words predicted worst would seem
    to use their senses least. Sums are over all processes of a distributed training.

    Args:
        settings: when and how many.
        words: V.
        senses: S.
    """

    log_probability: Tensor
    occurrences: Tensor
    usage: Tensor
    updates: Tensor
    moves: Tensor

    def __init__(self, settings: AllocationSettings, words: int, senses: int):
        super().__init__()
        self.settings = settings
        for name, size in zip(OBSERVED, (words, words, senses)):
            self.register_buffer(name, torch.zeros(size))
            self.register_buffer(f"pending_{name}", torch.zeros(size))  # since the last update
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))
        self.register_buffer("moves", torch.zeros((), dtype=torch.long))
        self.moved: Optional[Tensor] = None  # before this update: the optimizers' moments are of their former words

    def _apply(self, function, recurse=True):
        """Counts keep their digits under ``.half()``."""
        return super()._apply(at_least_float32(function), recurse)

    def _load_from_state_dict(self, *args):
        super()._load_from_state_dict(*args)
        if distributed.is_available() and distributed.is_initialized() and distributed.get_rank():
            for name in OBSERVED:  # the checkpoint has the first process's, which count once
                getattr(self, f"pending_{name}").zero_()

    def observe(self, loss: Tensor, target: Tensor, senses: Tensor, nll: Tensor, shares: Tensor) -> None:
        """Counts a batch, in its backward: the targets (N,), their senses (N, M), and p(s | y) of these (N, M).

        fairseq's dummy batches, whose gradient is 0, don't count, nor do batches with an infinite or NaN loss, which
        ``--amp`` skips.
        """

        def count(grad: Tensor) -> None:
            hook.remove()  # a second backward counts nothing
            counts, dtype = (grad != 0).any() & nll.isfinite().all(), self.usage.dtype
            for name, indices, values in (
                ("log_probability", target, -nll),
                ("occurrences", target, torch.ones_like(nll)),
                ("usage", senses.flatten(), shares.flatten()),
            ):
                values = torch.where(counts, values, 0.0).to(dtype)
                getattr(self, f"pending_{name}").index_add_(0, indices, values)

        hook = loss.register_hook(count)

    def update(self, layer, num_updates: int) -> None:
        """Called before every batch: at the first one of an update takes in the last update's sums; then may move."""
        if layer.weight.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                "senses can't move while the parameters are in half precision: float32 copies overwrite moved senses; "
                "train with --amp instead of --fp16, or with --kerbs-reallocate-every 0"
            )
        last = int(self.updates)
        self.updates.fill_(num_updates)
        if num_updates <= last:  # a further batch of the update, or a training that starts anew
            return
        self.moved = None
        self.fold(layer.sense_word)
        if num_updates % self.settings.every == 0:
            self.reallocate(layer, num_updates)

    def fold(self, sense_word: Tensor) -> None:
        """Takes the pending sums into the moving averages (Eq. 12, 13)."""
        own = [getattr(self, f"pending_{name}") for name in OBSERVED]
        pending = own
        if several_processes():
            together = torch.cat(own)
            distributed.all_reduce(together)
            pending = together.split([len(part) for part in own])
        log_probability, occurrences, usage = pending
        # n updates by 1 - beta each; a word seen for the first time starts at its mean
        decay = torch.where(self.occurrences > 0, (1 - self.settings.rate) ** occurrences, (occurrences == 0).float())
        times = occurrences.clamp_min(1)
        self.log_probability.mul_(decay).add_((1 - decay) * log_probability / times)
        decay, times = decay[sense_word], times[sense_word]
        self.usage.mul_(decay).add_((1 - decay) * usage / times)
        self.occurrences.add_(occurrences)
        for part in own:
            part.zero_()

    @torch.no_grad()
    def reallocate(self, layer, num_updates: int) -> List[Tuple[int, int, int]]:
        """Moves the least used senses to the worst predicted words: (sense, from, to) of each."""
        moves = self.choose(layer.sense_word)
        generator = torch.Generator().manual_seed(num_updates)  # the same noise in every process
        for sense, _, word in moves:
            own = (layer.sense_word == word).nonzero().squeeze(1)
            model = own[self.usage[own].argmax()]
            vector = layer.weight[model]
            noise = torch.randn(vector.shape, generator=generator, device="cpu").to(vector)
            layer.weight[sense] = vector + self.settings.noise * vector.std(unbiased=len(vector) > 1) * noise
            if layer.theta is not None:
                layer.theta[sense] = layer.theta[model]
            layer.sense_word[sense] = word
            self.usage[sense] = 1 / (len(own) + 1)  # it has a chance before it is moved again
        if moves:
            self.moved = torch.tensor([sense for sense, _, _ in moves], device=layer.weight.device)
            self.moves += len(moves)
            shown = ", ".join(f"{sense}: {old} -> {new}" for sense, old, new in moves[:8])
            logger.info("update %d: moved %d senses (%s%s)", num_updates, len(moves), shown, ", ..." * (len(moves) > 8))
        return moves

    def choose(self, sense_word: Tensor) -> List[Tuple[int, int, int]]:
        """(sense, from, to) of the senses to move now."""
        settings, words = self.settings, len(self.occurrences)
        counts = torch.bincount(sense_word, minlength=words).tolist()
        number = max(1, int(settings.share * words))
        frequent = torch.argsort(self.occurrences, descending=True, stable=True)
        frequent = frequent[: max(1, int(settings.frequent * words))]
        frequent = frequent[self.occurrences[frequent] > 0]
        worst = frequent[torch.argsort(self.log_probability[frequent], stable=True)].tolist()
        worst = [word for word in worst if counts[word] < settings.maximum][:number]
        homes, missed = sense_word.tolist(), set(worst)
        by_use = torch.argsort(self.usage, stable=True).tolist()
        idle = (s for s in by_use if homes[s] not in missed and counts[homes[s]] > settings.minimum)
        moves = []
        for word, sense in zip(worst, idle):  # which looks at the counts as they are now
            counts[homes[sense]] -= 1
            moves.append((sense, homes[sense], word))
        return moves

    def clear_moments(self, layer, optimizer: torch.optim.Optimizer) -> None:
        """Zeroes the optimizer's moments of the moved senses."""
        for parameter in (layer.weight, layer.theta) if self.moved is not None else ():
            for value in optimizer.state.get(parameter, {}).values():
                if torch.is_tensor(value) and value.shape == parameter.shape:
                    value[self.moved] = 0


_layers: weakref.WeakSet = weakref.WeakSet()


def clear_moments_of(layer) -> None:
    """Has the moments of the layer's moved senses cleared before the next step of its optimizer."""
    _layers.add(layer)
    watch_optimizers()


@functools.cache
def watch_optimizers() -> None:
    """Registers torch's hook for the step of every optimizer, once: models and criterions don't get to see theirs."""

    def before_step(optimizer, args, kwargs):
        for layer in _layers:
            layer.allocation.clear_moments(layer, optimizer)

    register_optimizer_step_pre_hook(before_step)
