"""How many tokens a chunk has, and other sizes of work space: all of them are decided here."""

from typing import NamedTuple, Optional

import torch
from torch import Tensor

CPU_BYTES, CUDA_BYTES = 192 << 20, 512 << 20  # of a chunk, where a layer's memory_budget is None
CPU_ROWS = 384  # rows of scores on the CPU: fewer make poor matrix products, more fall out of the caches
CPU_TOKENS = 192  # tokens of a kernel on the CPU: with more, what is made of the scores leaves the caches
CPU_UNTIED_TOKENS = 128  # at least, with a matrix for each component, as fewer rows make its products slow
CPU_SENSE_TOKENS = 256  # tokens of KerBS on the CPU: more are no faster
WORDS_AT_A_TIME = 512  # whose terms are differentiated: the copies of their vectors stay in the cache
STATISTICS_TOKENS = 1024  # of the spherical family: beside the gradients their work space is small
FOLD_ROWS = 1 << 16  # rows of a factored matrix that are folded at a time


class WorkSpace(NamedTuple):
    """The memory that one token needs in a chunk, in numbers of the computation's precision."""

    numbers: int
    cpu_tokens: int = CPU_ROWS  # the most tokens on the CPU where nothing is said about memory


def of_mixture(words: int, buffers: int, components: int, untied: bool) -> WorkSpace:
    """A mixture's, whose kernels keep so many ``buffers`` (n, V) in all."""
    tokens = min(CPU_ROWS // components, CPU_TOKENS)
    return WorkSpace(words * buffers, max(tokens, CPU_UNTIED_TOKENS if untied else 1))


def tokens_of_a_chunk(space: WorkSpace, memory_budget: Optional[int], features: Tensor) -> int:
    """The number of tokens that fit, 1 or more."""
    dtype = torch.promote_types(features.dtype, torch.float32)
    tokens = (memory_budget or (CUDA_BYTES if features.is_cuda else CPU_BYTES)) // (space.numbers * dtype.itemsize)
    if memory_budget is None and not features.is_cuda:
        tokens = min(tokens, space.cpu_tokens)
    return max(1, tokens)
