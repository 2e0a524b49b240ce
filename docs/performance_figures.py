"""Draws docs/images/components.svg, time and memory of mixtures, from results/output_layer.json.

python docs/performance_figures.py
"""

import json
import re
from pathlib import Path

from fairseq_kernels.analysis.curves import file_pyplot

ROOT = Path(__file__).parents[1]
KINDS = {"this package": r"(\d*)x?lin", "Mixture of Softmaxes with autograd": r"mos (\d+)"}
AXES = {"seconds": "seconds", "mebibytes": "MiB"}


def main() -> None:
    """The points are the last record's rows that stand for a number of softmaxes."""
    records = json.loads((ROOT / "results" / "output_layer.json").read_text(encoding="utf-8"))
    [*_, record] = (record for record in records if any(row["name"] == "16xlin" for row in record["rows"]))
    pyplot = file_pyplot()
    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.3), layout="constrained")
    for axis, (column, unit) in zip(axes, AXES.items()):
        for label, pattern in KINDS.items():
            found = [(re.fullmatch(pattern, row["name"]), row[column]) for row in record["rows"]]
            points = [(int(match[1] or 1), value) for match, value in found if match]
            axis.loglog(*zip(*points), "o-", markersize=4, label=label, base=2)
        axis.set_xticks([count for count, _ in points], [str(count) for count, _ in points])
        axis.yaxis.set_major_formatter("{x:,g}")
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
        axis.set(xlabel="softmaxes in the mixture", ylabel=unit)
    settings = record["settings"]
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle("Loss and gradients of {tokens:,} tokens, {words:,} words, {dim} features".format(**settings))
    path = ROOT / "docs" / "images" / "components.svg"
    figure.savefig(path, metadata={"Date": None})
    print(path)


if __name__ == "__main__":
    main()
