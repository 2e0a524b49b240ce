"""The tables' figures as data frames: one line a figure, and one line a row with its statistics."""

import functools
import math
import re
import shlex
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy
import pandas

from . import statistics, tables
from .profiles import option_value
from .results import RUN_KEY, load
from .searched import SEARCHED, row_options


class Metric(NamedTuple):
    """What a reader calls it, how it is rounded, and how rows are compared in it; ``relative``: by their logarithms, as
    the spread of seeds grows with the value."""

    label: str
    decimals: int = 3
    test: str = ""
    relative: bool = False


METRICS = {  # in the columns' order
    "ppl": Metric("perplexity", 1, "t", relative=True),
    "bleu": Metric("BLEU4", 1, "bootstrap"),
    "sacrebleu": Metric("sacreBLEU", 1),
    "top10_error": Metric("top-10 error", 3, "t"),
    "simlex": Metric("word similarity", 3, "t"),
    "pi_variance_pp2": Metric("variance of weights, pp²", 1),
}
COSTS = {  # of rows whose figures have them: heading and format
    "parameters": ("parameters", "{:,.0f}"),
    "words_per_second": ("words/s", "{:,.0f}"),
    "learning_rate": ("learning rate", "{:g}"),
    "train_ppl": ("training perplexity", "{:.1f}"),
    "minutes": ("minutes", "{:.1f}"),
}
BASELINES = ("lin", "softmax")  # what rows are compared with; where there is none of these, with the table's first
OF_A_LAYER = re.compile(r"\s*--(?:epsilon|senses|kerbs-\S+)[ =]\S+")  # options that the baseline can't have
COLUMN = ["profile", "corpus", "metric", "split"]
RUN = ("name", "corpus", "profile", "seed")
FIGURE = (*RUN, "split", "metric", "value", "command", "config", "data", "date", "versions")
OPTIONAL = ("paper", "parameters", "words_per_second", "train_ppl", "learned")
OPTIONAL += ("commit", "analysis_commit", "seconds", "arguments", "processor", "threads", "gpu", "python")


class Results(NamedTuple):
    """A table's figures, one a line, and its rows' statistics, as :func:`row_statistics` has them."""

    table: tables.Table
    figures: pandas.DataFrame
    rows: pandas.DataFrame


def read(path: Path, names: Iterable[str]) -> List[Dict]:
    """A results file's objects.

    Raises:
        ValueError: one lacks a name, in itself and in its provenance, or has a value that is no number.
    """
    entries = load(path)
    for place, entry in enumerate(entries, 1):
        values = {**entry.get("provenance", {}), **entry}
        for name in names:
            if values.get(name) is None or (name == "value" and not isinstance(values[name], (int, float))):
                raise ValueError(f"{path}: object {place} has no {name!r}, or one of another type")
    return entries


def read_details(path: Path, names: Sequence[str], what: str, value_of: Callable[[Dict], Any]) -> Dict[Tuple, Any]:
    """A value of each object in a file beside the figures, by these names of it.

    Raises:
        ValueError: the file is damaged, or an object has none: ``what`` it lacks.
    """
    values = {}
    needed = (*RUN, *(name for name in names if name not in RUN_KEY))  # an object may be without config or data
    for place, entry in enumerate(read(path, needed), 1):
        try:
            values[tuple(entry.get(name) for name in names)] = value_of(entry)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: object {place} has no {what}: {error}") from error
    return values


def valid_curve(entry: Dict) -> List[Tuple[int, float]]:
    """Validation perplexity, in pairs of update and value, without those that aren't finite."""
    pairs = entry.get("valid", {}).get("ppl", {}).items()
    return [(int(update), float(ppl)) for update, ppl in pairs if math.isfinite(float(ppl))]


def bleu_counts(entry: Dict) -> numpy.ndarray:
    """What each sentence adds to a run's BLEU, (sentences, 6) as ``bleu.sentence_counts`` has it."""
    return numpy.array([line.split() for line in entry.get("sentences")], dtype=int).reshape(-1, 6)


def data_frame(
    entries: Sequence[Dict],
    table: tables.Table,
    curves: Optional[Dict[Tuple, List]] = None,
    sentences: Optional[Dict[Tuple, numpy.ndarray]] = None,
) -> pandas.DataFrame:
    """Objects of ``results/`` as lines, their provenance beside them.

    Rows that were run with other options after ``--`` have a name for each (:func:`plain_configurations`), and so have
    different data under one corpus' name.
    """
    figures = pandas.DataFrame([{**entry.get("provenance", {}), **entry, "entry": entry} for entry in entries])
    figures = figures.reindex(columns=figures.columns.union(OPTIONAL, sort=False))
    rates = [option_value(shlex.split(str(words)), "--lr") for words in figures.arguments]
    figures["learning_rate"] = pandas.to_numeric(pandas.Series(rates, dtype=object), errors="coerce")  # not of a list
    figures["minutes"] = pandas.to_numeric(figures.seconds) / 60
    figures[list(COSTS)] = figures[list(COSTS)].apply(pandas.to_numeric)
    runs = figures[[*RUN_KEY]].itertuples(index=False, name=None)
    figures["valid_curve"] = [(curves or {}).get(run, []) for run in runs]
    runs = figures[[*RUN_KEY, "split"]].itertuples(index=False, name=None)
    figures["sentences"] = pandas.Series([(sentences or {}).get(run) for run in runs], dtype=object)
    commits = zip(figures.commit, figures.analysis_commit.where(figures.analysis_commit.notna(), figures.commit))
    figures["off_main"] = [" ".join(filter(off_main, dict.fromkeys(map(str, both)))) for both in commits]
    for (corpus, profile), part in figures.groupby(["corpus", "profile"]):
        plain = plain_configurations(part, table, corpus, profile)
        other = part[[run not in plain for run in zip(part.name, part.config)]]
        figures.loc[other.index, "name"] = other.name + " (" + other.config + ")"
    several = figures.groupby("corpus").data.transform("nunique") > 1
    figures["corpus"] = figures.corpus.where(~several, figures.corpus + " " + figures.data)
    return figures.sort_values("seed", kind="stable")


def plain_configurations(part: pandas.DataFrame, table: tables.Table, corpus: str, profile: str) -> Set[Tuple]:
    """Name and configuration of the runs that are shown by their row's name alone: of each row those whose options
    after ``--`` most other rows have, too, if they are the baseline's (options of a layer left aside). Where they can't
    be told, the row's first."""
    rows, runs = {row.name: row for row in table.rows}, dict.fromkeys(zip(part.name, part.config))
    extra = {(name, config): extra_options(config, rows.get(name), corpus, profile) for name, config in runs}
    counts = Counter(options for options in extra.values() if options is not None)
    order = [*sorted(counts, key=lambda options: (-counts[options], options)), None]
    own = {name: min((run for run in extra if run[0] == name), key=lambda run: order.index(extra[run]))
           for name in part.name}  # fmt: skip
    usual = extra.get(own.get(baseline_of(table, own)))
    shared = {run: OF_A_LAYER.sub("", options) for run, options in extra.items() if options is not None}
    usual = OF_A_LAYER.sub("", order[0] or "" if usual is None else usual)
    return {run for run in own.values() if shared.get(run, usual) == usual}


def extra_options(config: str, row: Optional[tables.Row], corpus: str, profile: str) -> Optional[str]:
    """Those after ``--``, which a configuration has beyond its row's; None where that has other options by now."""
    options = None if row is None or row.unigram else row_options(SEARCHED, corpus, profile, row)
    words, own = config.split(), " ".join(options or ()).split()
    return None if options is None or words[: len(own)] != own else " ".join(words[len(own) :])


@functools.lru_cache
def history() -> Tuple[str, ...]:
    """The checkout's commit and its ancestors; none without git or in a shallow clone."""

    def git(*command):
        return subprocess.run(["git", "-C", tables.ROOT, *command], capture_output=True, text=True, check=True).stdout

    try:
        return () if "true" in git("rev-parse", "--is-shallow-repository") else tuple(git("rev-list", "HEAD").split())
    except (OSError, subprocess.CalledProcessError):
        return ()


def off_main(commit: str) -> bool:
    """Whether the commit is not in the checkout's history, or files had changed since it (it ends in ``+`` then)."""
    return bool(history()) and not any(known.startswith(commit) for known in history())


def load_results(path: Path, table: tables.Table) -> Results:
    """A results file with the curves beside it; without figures if there is none.

    Raises:
        ValueError: a file isn't what the runner writes.
    """
    entries = read(path, FIGURE)
    if not entries:
        return Results(table, pandas.DataFrame(), pandas.DataFrame())
    curves, sentences = (path.parent / kind / path.name for kind in ("curves", "sentences"))
    figures = data_frame(
        entries,
        table,
        read_details(curves, RUN_KEY, "curve by update", valid_curve),
        read_details(sentences, (*RUN_KEY, "split"), "six numbers of each sentence", bleu_counts),
    )
    return Results(table, figures, row_statistics(figures, table))


def row_statistics(figures: pandas.DataFrame, table: tables.Table) -> pandas.DataFrame:
    """:func:`statistics.summarise` of each profile, corpus, metric and split, of a ``relative`` metric's logarithms,
    with further columns: the figure of the ``paper``, the objects behind ours (``entries``), the ``baseline``'s name,
    whether the comparison is by paired ``bootstrap``, and ``adjusted``, Holm's p over all comparisons of a profile."""
    columns = []
    for column, measured in figures.groupby(COLUMN, sort=False):
        metric = METRICS.get(column[2], Metric(""))
        baseline = baseline_of(table, set(measured.name)) if metric.test else ""
        rows = (statistics.summarise_logarithms if metric.relative else statistics.summarise)(measured, baseline)
        tests = bleu_tests(measured, baseline) if metric.test == "bootstrap" else pandas.DataFrame()
        tests = tests[rows.p.reindex(tests.index).isna()]  # the t test, which knows of other seeds, says more
        rows.update(tests)
        rows["bootstrap"] = rows.index.isin(tests.index)
        untrained = rows.index.isin([row.name for row in table.rows if row.unigram])
        rows.loc[untrained, ["low", "high", "difference_low", "difference_high", "p"]] = numpy.nan
        by_name = measured.groupby("name")
        rows["paper"], rows["entries"] = pandas.to_numeric(by_name.paper.first()), by_name.entry.agg(list)
        columns.append(rows.assign(baseline=baseline, **dict(zip(COLUMN, column))))
    rows = pandas.concat(columns).reset_index()
    shown = (rows.split == table.split) | (rows.metric == "simlex")  # which is of no split of the text
    rows["adjusted"] = rows.p.where(shown).groupby(rows.profile).transform(statistics.holm)
    return rows


def baseline_of(table: tables.Table, names: Iterable[str]) -> str:
    candidates = (*BASELINES, table.rows[0].name) if table.compared else ()
    return next((name for name in candidates if name in names), "")


def bleu_tests(measured: pandas.DataFrame, baseline: str) -> pandas.DataFrame:
    """The paired bootstrap of rows with one seed, which is the baseline's only one, where the sentences' counts of both
    are there."""
    alone = measured[~measured.name.duplicated(keep=False)].dropna(subset="sentences").set_index("name")
    if baseline not in alone.index:
        return pandas.DataFrame()
    systems = alone[alone.seed == alone.seed[baseline]].sentences.to_dict()
    return statistics.paired_bootstrap({baseline: systems.pop(baseline), **systems})
