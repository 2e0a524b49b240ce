"""The report's chapters that are no table of trainings: close words, the weight of lin, the speed of training."""

import functools
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple

import pandas

from ..analysis.disambiguation import interval
from .chapters import Chapter, Number, Part, made, marked_rows, title, unique
from .report_figures import Picture, bars
from .results import load
from .summaries import FIGURE, data_frame, read
from .tables import load_table

POSITIONS = ("0", "1", "5", "20+")


def table4(figures: pandas.DataFrame) -> pandas.DataFrame:
    """A row a model and baseline: accuracy and log-likelihood, with the differences from lin."""
    lines = []
    for run, run_figures in figures.groupby(["name", "seed", "baseline"], sort=False):
        lines.append(dict(zip(("", "seed", "against lin of"), map(str, run))))
        for metric, head, unit, digits in (
            ("cluster_accuracy", "accuracy, %", 100, 1),
            ("cluster_log_likelihood", "log-likelihood, nats", 1, 3),
        ):
            [figure] = run_figures.entry[run_figures.metric == metric]
            lines[-1][head] = Number(f"{unit * figure['value']:.{digits}f}", [figure])
            lines[-1][f"{head} − lin's"] = figure["difference"] and interval(figure["difference"], unit, digits + 1)
        for figure in run_figures.entry[run_figures.metric == "cluster_gain_beyond_random"]:
            lines[-1]["gain beyond random clusters, %"] = interval(figure["difference"], 100, 2)
    return pandas.DataFrame(lines).fillna("")


def linear_weight(figures: pandas.DataFrame) -> pandas.DataFrame:
    """A row a mixture and seed: the mean, how often it is above one half, by position and by rank."""
    lines = []
    for name, figure in zip(figures.name, figures.entry):
        details = figure["details"]
        means = {f"at word {row['of']}": row["mean"] for row in details["by_position"] if row["of"] in POSITIONS}
        means |= {f"rank {row['of']}": row["mean"] for row in details["by_rank"]}  # None: of no words
        line = {"": name, "seed": str(figure["seed"]), "mean": Number(f"{figure['value']:.3f}", [figure])}
        line["above 0.5"] = f"{100 * details['above_half']:.1f} %"
        lines.append({**line, **{head: "" if mean is None else f"{mean:.2f}" for head, mean in means.items()}})
    return pandas.DataFrame(lines).fillna("")


class Analysis(NamedTuple):
    title: str
    source: str
    note: str
    table: Callable[[pandas.DataFrame], pandas.DataFrame]


ANALYSES = {
    "table4": Analysis(
        "Choosing among close words",
        "Gao et al. 2019, Table 4",
        "Clusters of close words by inner product of lin's projection matrix: how often, and how surely, a model finds "
        "the right one where it knows the cluster. The gain is the share of lin's loss that a model saves there, less "
        "the same in random clusters of these words. In brackets: 95 % intervals of a paired bootstrap over lines. The "
        "clusters, and sentences in the paper's form, are in the folder table4.",
        table4,
    ),
    "linear_weight": Analysis(
        "Where the weight of lin goes",
        "Gao et al. 2019, section 4.4: always above 50 %",
        "Total weight of the linear components: its mean over the words of the text, by place in the line (from 0) and "
        "by rank of the word in training. The plot is linear_weight-CORPUS-PROFILE.svg.",
        linear_weight,
    ),
}
SPEED = {"training_speed": "Speed of training", "training_speed_cpu_profile": "Speed of training, CPU profile's sizes"}


def load_analysis(folder: Path, name: str) -> List[Chapter]:
    """The chapter, or none if it has no results.

    Raises:
        ValueError: its file isn't what the scripts write.
    """
    analysis, entries = ANALYSES[name], read(folder / f"{name}.json", FIGURE)
    if not entries:
        return []
    figures = data_frame(entries, load_table("table3"))
    parts = []
    for (profile, corpus), part_figures in figures.groupby(["profile", "corpus"]):
        commands = "\n".join(unique(part_figures.command))
        try:
            shown = [analysis.table(part_figures)]
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(f"{folder / name}.json has no figures as the scripts write them ({error!r})") from error
        parts.append(Part(title(corpus, profile), shown, marked_rows(part_figures), made(part_figures), commands))
    return [Chapter(name, *analysis[:3], parts)]


def load_speed(folder: Path, name: str) -> List[Chapter]:
    """Of the benchmark's records, a part each, the newest first.

    Raises:
        ValueError: its file isn't what the benchmark writes.
    """
    path = folder / f"{name}.json"
    try:
        parts = [speed_part(record) for record in reversed(load(path))]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: a record lacks {error}; scripts/benchmark_training.py writes them") from error
    note = "Whole training steps, every row of a table in one run; memory above that before the steps."
    return [Chapter(name, SPEED[name], "beyond the papers", note, parts)] if parts else []


def speed_part(record: Dict) -> Part:
    origin, settings = record["made"], record["settings"]
    rows = pandas.DataFrame(record["rows"])
    heads = {"row": "", "words": "V or data", "words_per_second": "words/s",
             "speed_ratio": "over the first row's of that V", "mebibytes": "MiB"}  # fmt: skip
    shown = rows[list(heads)].rename(columns=heads).astype(str)
    speed = rows.pivot_table(index="row", columns="words", values="words_per_second", sort=False)
    pictures = [
        Picture(f"V or data: {words}", functools.partial(bars, values=speed[[words]], xlabel="words per second"))
        for words in speed
    ]
    machine = f"{origin['processor']}, threads {origin['threads']}"
    batches = f"batches of {settings['batch_size']} × {settings['length']} words"
    sentence = f"Made at commit {origin['commit']}, {origin['date']}; {machine}, {batches}."
    return Part("", [shown], made=sentence, command=record["command"], pictures=pictures)
