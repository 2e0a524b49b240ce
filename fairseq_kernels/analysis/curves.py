"""Learning curves and mixture weights of several runs in one picture.

python -m fairseq_kernels.analysis.curves OUT.png NAME=DIR/train.log ... [--baseline unigram=275]
"""

from pathlib import Path
from typing import Dict, Optional, Tuple

from ..errors import CommandParser
from .plotting import end_labels, file_pyplot, log_scale
from .training_log import read_curves


def plot(logs: Dict[str, Path], out: Path, baselines: Optional[Dict[str, float]] = None) -> None:
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
    figure, axes = pyplot.subplots(1, 1 + len(mixtures), figsize=(6 + 4.5 * len(mixtures), 4.2), squeeze=False)
    [perplexity, *others] = axes[0]
    validation = {name: read_curves(path, "valid").get("ppl", {}) for name, path in logs.items()}
    for name, value in (baselines or {}).items():
        perplexity.axhline(value, color="grey", linestyle="--")
        perplexity.text(0.5, value, f"{name} {value:.0f}", transform=perplexity.get_yaxis_transform(), va="bottom")
    perplexity.set(xlabel="update", ylabel="validation perplexity")
    draw(perplexity, validation, log=True)
    for axis, (name, curves) in zip(others, mixtures.items()):
        axis.set(xlabel="update", ylabel="mean mixture weight", ylim=(0, 1), title=name)
        draw(axis, {key.removeprefix("pi_"): curve for key, curve in curves.items()})
    figure.tight_layout()
    figure.savefig(out, dpi=120)


def draw(axis, curves: Dict[str, Dict[int, float]], log: bool = False) -> None:
    """Curves by update, each with its name at its end."""
    drawn = {name: axis.plot(list(curve), list(curve.values()), ".-") for name, curve in curves.items() if curve}
    if log:
        log_scale(axis)
    end_labels(axis, {name: line for name, [line] in drawn.items()})


def main() -> None:
    parser = CommandParser(prog="python -m fairseq_kernels.analysis.curves", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("logs", nargs="+", type=named, metavar="NAME=LOG")
    parser.add_argument("--baseline", action="append", default=[], type=named, metavar="NAME=PPL")
    args = parser.parse_args()
    logs = {name: Path(path) for name, path in args.logs}
    for name, path in logs.items():
        if not read_curves(path, "valid"):
            parser.error(f"{name}: log {path} has no validation; give a training's train.log, once it has one")
    plot(logs, args.out, {name: float(value) for name, value in args.baseline})


def named(text: str) -> Tuple[str, str]:
    """``NAME=VALUE``; a ValueError without ``=``."""
    name, value = text.split("=", 1)
    return name, value


if __name__ == "__main__":
    main()
