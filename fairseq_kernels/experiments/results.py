"""``results/TABLE.json``: a list of records, one a run; their figures as a data frame, and how rows differ in them.

A record has what was ``run`` (row, corpus, profile, seed, settings), how it was ``made`` (command, commit, data,
versions, machine, seconds), its ``metrics``, the ``parts`` of the texts and the training's ``curves``.
"""

import math
import re
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

import numpy
import pandas

from . import statistics
from .tables import Table, in_present_words, words_of

BASELINES = ("lin", "softmax", "log-softmax")  # what rows are compared with; without these, the table's first
APART = re.compile(r"^$|--stock")  # options of no model, and of fairseq's own, whose seeds differ far more
COLUMN = ["profile", "corpus", "metric", "split"]


class Metric(NamedTuple):
    """A metric: its name for readers; whether rows are compared in it, and by logarithms, as its spread grows with it;
    and the decimals of a difference at most."""

    label: str
    compared: bool = False
    relative: bool = False
    decimals: int = 2


METRICS = {  # in the columns' order
    "ppl": Metric("perplexity", True, relative=True),
    "bleu": Metric("BLEU4", True),
    "sacrebleu": Metric("sacreBLEU"),
    "bleu1": Metric("BLEU-1"),
    "bleu2": Metric("BLEU-2"),
    "top10_error": Metric("top-10 error", True, decimals=4),
    "simlex": Metric("word similarity", True, decimals=3),
    "nll": Metric("negative log-likelihood", True, relative=True),
    "nll_at_temperature": Metric("the same at the best temperature", True, relative=True),
    "temperature": Metric("temperature"),
    "error": Metric("error, %", True, decimals=3),
    "loss": Metric("loss"),
    "epochs": Metric("epochs"),
    "pi_variance_pp2": Metric("variance of a token's weights, pp²"),
}
SPLITS = ("test", "valid", "train")  # in the columns' order


def frame(records: Sequence[Dict]) -> pandas.DataFrame:
    """A line a figure: ``name`` (of its row), ``corpus``, ``data``, ``profile``, ``seed``, ``options``, ``split``,
    ``metric`` and ``value``, the ``record``, the ``parts`` of that split and the ``difference`` from another model's
    figure (None if not known).

    Runs whose settings differ from those of their row's first run get these settings added to the row's name. Data
    that differ under one corpus name get their hash added to the corpus's name.
    """
    lines = []
    for record in records:
        run, made = record["run"], record["made"]
        shared = {name: run[name] for name in ("corpus", "profile", "seed")}
        options = " ".join(words_of(in_present_words(run["settings"])))
        shared.update(name=run["row"], options=options, data=made.get("data"), record=record)
        trained = {"split": "train", "metric": "ppl", "value": made.get("train_ppl")}
        for metric in record["metrics"] + [trained] * bool(made.get("train_ppl")):
            values = {name: metric.get(name) for name in ("split", "metric", "value", "difference")}
            lines.append({**shared, **values, "parts": record.get("parts", {}).get(metric["split"])})
    figures = pandas.DataFrame(lines)
    first = figures.groupby(["corpus", "profile", "name"]).options.transform("first")
    figures["name"] = figures.name.where(figures.options == first, figures.name + " (" + figures.options + ")")
    several = figures.groupby("corpus").data.transform("nunique") > 1
    figures["corpus"] = figures.corpus.where(~several, figures.corpus + " " + figures.data)
    return figures


def paper_figures(table: Table, metric: str) -> pandas.Series:
    """The paper's, by row."""
    return pandas.Series({row.name: float(row.paper[metric]) for row in table.rows if metric in row.paper}, dtype=float)


def logarithms(figures: pandas.DataFrame) -> pandas.DataFrame:
    """The figures, those of relative metrics as logarithms."""
    relative = figures.metric.isin([name for name, metric in METRICS.items() if metric.relative])
    with numpy.errstate(all="ignore"):
        return figures.assign(value=figures.value.where(~relative, numpy.log(figures.value)))


def spread_of_seeds(figures: pandas.DataFrame) -> Dict[Tuple, statistics.Spread]:
    """By metric, split and size (``CORPUS PROFILE``), from the figures of all tables; a training that is in several
    tables counts once."""
    figures = logarithms(figures[~figures.options.str.contains(APART)])
    figures = figures.drop_duplicates(["corpus", "profile", "options", "seed", "split", "metric"])
    size = figures.corpus + " " + figures.profile
    block, configuration = size + " " + figures.seed.astype(str), size + " " + figures.options
    figures = figures.assign(size=size, block=block, configuration=configuration)
    return {
        (*column, size): spread
        for column, trainings in figures.groupby(["metric", "split"])
        for size, spread in statistics.pooled(trainings).items()
    }


def baselines(table: Table, names: Iterable[str]) -> List[str]:
    """The baselines among these rows: plain lin or its equivalent, and the table's reference."""
    names = list(names)
    candidates = (*BASELINES, table.rows[0].name) if table.split == "test" else ()
    plain = next((name for name in candidates if name in names), "")
    return [name for name in dict.fromkeys((plain, table.reference)) if name in names]


def differences(table: Table, figures: pandas.DataFrame, spreads: Dict[Tuple, statistics.Spread]) -> pandas.DataFrame:
    """:func:`statistics.compare` of each profile, corpus, metric and split with each ``base``.

    Returns:
        A line a comparison, with further columns: ``adjusted``, Holm's p over a profile's comparisons with that base in
        the table's split, and their number, ``family``; ``equivalent``, Holm's p of the equivalence test with the
        table's reference over the rows that aren't bases; the ``deviation`` of seeds and its degrees of freedom,
        ``seeds``.
    """
    columns = []
    for place, rows in logarithms(figures).groupby(COLUMN, sort=False):
        profile, corpus, metric, split = place
        bases = baselines(table, rows.name) if METRICS.get(metric, Metric("")).compared and split != "train" else []
        spread = spreads.get((metric, split, f"{corpus} {profile}"), statistics.Spread())
        apart = set(rows.name[rows.options.str.contains(APART)])
        for base in bases:
            column = statistics.compare(rows, base, spread, statistics.TEXTS.get(metric))
            column.loc[column.index.isin(apart), ["error", "low", "high", "p"]] = math.nan
            column = column.assign(base=base, deviation=spread.deviation, seeds=spread.freedom, equivalent=math.nan)
            if base == table.reference and table.margin and METRICS[metric].relative:
                family = statistics.equivalence(column.drop(bases, errors="ignore"), table.margin / 100)
                column["equivalent"] = statistics.holm(family)
            columns.append(column.assign(**dict(zip(COLUMN, place))).rename_axis("name").reset_index())
    if not columns:
        numbers = ["difference", "low", "high", "adjusted", "equivalent"]
        return pandas.DataFrame(columns=[*COLUMN, "base", "name", *numbers])
    result = pandas.concat(columns, ignore_index=True)
    main = (result.split == table.split) | ~result.split.isin(SPLITS)  # SimLex-999 is of no split of the text
    families = result.p.where(main).groupby([result.profile, result.base])
    result["adjusted"], result["family"] = families.transform(statistics.holm), families.transform("count")
    return result
