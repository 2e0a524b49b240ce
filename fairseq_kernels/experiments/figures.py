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


def gains(caption: str, rows: pandas.DataFrame, xlabel: str, paper: pandas.Series = None) -> Picture:
    """How each row's difference from plain lin depends on something: a line a row, with intervals.

    Args:
        rows: ``name``, ``place`` (a number of words, drawn on a logarithmic axis, or a text), ``difference``, ``low``
            and ``high`` in percent.
        paper: the paper's own differences, by name: beside the right edge.
    """

    def draw(pyplot):
        figure, axis = pyplot.subplots(figsize=(1.4 * WIDTH, 3.4))
        numbers = pandas.api.types.is_numeric_dtype(rows.place)
        places = list(dict.fromkeys(rows.place))
        axis.axhline(0, color="grey", linewidth=0.6)
        lines = {}
        for count, (name, those) in enumerate(rows.groupby("name", sort=False)):
            shift = 0.03 * (count - rows.name.nunique() / 2)  # so that intervals don't hide each other
            x = those.place * (1 + shift) if numbers else [places.index(place) + shift for place in those.place]
            ends = numpy.nan_to_num([those.difference - those.low, those.high - those.difference])
            lines[name], *_ = axis.errorbar(x, those.difference, yerr=ends, fmt="o-", color=f"C{count}", markersize=4)
            theirs = math.nan if paper is None else paper.get(name.removesuffix("-tuned"), math.nan)
            axis.plot([x.iloc[-1] if numbers else x[-1]], [theirs], "D", color=f"C{count}", fillstyle="none")
        if numbers:
            axis.set_xscale("log")
            axis.set_xticks(places, [f"{place / 1e6:g} M" for place in places], minor=False)
            axis.minorticks_off()
        else:
            axis.set_xticks(range(len(places)), places)
        axis.set(xlabel=xlabel, ylabel="perplexity over lin's, %")
        end_labels(axis, lines)
        return figure

    return Picture(caption, draw)


def curves(caption: str, values: Dict[str, List[List]], base: str) -> List[Picture]:
    """A few rows a plot, those together whose last values are close, the baseline in each.

    Args:
        values: by name, of each seed pairs of update and perplexity.
    """
    names = sorted((name for name in values if name != base), key=lambda name: values[name][0][-1][1])
    plots = max(1, math.ceil(len(names) / PLOTTED))
    groups = [[base] * (base in values) + list(group) for group in numpy.array_split(names, plots)]

    def draw(pyplot, group):
        figure, axis = pyplot.subplots(figsize=(WIDTH, 3.2))
        lines = {}
        for place, name in enumerate(group):
            for curve in values[name]:
                [lines[name]] = axis.plot(*zip(*curve), color="grey" if name == base else f"C{place}")
        axis.set(xlabel="update")
        log_scale(axis)
        end_labels(axis, lines)
        return figure

    return [Picture(f"{caption}: {', '.join(group)}", functools.partial(draw, group=group)) for group in groups]
