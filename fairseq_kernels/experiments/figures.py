"""The report's plot: what rows gain over plain lin, as SVG."""

import io
import math
import re
from typing import Sequence

import numpy
import pandas

from ..analysis.plotting import file_pyplot
from .results import paper_figures
from .tables import load_table

SIZES = {"cpu": "2 × 128", "medium": "2 × 256", "paper": "2 × 512"}  # of language models, by profile
TALK = re.compile(r"talk-?(?:([\d.]+)M)?$", re.I)  # a corpus' name, and the millions of words of its training text
ALL_TALK = 24.6
STYLE = {"svg.hashsalt": "", "axes.spines.top": False, "axes.spines.right": False, "font.size": 9}


def words_of(corpus: str) -> float:
    """How many words a corpus named ``talk``, or ``talk-5M``, has in training; NaN for others."""
    match = TALK.match(corpus)
    return 1e6 * float(match[1] or ALL_TALK) if match else math.nan


def gains(compared: Sequence[pandas.DataFrame]) -> str:
    """Gains against words of training text, the paper's beside them, or, where only one amount was tried, those of the
    table convergence against the model's size; "" where neither was tried.

    Args:
        compared: differences of each table, with the table's name in ``table``.
    """
    rows = pandas.concat(compared)
    rows = rows[(rows.metric == "ppl") & (rows.split == "test") & (rows.base == "lin")]
    percent = 100 * numpy.expm1(rows[["difference", "low", "high"]].astype(float))
    rows = rows.assign(**percent, words=rows.corpus.map(words_of), place=rows.profile.map(SIZES))
    by_text = rows[(rows.profile == "medium") & rows.words.notna()]
    if by_text.words.nunique() > 1:
        papers = pandas.concat([paper_figures(load_table(name), "ppl") for name in ("table1", "table3")])
        paper = papers[~papers.index.duplicated()].rename({"mos": "9xlin"})
        rows = by_text.assign(place=by_text.words).sort_values("place", kind="stable")
        return plot(rows, "words of training text", 100 * (paper / paper["lin"] - 1))
    rows = rows[(rows.table == "convergence") & rows.place.notna()]
    rows = rows[rows.groupby("name").place.transform("nunique") > 1].sort_values("place", kind="stable")
    return plot(rows, "LSTM: layers × units", pandas.Series(dtype=float)) if len(rows) else ""


def plot(rows: pandas.DataFrame, xlabel: str, paper: pandas.Series) -> str:
    """A line a row, with intervals; a diamond for the paper's difference.

    Args:
        rows: ``name``, ``place`` (a number of words, on a logarithmic axis, or a text), ``difference``, ``low`` and
            ``high`` in percent.
        paper: differences by name.
    """
    pyplot, out = file_pyplot(), io.StringIO()
    with pyplot.rc_context(STYLE):
        figure, axis = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
        axis.axhline(0, color="grey", linewidth=0.6)
        places = list(dict.fromkeys(rows.place))
        numbers = pandas.api.types.is_numeric_dtype(rows.place)
        for count, (name, those) in enumerate(rows.groupby("name", sort=False)):
            shift = 0.03 * (count - rows.name.nunique() / 2)  # so that intervals don't hide each other
            x = [place * (1 + shift) if numbers else places.index(place) + shift for place in those.place]
            ends = numpy.nan_to_num([those.difference - those.low, those.high - those.difference])
            axis.errorbar(x, those.difference, yerr=ends, fmt="o-", color=f"C{count}", markersize=4, label=name)
            theirs = paper.get(name.removesuffix("-tuned"), math.nan)
            axis.plot(x[-1:], [theirs], "D", color=f"C{count}", fillstyle="none")
        if numbers:
            axis.set_xscale("log")
            axis.set_xticks(places, [f"{place / 1e6:g} M" for place in places])
            axis.minorticks_off()
        else:
            axis.set_xticks(range(len(places)), places)
        axis.set(xlabel=xlabel, ylabel="perplexity over plain lin's, %")
        figure.legend(loc="outside right center")
        figure.savefig(out, format="svg", metadata={"Date": None})  # the same each time
        pyplot.close(figure)
    svg = out.getvalue()
    return svg[svg.index("<svg") :]
