"""Matrix products with the words' vectors, a block of words at a time.

float32 on AMD processors with AVX-512 goes through oneDNN: MKL, which torch would use, leaves half of them idle
(README, Speed and memory). ``FAIRSEQ_KERNELS_ONEDNN=0`` turns that off, ``1`` on wherever torch has oneDNN.
"""

import functools
import os
from pathlib import Path
from typing import Iterator, Optional

import torch
from torch import Tensor

from .chunked_loss import chunks

WORDS = 512  # at least, a product on the CPU
SCORES = 2**17  # a product and thread on the CPU, so that they stay in its cache


def word_blocks(words: int, rows: int, device: torch.device) -> Iterator[slice]:
    """Words whose vectors and scores, ``rows`` each, stay in the cache; elsewhere than on the CPU, all."""
    on_cpu = max(WORDS, SCORES * torch.get_num_threads() // max(rows, 1))
    return chunks(words, on_cpu if device.type == "cpu" else words)


@functools.cache
def onednn_is_faster() -> bool:
    """Whether float32 products go through oneDNN: by the processor, so that the same one always rounds alike."""
    wanted = os.environ.get("FAIRSEQ_KERNELS_ONEDNN")
    if wanted == "0" or not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    information = Path("/proc/cpuinfo")
    is_amd = information.is_file() and "AuthenticAMD" in information.read_text()
    return wanted == "1" or is_amd and torch.backends.cpu.get_cpu_capability() == "AVX512"


def by_onednn(left: Tensor) -> bool:
    return left.device.type == "cpu" and left.dtype == torch.float32 and onednn_is_faster()


def multiply(left: Tensor, right: Tensor, out: Optional[Tensor] = None) -> Tensor:
    """``left @ right``, (n, k) with (k, m), into ``out`` if given; without autograd where :func:`by_onednn`."""
    if not by_onednn(left):
        return torch.mm(left, right, out=out)
    weight = right.T
    if not (weight.is_contiguous() or right.is_contiguous()):  # oneDNN is a hundred times slower on rows with gaps
        weight = weight.contiguous() if weight.stride(1) == 1 else right.contiguous().T
    product = torch.ops.mkldnn._linear_pointwise(left.contiguous(), weight, None, "none", [], "")
    return product if out is None else out.copy_(product)


def scores_of(vectors: Tensor, words: Tensor, out: Tensor) -> None:
    """``out = vectors @ words.T``: (n, m) with (V, m) to (n, V)."""
    for block in word_blocks(len(words), len(vectors), words.device):
        multiply(vectors, words[block].T, out=out[:, block])


def pull_back_scores(of_scores: Tensor, vectors: Tensor, words: Tensor, of_words: Tensor) -> Tensor:
    """Adds ``of_scores.T @ vectors`` to ``of_words`` (V, m), and returns ``of_scores @ words``, (n, m)."""
    if not by_onednn(vectors):
        of_words.addmm_(of_scores.T, vectors)
        return of_scores @ words
    of_vectors, few = torch.zeros_like(vectors), len(vectors) <= vectors.size(1)
    columns = None if few else vectors.T.contiguous()
    for block in word_blocks(len(words), len(vectors), words.device):
        of_block = of_scores[:, block].contiguous()
        # of the scores' and the words' gradient the smaller one is turned round
        of_words[block].add_(multiply(of_block.T, vectors) if few else multiply(columns, of_block).T)
        of_vectors.add_(multiply(of_block, words[block]))
    return of_vectors
