#!/usr/bin/env python
"""Time and memory of output layers, forward and backward: this package's against what else there is, in one run.

    python scripts/benchmark_output_layer.py                        docs/performance.md: every comparison, V = 30,000
    python scripts/benchmark_output_layer.py --sweep                and time and memory against K, V and N, as plots
    python scripts/benchmark_output_layer.py --only lin stock --tokens 1024 --words 50000 --dim 256

Every implementation runs in a process of its own on the same random inputs; rounds go through all of them in turn.
Seconds are those of the fastest step. Memory is the peak of the process over its level just before the steps, with
the layer built and one step done (on a GPU: of torch's allocations).
"""

from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional

import benchmarks
import torch
import torch.nn.functional as F
from torch import nn

from fairseq_kernels import FactoredSGD, GeneralizedSoftmax, SphericalSoftmax, TaylorSoftmax, factored
from fairseq_kernels.analysis.plotting import file_pyplot
from fairseq_kernels.errors import positive_int
from fairseq_kernels.kernels import PAPER_KERNELS

LEARNING_RATE = 1e-3


class Comparison(NamedTuple):
    """Two implementations at one size, and what the first should reach as parts of the second."""

    ours: str
    other: str
    tokens: int
    time: float
    memory: Optional[float]


COMPARISONS = [
    Comparison("9xlin", "mos 9", 2048, 0.60, 1 / 18),
    Comparison("nine kernels", "mos 9", 2048, 0.80, 1 / 15),
    Comparison("lin", "stock", 4096, 0.95, 1 / 6),
    Comparison("lin", "torch chunked", 4096, 1.0, 1.0),
    Comparison("taylor", "stock", 4096, 1 / 10, 1 / 12),
    Comparison("spherical", "stock", 4096, 1 / 10, 1 / 12),
    Comparison("taylor", "taylor autograd", 4096, 1 / 20, None),
    Comparison("spherical", "spherical autograd", 4096, 1 / 20, None),
    Comparison("9xlin untied", "9xlin", 2048, 1.2, None),
]
ON_CUDA = [Comparison("lin", "liger", 8192, 1.1, None), Comparison("lin", "cut cross-entropy", 8192, 1.1, None)]

SWEEPS = {
    "components": ([1, 2, 4, 8, 16], ["{}xlin", "mos {}"]),
    "words": ([10_000, 30_000, 100_000], ["lin", "stock", "torch chunked", "taylor", "factored taylor"]),
    "tokens": ([512, 2048, 8192], ["lin", "stock", "torch chunked", "taylor", "factored taylor"]),
}
FACTORED_WORDS = [10_000, 100_000, 800_000]


def build_step(implementation: str, tokens: int, words: int, dim: int, device: str, dtype: str) -> Callable[[], None]:
    """One training step of a layer: loss and all gradients, which are dropped before the next one."""
    features = torch.randn(tokens, dim, device=device, dtype=getattr(torch, dtype)).requires_grad_()
    target = torch.randint(words, (tokens,), device=device)
    if implementation.startswith("factored"):
        return factored_step(implementation, features, target, words)
    loss, parameters = maker(implementation)(implementation, words, dim)
    parameters.to(device=device, dtype=features.dtype)

    def step():
        loss(features, target).backward()
        features.grad = None
        parameters.zero_grad(set_to_none=True)

    return step


def ours(implementation: str, words: int, dim: int):
    """This package's layers, without bias as the others."""
    name, _, option = implementation.partition(" ")
    if name in ("taylor", "spherical"):
        layer = (TaylorSoftmax if name == "taylor" else SphericalSoftmax)(dim, words, bias=False)
        nn.init.normal_(layer.weight, std=dim**-0.5)
    else:
        kernels = list(PAPER_KERNELS) if name == "nine" else name
        layer = GeneralizedSoftmax(dim, words, kernels, bias=False, untied=option == "untied")
    return layer.nll, layer


def projection(words: int, dim: int) -> nn.Linear:
    layer = nn.Linear(dim, words, bias=False)
    nn.init.normal_(layer.weight, std=dim**-0.5)
    return layer


def stock(implementation: str, words: int, dim: int):
    """A projection and fairseq's cross_entropy."""
    layer = projection(words, dim)

    def loss(features, target):
        log_probabilities = F.log_softmax(layer(features), dim=-1, dtype=torch.float32)
        return F.nll_loss(log_probabilities, target, reduction="sum")

    return loss, layer


def torch_own(implementation: str, words: int, dim: int):
    """torch.nn.functional.linear_cross_entropy, plain or with its chunking options."""
    layer = projection(words, dim)
    options = {"options": torch.nn.LinearCrossEntropyOptions()} if implementation == "torch chunked" else {}

    def loss(features, target):
        return F.linear_cross_entropy(features, layer.weight, target, reduction="sum", **options)

    return loss, layer


def mixture_of_softmaxes(implementation: str, words: int, dim: int):
    """Mixture of Softmaxes (Yang et al. 2018) as it is usually written: probabilities of all components, autograd."""
    components = int(implementation.split()[1])
    layer = nn.ModuleDict(
        {
            "contexts": nn.Linear(dim, components * dim, bias=False),
            "weights": nn.Linear(dim, components, bias=False),
            "words": projection(words, dim),
        }
    )

    def loss(features, target):
        contexts = torch.tanh(layer["contexts"](features)).view(-1, dim)
        weights = F.softmax(layer["weights"](features), dim=-1)
        probabilities = F.softmax(layer["words"](contexts), dim=-1).view(-1, components, words)
        mixed = (probabilities * weights.unsqueeze(2)).sum(1)
        return F.nll_loss((mixed + 1e-8).log(), target, reduction="sum")

    return loss, layer


def by_autograd(implementation: str, words: int, dim: int):
    """The spherical family's formulas over all V outputs."""
    layer = projection(words, dim)

    def loss(features, target):
        output = layer(features)
        numerator = 1 + output + output.square() / 2 if "taylor" in implementation else output.square() + 0.0198
        chosen = numerator.gather(1, target.unsqueeze(1)).squeeze(1)
        return (numerator.sum(1).log() - chosen.log()).sum()

    return loss, layer


def liger(implementation: str, words: int, dim: int):
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    layer, function = projection(words, dim), LigerFusedLinearCrossEntropyLoss(reduction="sum")
    return lambda features, target: function(layer.weight, features, target), layer


def cut_cross_entropy(implementation: str, words: int, dim: int):
    from cut_cross_entropy import linear_cross_entropy

    layer = projection(words, dim)
    return lambda features, target: linear_cross_entropy(features, layer.weight, target, reduction="sum"), layer


def factored_step(implementation: str, features, target, words: int) -> Callable[[], None]:
    """Loss, gradient of the features and the update of W, which the others leave to an optimiser."""
    layer = TaylorSoftmax(features.size(1), words, bias=False)
    nn.init.normal_(layer.weight, std=features.size(1) ** -0.5)
    layer = factored(layer.to(features.device, features.dtype))
    optimizer = FactoredSGD([layer], lr=LEARNING_RATE / len(features))

    def step():
        layer.nll(features, target).backward()
        features.grad = None
        optimizer.step()

    return step


OTHERS = {
    "stock": stock,
    "torch": torch_own,
    "mos": mixture_of_softmaxes,
    "liger": liger,
    "cut": cut_cross_entropy,
}


def maker(implementation: str):
    """The function that builds an implementation, from its name's first word; this package's are named by kernels."""
    if implementation.endswith("autograd"):
        return by_autograd
    return OTHERS.get(implementation.split()[0], ours)


class Setting(NamedTuple):
    """One implementation at one size."""

    implementation: str
    tokens: int
    words: int
    dim: int


def describe(setting: Setting) -> str:
    return f"{setting.implementation}, N = {setting.tokens:,}, V = {setting.words:,}, d = {setting.dim}"


def compare(rows: Dict[Setting, Dict], comparisons: List[Comparison], words: int, dim: int) -> List[Dict]:
    """The ratios of each comparison whose two sides were measured."""
    selected = []
    for comparison in comparisons:
        ours_, other = (rows.get(Setting(name, comparison.tokens, words, dim)) for name in comparison[:2])
        if not ours_ or not other or "error" in ours_ or "error" in other:
            continue
        ratio = {**comparison._asdict(), "time_ratio": round(ours_["seconds"] / other["seconds"], 4)}
        if other["mebibytes"]:
            ratio["memory_ratio"] = round(ours_["mebibytes"] / other["mebibytes"], 4)
        selected.append(ratio)
    return selected


def show(rows: List[Dict], ratios: List[Dict]) -> None:
    print(f"{'implementation':22} {'N':>7} {'V':>9} {'d':>5} {'seconds':>9} {'MiB':>8}")
    for row in rows:
        sizes = f"{row['implementation']:22} {row['tokens']:7,} {row['words']:9,} {row['dim']:5}"
        result = row.get("error") or f"{row['seconds']:9.3f} {row['mebibytes'] or float('nan'):8,.0f}"
        print(sizes, result)
    if ratios:
        print(f"\n{'':22} {'against':22} {'time':>7} {'bar':>7} {'memory':>8} {'bar':>7}")
    for ratio in ratios:
        memory = f"{ratio['memory_ratio']:8.3f}" if "memory_ratio" in ratio else " " * 8
        bar = f"{ratio['memory']:7.3f}" if ratio["memory"] else ""
        print(f"{ratio['ours']:22} {ratio['other']:22} {ratio['time_ratio']:7.3f} {ratio['time']:7.3f} {memory} {bar}")


def plot(rows: List[Dict], axis: str, path: Path) -> None:
    """Time and memory of a sweep, one curve an implementation."""
    pyplot = file_pyplot()
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for place, quantity, label in zip(axes, ("seconds", "mebibytes"), ("seconds a step", "MiB above start")):
        for name in dict.fromkeys(row["name"] for row in rows):
            points = sorted((row[axis], row[quantity]) for row in rows if row["name"] == name and row.get(quantity))
            if points:
                place.plot(*zip(*points), marker="o", label=name)
        letter = {"components": "K", "words": "V", "tokens": "N"}[axis]
        place.set(xscale="log", yscale="log", xlabel=letter, ylabel=label)
        place.grid(True, which="both", alpha=0.3)
    axes[0].legend()
    figure.savefig(path)
    pyplot.close(figure)


def sweep_settings(axis: str, tokens: int, words: int, dim: int) -> Dict[Setting, Dict]:
    """The settings of a sweep, with the value on its axis and the name of its curve."""
    values, implementations = SWEEPS[axis]
    selected = {}
    for name in implementations:
        for value in FACTORED_WORDS if axis == "words" and name.startswith("factored") else values:
            sizes = {"tokens": tokens, "words": words, "dim": dim, **({axis: value} if axis != "components" else {})}
            selected[Setting(name.format(value), **sizes)] = {"name": name.format("K "), axis: value}
    return selected


def main() -> None:
    parser = benchmarks.options(__doc__, "folder for the plots and output_layer.json, which gets the record")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these implementations alone, at one size")
    parser.add_argument("--tokens", type=positive_int, default=4096, help="N for --only (the table has its own)")
    parser.add_argument("--words", type=positive_int, default=30_000, help="V")
    parser.add_argument("--dim", type=positive_int, default=512, help="d")
    parser.add_argument("--sweep", action="store_true", help="also measure against K, V and N, and plot")
    parser.add_argument("--steps", type=positive_int, default=3, help="steps a round, after one to warm up")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16", "float64"])
    args = parser.parse_args()
    if args.out:
        benchmarks.check(args.out / "output_layer.json")
    comparisons = COMPARISONS + (ON_CUDA if args.device != "cpu" else [])
    if args.only:
        settings = [Setting(name, args.tokens, args.words, args.dim) for name in args.only]
    else:
        sides = [(name, c.tokens) for c in comparisons for name in c[:2]]
        settings = [Setting(name, tokens, args.words, args.dim) for name, tokens in dict.fromkeys(sides)]
    sweeps = {axis: sweep_settings(axis, 1024, args.words, args.dim) for axis in SWEEPS} if args.sweep else {}
    settings = list(dict.fromkeys([*settings, *(setting for sweep in sweeps.values() for setting in sweep)]))
    rows, own = {setting: setting._asdict() for setting in settings}, {"device": args.device, "dtype": args.dtype}
    named = {describe(setting): (row, {**setting._asdict(), **own}) for setting, row in rows.items()}
    benchmarks.in_turn(build_step, named, args)
    ratios = compare(rows, comparisons, args.words, args.dim)
    show(list(rows.values()), ratios)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        for axis, sweep in sweeps.items():
            plot([{**rows[setting], **labels} for setting, labels in sweep.items()], axis, args.out / f"{axis}.svg")
        record = {**own, "comparisons": ratios, "rows": list(rows.values())}
        benchmarks.keep(args.out / "output_layer.json", args.threads, **record)


if __name__ == "__main__":
    main()
