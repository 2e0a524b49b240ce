#!/usr/bin/env python
"""How near the generalized softmax is to the machine's limit: its step against its bare matrix products, turn by turn.

    python scripts/benchmark_limit.py                                lin, nine lin, all nine kernels
    python scripts/benchmark_limit.py --only lin log --tokens 2048 --words 30000 --dim 512 --threads 1

Exact softmax needs three products a component: the scores, dL/dW and dL/dh. They are done here on blocks of the layer's
own size, by the faster of torch's way and oneDNN's, without anything between them; mog counts as two components, since
its two Gaussians a word meet two a context in half the coordinates. A ratio of 1 is the limit of exact arithmetic.
"""

import argparse
import statistics
import time
from typing import Callable, Dict, List

import benchmarks
import torch

from fairseq_kernels import GeneralizedSoftmax
from fairseq_kernels.errors import positive_int
from fairseq_kernels.fused.matrix_products import word_blocks
from fairseq_kernels.kernels import PAPER_KERNELS
from fairseq_kernels.kernels.spec import parse_kernels

ROWS = {"lin": "lin", "9xlin": "9xlin", "nine kernels": ",".join(PAPER_KERNELS)}
CHUNK = 384  # rows of a product, as the layer has them


def layer_step(kernels: str, tokens: int, words: int, dim: int) -> Callable[[], None]:
    """Loss and all gradients, without bias."""
    layer = GeneralizedSoftmax(dim, words, kernels, bias=False)
    features, target = torch.randn(tokens, dim, requires_grad=True), torch.randint(words, (tokens,))

    def step():
        layer.nll(features, target).backward()
        features.grad = None
        layer.zero_grad(set_to_none=True)

    return step


def product_step(components: int, tokens: int, words: int, dim: int, onednn: bool) -> Callable[[], None]:
    """The three products of each component."""
    matrix, grad_matrix = torch.randn(words, dim), torch.zeros(words, dim)
    rows, scores = torch.randn(CHUNK, dim), torch.randn(CHUNK, words)

    def multiply(left, right):  # oneDNN's
        return torch.ops.mkldnn._linear_pointwise(left.contiguous(), right.T.contiguous(), None, "none", [], "")

    def step():
        for start in range(0, components * tokens, CHUNK):
            some = rows[: min(CHUNK, components * tokens - start)]
            for block in word_blocks(words, CHUNK, matrix.device):
                if onednn:
                    multiply(some, matrix[block].T)
                else:
                    torch.mm(some, matrix[block].T, out=scores[: len(some), block])
            if not onednn:
                grad_matrix.addmm_(scores[: len(some)].T, some)
                scores[: len(some)] @ matrix
                continue
            for block in word_blocks(words, CHUNK, matrix.device):
                multiply(scores[: len(some), block].T, some)
                multiply(scores[: len(some), block], matrix[block])

    return step


def seconds(steps: List[Callable[[], None]], rounds: int) -> List[float]:
    """The median of each step's seconds, the steps taken in turn after one to warm up."""
    taken: List[List[float]] = [[] for _ in steps]
    for round_ in range(rounds + 1):
        for step, times in zip(steps, taken):
            start = time.perf_counter()
            step()
            if round_:
                times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in taken]


def measure(name: str, kernels: str, args: argparse.Namespace) -> Dict:
    """The row of one mixture."""
    sizes = args.tokens, args.words, args.dim
    components = sum(2 if kernel == "mog" else 1 for kernel in parse_kernels(kernels))
    ways = {"torch": False}
    if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        ways["oneDNN"] = True
    steps = [product_step(components, *sizes, onednn) for onednn in ways.values()]
    step, *products = seconds([layer_step(kernels, *sizes), *steps], args.rounds)
    bare = min(products)
    way = list(ways)[products.index(bare)]
    row = {"name": name, "kernels": kernels, "seconds": step, "products": bare, "by": way, "ratio": step / bare}
    print(f"{name:14} {step:8.3f} s, its products {bare:8.3f} s (by {way}), ratio {step / bare:.3f}", flush=True)
    return row


def main() -> None:
    parser = benchmarks.options(__doc__)
    parser.add_argument("--only", nargs="+", metavar="KERNELS", help="these mixtures")
    for name, default in (("tokens", 1024), ("words", 30_000), ("dim", 512)):
        parser.add_argument(f"--{name}", type=positive_int, default=default, help=f"default: {default}")
    args = parser.parse_args()
    if args.out:
        benchmarks.check(args.out)
    torch.set_num_threads(args.threads or torch.get_num_threads())
    torch.manual_seed(1)
    try:
        mixtures = {name: name for name in args.only} if args.only else ROWS
        rows = [measure(name, kernels, args) for name, kernels in mixtures.items()]
    except ValueError as error:
        parser.error(str(error))
    if args.out:
        sizes = {"tokens": args.tokens, "words": args.words, "dim": args.dim}
        benchmarks.keep(args.out, args.threads, **sizes, rows=rows)


if __name__ == "__main__":
    main()
