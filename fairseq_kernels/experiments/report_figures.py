"""The report's drawings, as SVG in the page's own colours: learning curves, mixture weights, seeds."""

import io
import math
import re
from typing import Dict, List, Tuple

from markupsafe import Markup

from ..analysis.plotting import file_pyplot
from .summaries import Cell, Results, Section, unique

INK = "#010203"  # a colour that nothing else has: becomes the page's own, light or dark
STYLE = {
    **{f"{name}color": INK for name in ("text.", "axes.edge", "axes.label", "xtick.", "ytick.")},
    **{"text.parse_math": False, "font.sans-serif": "DejaVu Sans", "svg.fonttype": "none", "svg.hashsalt": ""},
    **{"figure.constrained_layout.use": True, "legend.frameon": False, "lines.linewidth": 1.2},
}
LINES = ("-", "--", ":")


def pictures(results: Results, part: Section) -> List[Tuple[str, Markup]]:
    """Captions and drawings of a section: learning curves, mixture weights, seeds."""
    names = [line.name for line in part.lines]
    runs = [curve for curve in results.curves if curve["profile"] == part.profile and curve["name"] in names]
    runs.sort(key=lambda curve: (names.index(curve["name"]), curve["seed"]))
    drawn, prefix = [], re.sub(r"\W+", "-", f"{results.table.name}-{part.profile}")

    def draw(caption, *arguments):
        drawn.append((caption, drawing(f"{prefix}-{len(drawn)}-", *arguments)))

    for corpus in unique(curve["corpus"] for curve in runs):
        learning = [curve for curve in runs if curve["corpus"] == corpus and curve["ppl"]]
        mixtures = [curve for curve in runs if curve["corpus"] == corpus and curve["weights"]]
        if learning:
            draw(f"Validation perplexity on {corpus} over updates, a line a run", learning_curves, learning, names)
        if mixtures:
            caption = f"Mean mixture weights on {corpus} over updates, in training; dashed and dotted: further seeds"
            draw(caption, mixture_weights, mixtures)
    for column in part.columns:
        cells = {line.name: line.cells[column] for line in part.lines if column in line.cells}
        if column.metric != "minutes" and any(len(cell.values) > 1 for cell in cells.values()):
            draw(f"{column.label}: a dot a seed; on the right its difference to the row's mean", seeds, cells)
    return drawn


def drawing(prefix: str, draw, *arguments) -> Markup:
    """``draw(pyplot, ...)``'s figure as SVG in the page's colours; ``prefix`` tells its ids from other drawings'."""
    pyplot, out = file_pyplot(), io.StringIO()
    with pyplot.rc_context(STYLE):
        figure = draw(pyplot, *arguments)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=True, metadata=nothing)
        pyplot.close(figure)
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    return Markup(re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}", svg))


def learning_curves(pyplot, runs: List[Dict], names: List[str]):
    figure, axis = pyplot.subplots(figsize=(9, 4.2))
    for run in runs:
        place = names.index(run["name"])
        style = {"color": f"C{place % 10}", "linestyle": LINES[place // 10 % len(LINES)], "marker": "."}
        axis.plot(list(run["ppl"]), list(run["ppl"].values()), label=run["name"], **style)
    axis.set(xlabel="update", ylabel="validation perplexity")
    axis.set_yscale("log", subs=(1.5, 2, 3, 5, 7))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("{x:g}")
    handles, labels = axis.get_legend_handles_labels()
    entries = dict(zip(labels, handles))
    figure.legend(entries.values(), entries, loc="outside right upper")
    return figure


def mixture_weights(pyplot, runs: List[Dict]):
    names = unique(run["name"] for run in runs)
    across = min(3, len(names))
    down = math.ceil(len(names) / across)
    figure, axes = pyplot.subplots(down, across, figsize=(4 * across, 3 * down), squeeze=False, sharey=True)
    for axis, name in zip(axes.flat, names):
        for number, run in enumerate(run for run in runs if run["name"] == name):
            for place, (component, curve) in enumerate(run["weights"].items()):
                style = {"color": f"C{place % 10}", "linestyle": LINES[number % len(LINES)]}
                label = None if number else component[len("pi_") :]
                axis.plot(list(curve), list(curve.values()), label=label, **style)
        axis.set(title=name, xlabel="update", ylim=(0, 1))
        axis.legend(fontsize="small", ncols=2)
    for axis in axes.flat[len(names) :]:
        axis.set_axis_off()
    return figure


def seeds(pyplot, cells: Dict[str, Cell]):
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 1 + 0.28 * len(cells)), sharey=True)
    for place, cell in enumerate(cells.values()):
        level, dots = [place] * len(cell.values), {"color": f"C{place % 10}", "alpha": 0.6}
        axes[0].plot(cell.values, level, "o", **dots)
        if len(cell.values) > 1:
            axes[1].plot([value - cell.mean for value in cell.values], level, "o", **dots)
    axes[0].set(xlabel="value", yticks=range(len(cells)), yticklabels=cells, ylim=(len(cells) - 0.5, -0.5))
    axes[1].set(xlabel="value − mean of the row")
    for axis in axes:
        axis.grid(alpha=0.3)
    return figure
