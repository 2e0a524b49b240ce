"""The report's drawings, as SVG in the page's own colours."""

import functools
import io
import math
import re
from typing import Callable, Dict, List, NamedTuple

import numpy
import pandas
from markupsafe import Markup

from ..analysis.plotting import end_labels, file_pyplot, log_scale

INK = "#010203"  # a colour that nothing else has: becomes the page's own, light or dark
STYLE = {
    **{f"{name}color": INK for name in ("text.", "axes.edge", "axes.label", "xtick.", "ytick.")},
    **{"text.parse_math": False, "font.sans-serif": "DejaVu Sans", "svg.fonttype": "none", "svg.hashsalt": ""},
    **{"figure.constrained_layout.use": True, "legend.frameon": False, "lines.linewidth": 1.2, "font.size": 9},
    **{"axes.spines.top": False, "axes.spines.right": False},
}
WIDTH = 4.6  # inches: shown on a telephone with hardly smaller letters
ROW = 0.32  # inches: the height of a row
SHOWN = (0.8, 1.4)  # of the baseline; what lies outside is written at the edge
BELOW = 0.35  # rows: the paper's figure is so much lower than ours
PLOTTED = 4  # curves in a plot, beside the baseline's


class Picture(NamedTuple):
    """``draw(pyplot)`` makes the figure."""

    caption: str
    draw: Callable

    def svg(self, prefix: str) -> Markup:
        """In the page's colours; ``prefix`` tells its ids from other drawings'."""
        pyplot, out = file_pyplot(), io.StringIO()
        with pyplot.rc_context(STYLE):
            figure = self.draw(pyplot)
            nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            figure.savefig(out, format="svg", transparent=True, metadata=nothing)
            pyplot.close(figure)
        svg = out.getvalue()
        svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
        return Markup(re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}", svg))


def points(pyplot, rows: pandas.DataFrame, base: str):
    """Ours with intervals, and the paper's, each over its own baseline.

    Args:
        rows: ``mean``, ``low``, ``high``, ``paper`` and the figures (``entries``), by name.
        base: the baseline's name.
    """
    unit, heights = rows["mean"][base], pandas.Series(numpy.arange(len(rows)), rows.index)
    ours, papers = rows["mean"] / unit, rows.paper / rows.paper[base]
    figure, axis = pyplot.subplots(figsize=(WIDTH, 0.9 + ROW * len(rows)))
    axis.axvline(1, color="grey", linewidth=0.6)
    for name, entries in rows.entries.items():
        axis.plot([entry["value"] / unit for entry in entries], [heights[name]] * len(entries), "|C0", alpha=0.5)
    half = (rows.high - rows["mean"]).fillna(0) / unit
    axis.errorbar(ours, heights, xerr=half, fmt="oC0", markersize=4, label="here")
    if papers.notna().any():
        label = "the paper's, over its own"
        axis.plot(papers, heights + BELOW, "DC1", markersize=4, fillstyle="none", label=label)
        figure.legend(loc="outside upper right", ncols=2, fontsize="small")
    for values, colour, down in ((ours, "C0", 0), (papers, "C1", BELOW)):
        for name, value in values[(values < SHOWN[0]) | (values > SHOWN[1])].items():
            edge, side, text = (0, "left", f"← {value:.2f}") if value < 1 else (1, "right", f"{value:.2f} →")
            style = {"color": colour, "ha": side, "va": "center"}
            axis.text(edge, heights[name] + down, text, transform=axis.get_yaxis_transform(), **style)
    inside = pandas.concat([ours, papers]).loc[lambda value: value.between(*SHOWN)]
    axis.set(xlim=(inside.min() - 0.05, inside.max() + 0.05), ylim=(len(rows) - 0.4, -0.6), xlabel=f"over {base}'s")
    axis.set_yticks(heights, rows.index)
    return figure


def curve_pictures(caption: str, curves: Dict[str, List[List]], base: str) -> List[Picture]:
    """A few rows a plot, those together whose last values are close, the baseline in each.

    Args:
        curves: by name, of each seed pairs of update and perplexity.
    """
    names = sorted((name for name in curves if name != base), key=lambda name: curves[name][0][-1][1])
    plots = max(1, math.ceil(len(names) / PLOTTED))
    groups = [[base] * (base in curves) + list(group) for group in numpy.array_split(names, plots)]

    def draw(pyplot, group):
        figure, axis = pyplot.subplots(figsize=(WIDTH, 3.2))
        lines = {}
        for place, name in enumerate(group):
            for curve in curves[name]:
                [lines[name]] = axis.plot(*zip(*curve), color="grey" if name == base else f"C{place}")
        axis.set(xlabel="update")
        log_scale(axis)
        end_labels(axis, lines)
        return figure

    return [Picture(f"{caption}: {', '.join(group)}", functools.partial(draw, group=group)) for group in groups]


def bars(pyplot, values: pandas.DataFrame, xlabel: str):
    """A bar a line, of as many parts as columns."""
    figure, axis = pyplot.subplots(figsize=(WIDTH, 0.9 + ROW * len(values)))
    values.iloc[::-1].plot.barh(stacked=True, ax=axis, legend=False, width=0.7, xlabel=xlabel, ylabel="")
    if len(values.columns) > 1:
        figure.legend(loc="outside right upper", fontsize="small")
    return figure
