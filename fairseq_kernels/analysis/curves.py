"""Learning curves and mixture weights of several runs in one picture.

python -m fairseq_kernels.analysis.curves OUT.png NAME=DIR/train.log ... [--baseline unigram=275]
"""

from pathlib import Path
from typing import Dict, Tuple

from ..errors import CommandParser
from .plotting import file_pyplot
from .training_log import read_curves


def plot(logs: Dict[str, Path], out: Path, baselines: Dict[str, float]) -> None:
    """Writes ``out`` (PNG): validation perplexity by update, and each mixture's mean weights in training.

    Args:
        logs: fairseq-train's log of each run.
        out: the picture.
        baselines: perplexities to mark with a line, by name.
    """
    pyplot = file_pyplot()
    weights = {}
    for name, path in logs.items():
        curves = read_curves(path, "train_inner")
        weights[name] = {key: curve for key, curve in curves.items() if key.startswith("pi_") and "variance" not in key}
    mixtures = {name: curves for name, curves in weights.items() if curves}
    shape = {"figsize": (6 + 4.5 * len(mixtures), 4.2), "squeeze": False, "layout": "constrained"}
    figure, [[perplexity, *others]] = pyplot.subplots(1, 1 + len(mixtures), **shape)
    draw(perplexity, {name: read_curves(path, "valid").get("ppl", {}) for name, path in logs.items()})
    for name, value in baselines.items():
        perplexity.axhline(value, color="grey", linestyle="--", label=f"{name} {value:.0f}")
    perplexity.set(yscale="log", ylabel="validation perplexity")
    perplexity.yaxis.set_major_formatter("{x:g}")
    perplexity.yaxis.set_minor_formatter("{x:g}")
    for axis, (name, curves) in zip(others, mixtures.items()):
        draw(axis, {key.removeprefix("pi_"): curve for key, curve in curves.items()})
        axis.set(ylabel="mean mixture weight", ylim=(0, 1), title=name)
    for axis in (perplexity, *others):
        axis.legend()
    figure.savefig(out, dpi=120)


def draw(axis, curves: Dict[str, Dict[int, float]]) -> None:
    """Curves by update."""
    for name, curve in curves.items():
        axis.plot(list(curve), list(curve.values()), ".-", label=name)
    axis.set_xlabel("update")


def main() -> None:
    parser = CommandParser(prog="python -m fairseq_kernels.analysis.curves", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("logs", nargs="+", type=named, metavar="NAME=LOG")
    parser.add_argument("--baseline", action="append", default=[], type=named, metavar="NAME=PPL")
    args = parser.parse_args()
    logs = {name: Path(path) for name, path in args.logs}
    plot(logs, args.out, {name: float(value) for name, value in args.baseline})


def named(text: str) -> Tuple[str, str]:
    """``NAME=VALUE``; a ValueError without ``=``."""
    name, value = text.split("=", 1)
    return name, value


if __name__ == "__main__":
    main()
