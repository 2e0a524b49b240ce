"""The report's plot: what rows gain over plain lin, as SVG."""

import io

import numpy
import pandas

from ..analysis.curves import file_pyplot
from .results import paper_figures
from .tables import load_table

SIZES = {"cpu": "2 × 128", "medium": "2 × 256", "paper": "2 × 512"}  # of language models, by profile
ALL_TALK = 24.6  # millions of words of the training text of the corpus "talk", as many as the paper has
STYLE = {"svg.hashsalt": "", "axes.spines.top": False, "axes.spines.right": False, "font.size": 9}


def gains(compared: pandas.DataFrame) -> str:
    """Gains over lin of LSTMs of 2 × 256 on corpora named ``talk``, or ``talk-5M``, by words of training text, with
    intervals, and those of the paper's mixtures as diamonds; "" where fewer than two amounts were tried. ``compared``
    has the differences of all tables."""
    rows = compared[(compared.metric == "ppl") & (compared.split == "test") & (compared.base == "lin")]
    words = rows.corpus.str.extract(r"^talk-?(?:([\d.]+)M)?$")[0].astype(float)
    rows = rows.assign(words=words.where(rows.corpus != "talk", ALL_TALK))
    rows = rows[(rows.profile == "medium") & rows.words.notna()].sort_values("words", kind="stable")
    if rows.words.nunique() < 2:
        return ""
    paper = paper_figures(load_table("table3"), "ppl")
    paper = 100 * (paper.drop("lin") / paper["lin"] - 1)
    pyplot, out = file_pyplot(), io.StringIO()
    with pyplot.rc_context(STYLE):
        figure, axis = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
        axis.axhline(0, color="grey", linewidth=0.6)
        for count, (name, those) in enumerate(rows.groupby("name", sort=False)):
            x = those.words * 1.04 ** (count + 1)  # so that none hides another, nor the paper's
            low, middle, high = (100 * numpy.expm1(those[key].astype(float)) for key in ("low", "difference", "high"))
            ends = numpy.nan_to_num([middle - low, high - middle])
            axis.errorbar(x, middle, yerr=ends, fmt="o-", color=f"C{count}", markersize=4, label=name)
        label = "Gao et al.'s mixtures,\n25 M other words"
        axis.plot([ALL_TALK] * len(paper), paper, "D", color="grey", fillstyle="none", markersize=4, label=label)
        places = sorted({*rows.words, ALL_TALK})
        axis.set_xscale("log")
        axis.set_xticks(places, map("{:g} M".format, places))
        axis.minorticks_off()
        axis.set(xlabel="words of training text", ylabel="difference from plain lin's perplexity, %")
        figure.legend(loc="outside right center")
        figure.savefig(out, format="svg", metadata={"Date": None})  # the same each time
        pyplot.close(figure)
    svg = out.getvalue()
    return svg[svg.index("<svg") :]
