"""Matrix products with the words' vectors.

float32 on AMD processors with AVX-512 goes through oneDNN, which is faster there than MKL, torch's default, and adds to
a gradient without a pass of its own. ``FAIRSEQ_KERNELS_ONEDNN=0`` turns that off, ``1`` on for other processors.

Words in half precision are multiplied in it, the products accumulated and returned in float32. torch's bfloat16
products on the CPU are rounded to bfloat16: gradients can bear that, the scores are multiplied in float32. For
float16 the other factor is multiplied by a power of two before it is rounded, and the result divided by it: a softmax's
gradient over 30,000 words, rounded to float16 unscaled, errs by 2.3 % and loses 0.6 % to zero.
"""

import contextlib
import functools
import os
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)
WORDS = 512  # the fewest words of a product on the CPU
HALF_WORDS = 4096  # of a product of gradients in half precision on the CPU
SCORES = 2**17  # of a product on the CPU, for each thread: they stay in its cache
HALF_EXPONENT = 14  # numbers below 2^15 fit float16, which ends at 65,504


def chunks(total: int, size: int) -> List[slice]:
    """Slices of at most ``size`` that cover 0 to ``total``."""
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def word_blocks(words: int, rows: int, device: torch.device) -> List[slice]:
    """Words whose vectors and scores, ``rows`` each, stay in the cache; elsewhere than on the CPU, all."""
    on_cpu = max(WORDS, SCORES * torch.get_num_threads() // max(rows, 1))
    return chunks(words, on_cpu if device.type == "cpu" else max(words, 1))


@functools.cache
def onednn_is_faster() -> bool:
    """Whether float32 products go through oneDNN: by the processor, so that the same one always rounds alike."""
    choice = os.environ.get("FAIRSEQ_KERNELS_ONEDNN")
    if choice == "0" or not (torch.backends.mkldnn.is_available() and hasattr(torch.backends.mkldnn, "matmul")):
        return False
    information = Path("/proc/cpuinfo")
    is_amd = information.is_file() and "AuthenticAMD" in information.read_text()
    if not (choice == "1" or is_amd and torch.backends.cpu.get_cpu_capability() == "AVX512"):
        return False
    fine = torch.full((64, 64), 1 + 2.0**-20, device="cpu")
    with onednn():
        return torch.equal(fine @ torch.eye(64, device="cpu"), fine)


@contextlib.contextmanager
def onednn():
    """Products of float32 go through oneDNN: torch takes it where oneDNN may round to bfloat16. It does so only on
    processors whose bfloat16 products are far faster (AMX), where :func:`onednn_is_faster` is False."""
    setting = torch.backends.mkldnn.matmul
    before, setting.fp32_precision = setting.fp32_precision, "bf16"
    try:
        yield
    finally:
        setting.fp32_precision = before


def faster_library():
    """The context of float32 products."""
    return onednn() if onednn_is_faster() else contextlib.nullcontext()


def multiply(left: Tensor, right: Tensor, out: Optional[Tensor] = None) -> Tensor:
    """``left @ right``, (n, k) with (k, m), into ``out`` if given."""
    with faster_library():
        return torch.mm(left, right, out=out)


def word_products(vectors: Tensor, words: Tensor, out: Tensor) -> None:
    """``out = vectors @ words.T``: (n, m) with (V, m) to (n, V)."""
    if words.dtype != vectors.dtype:
        low, factor = scaled_to(words.dtype, vectors)
        out.copy_(half_product(low, words.T, factor))
        return
    whole = [slice(None)]  # oneDNN makes blocks of its own
    for block in whole if onednn_is_faster() else word_blocks(len(words), len(vectors), words.device):
        multiply(vectors, words[block].T, out=out[:, block])


def backward_products(grad: Tensor, vectors: Tensor, words: Tensor, grad_words: Tensor) -> Tensor:
    """From the gradient (n, V) of ``vectors @ words.T`` those of both: adds ``grad.T @ vectors`` to ``grad_words``
    (V, m), and returns ``grad @ words``, (n, m)."""
    if words.dtype != vectors.dtype:
        low_vectors, vectors_factor = scaled_to(words.dtype, vectors)
        grad_vectors = torch.zeros_like(vectors)
        for block in chunks(len(words), len(words) if words.is_cuda else HALF_WORDS):
            low, factor = scaled_to(words.dtype, grad[:, block])
            both = None if factor is None or vectors_factor is None else factor * vectors_factor
            grad_words[block].add_(half_product(low.T, low_vectors, both))
            grad_vectors.add_(half_product(low, words[block], factor))
        return grad_vectors
    with faster_library():
        grad_words.addmm_(grad.T, vectors)
        return grad @ words


def scaled_to(dtype: torch.dtype, tensor: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
    """The tensor in half precision, times a power of two that makes the most of float16's range, and its inverse; None
    stands for 1."""
    if dtype != torch.float16 or not tensor.numel():  # bfloat16 has float32's range
        return tensor.to(dtype), None
    size = tensor.abs().amax().clamp(1e-30, 1e30)
    exponent = HALF_EXPONENT - size.log2().floor()
    return (tensor * exponent.exp2()).to(dtype), (-exponent).exp2()


@functools.cache
def bfloat16_is_faster() -> bool:
    """Whether the CPU has products of bfloat16 numbers."""
    capabilities: Dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return capabilities.get("avx512_bf16", False) or capabilities.get("amx_bf16", False)


def half_product(left: Tensor, right: Tensor, factor: Optional[Tensor]) -> Tensor:
    """``left @ right`` of half-precision numbers, accumulated and returned in float32, times a factor; the CPU rounds
    the product to bfloat16, as the inputs are."""
    if left.is_cuda:
        product = torch.mm(left, right, out_dtype=torch.float32)
    elif left.dtype == torch.bfloat16 and bfloat16_is_faster():
        product = (left @ right).float()
    else:
        product = multiply(left.float(), right.float())  # the same up to the order of summation
    return product if factor is None else product.mul_(factor)
