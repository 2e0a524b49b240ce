"""The words' probabilities, counted in the targets of a training: what an output layer's bias starts from."""

from typing import Iterable, Union

import torch
from torch import Tensor


def word_prior(targets: Union[Tensor, Iterable[Tensor]], vocab_size: int, smoothing: float = 1.0) -> Tensor:
    """The share of each word among the targets: (V,), float64, with the sum 1.

    ``layer.set_prior(word_prior(targets, V))`` starts an output layer's bias from it.

    Args:
        targets: word indices of any shape, or an iterable of such tensors, as a loader's batches. Negative ones, such
            as the -100 of ignored tokens, don't count.
        vocab_size: V.
        smoothing: added to each word's count, so that words never seen have a probability, too.

    Raises:
        ValueError: an index of V or more, a batch that is no word indices, or no targets.
    """
    counts, one = torch.zeros(vocab_size, dtype=torch.float64), torch.ones((), dtype=torch.float64)
    for batch in [targets] if isinstance(targets, Tensor) else targets:
        try:
            words = torch.as_tensor(batch).flatten()
        except (TypeError, ValueError, RuntimeError):  # a loader's pair or dict
            words = torch.empty(0)
        if words.is_floating_point() or words.dtype == torch.bool:
            given = f"a batch ({type(batch).__name__}) is not word indices"
            raise ValueError(f"{given}; give the targets alone: (target for _, target in loader)")
        words = words[words >= 0]
        if len(words) and words.max() >= vocab_size:
            raise ValueError(f"target {int(words.max())} is not one of the {vocab_size} words")
        counts.scatter_add_(0, words.cpu().long(), one.expand(len(words)))  # bincount makes V numbers a batch
    if not counts.any():
        raise ValueError("there are no targets to count")
    counts += smoothing
    return counts / counts.sum()
