"""fairseq-train's log (``--log-format simple``) as curves; those of several runs in one picture.

python -m fairseq_kernels.analysis.curves OUT.png NAME=DIR/train.log ... [--baseline unigram=275]
"""

import math
import re
from pathlib import Path
from typing import Dict, List, Tuple

from ..errors import CommandParser

NUMBER = r"([-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf))"  # a cut-off exponent doesn't match
KINDS = re.compile(r" \| INFO \| (train_inner|train|valid) \| (.*)")


def read_curves(path: Path, kind: str) -> Dict[str, Dict[int, float]]:
    """``curves[statistic][update]``, in the order of updates, of one kind of lines: ``train_inner``, ``train`` or
    ``valid``.

    A resumed or restarted training goes back to an earlier update. Later updates logged before that are dropped.
    """
    records: List[Tuple[str, Dict[str, float]]] = []
    for line_kind, line in KINDS.findall(Path(path).read_text(errors="replace")):
        values = {name: float(value) for name, value in re.findall(rf"(\w+)[ =]{NUMBER}(?=[ ,|]|$)", line)}
        if math.isfinite(values.get("num_updates", math.nan)):
            while records and records[-1][1]["num_updates"] > values["num_updates"]:
                records.pop()
            records.append((line_kind, values))
    curves: Dict[str, Dict[int, float]] = {}
    for values in (values for line_kind, values in records if line_kind == kind):
        for name, value in values.items():
            curves.setdefault(name, {})[int(values["num_updates"])] = value
    return curves


def file_pyplot():
    """matplotlib's ``pyplot`` for pictures that go to files, without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # letters as text: half the size, and they can be searched
    from matplotlib import pyplot

    return pyplot


def plot(logs: Dict[str, Path], out: Path, baselines: Dict[str, float]) -> None:
    """Writes ``out`` (PNG): validation perplexity by update beside ``baselines``, and each mixture's mean weights in
    training, from the log of each run."""
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
