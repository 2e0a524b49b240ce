"""The report's plot: what rows gain over plain lin, as SVG."""

import io

import numpy
import pandas

from ..analysis.plotting import file_pyplot
from .results import paper_figures
from .tables import load_table

SIZES = {"cpu": "2 × 128", "medium": "2 × 256", "paper": "2 × 512"}  # of language models, by profile
ALL_TALK = 24.6  # millions of words of the training text of the corpus "talk", as many as the paper has
STYLE = {"svg.hashsalt": "", "axes.spines.top": False, "axes.spines.right": False, "font.size": 9}


def gains(compared: pandas.DataFrame) -> str:
    """Gains over lin on corpora named ``talk``, or ``talk-5M``, by words of training text, beside those of the paper's
    mixtures. Where only one amount was tried: those of the table convergence by the model's size. Else "".

    Args:
        compared: differences of all tables, with the table's name in ``table``.
    """
    rows = compared[(compared.metric == "ppl") & (compared.split == "test") & (compared.base == "lin")]
    percent = 100 * numpy.expm1(rows[["difference", "low", "high"]].astype(float))
    talk = rows.corpus.str.extract(r"^talk-?(?:([\d.]+)M)?$")[0]
    rows = rows.assign(**percent, words=talk.astype(float), units=rows.profile.map(SIZES).str[4:].astype(float))
    rows.loc[rows.corpus == "talk", "words"] = ALL_TALK
    by_text = rows[(rows.profile == "medium") & rows.words.notna()]
    if by_text.words.nunique() > 1:
        paper = paper_figures(load_table("table3"), "ppl")
        paper = 100 * (paper.drop("lin") / paper["lin"] - 1)
        paper.index = [ALL_TALK] * len(paper)
        return plot(by_text.assign(place=by_text.words), "words of training text", "{:g} M", paper)
    rows = rows[(rows.table == "convergence") & rows.units.notna()]
    rows = rows[rows.groupby("name").units.transform("nunique") > 1].assign(place=rows.units)
    return plot(rows, "LSTM: layers × units", "2 × {:g}", pandas.Series(dtype=float)) if len(rows) else ""


def plot(rows: pandas.DataFrame, xlabel: str, place: str, paper: pandas.Series) -> str:
    """A line a row, with intervals; a diamond for each of the paper's differences.

    Args:
        rows: ``name``, ``place`` on a logarithmic axis, ``difference``, ``low`` and ``high`` in percent.
        place: the form of a place's label.
        paper: differences in percent, by place; may be empty.
    """
    pyplot, out = file_pyplot(), io.StringIO()
    with pyplot.rc_context(STYLE):
        figure, axis = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
        axis.axhline(0, color="grey", linewidth=0.6)
        for count, (name, those) in enumerate(rows.sort_values("place", kind="stable").groupby("name", sort=False)):
            x = those.place * (1.02**count)  # so that intervals don't hide each other
            ends = numpy.nan_to_num([those.difference - those.low, those.high - those.difference])
            axis.errorbar(x, those.difference, yerr=ends, fmt="o-", color=f"C{count}", markersize=4, label=name)
        if len(paper):
            label = "Gao et al.'s mixtures,\n25 M other words"
            axis.plot(paper.index, paper, "D", color="grey", fillstyle="none", markersize=4, label=label)
        places = sorted({*rows.place, *paper.index})
        axis.set_xscale("log")
        axis.set_xticks(places, map(place.format, places))
        axis.minorticks_off()
        axis.set(xlabel=xlabel, ylabel="difference from plain lin's perplexity, %")
        figure.legend(loc="outside right center")
        figure.savefig(out, format="svg", metadata={"Date": None})  # the same each time
        pyplot.close(figure)
    svg = out.getvalue()
    return svg[svg.index("<svg") :]
