"""What the tables' figures say: means over seeds, the papers' numbers, what is told apart, how they were made."""

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from . import tables
from .results import load
from .searched import SEARCHED, row_options

METRICS = {  # in the columns' order: what a reader calls it, decimals
    "ppl": ("perplexity", 1),
    "bleu": ("BLEU4", 1),
    "sacrebleu": ("sacreBLEU", 1),
    "top10_error": ("top-10 error", 3),
    "simlex": ("word similarity", 3),
    "pi_variance_pp2": ("variance of weights, pp²", 1),
    "minutes": ("minutes", 1),
}
ORDER = {metric: place for place, metric in enumerate(METRICS)}
BASELINES = ("lin", "softmax")  # what rows are compared with; the first row where there is none of these
RULE = (
    "The rule: two rows are not told apart where their means differ by at most twice the pooled standard deviation of "
    "their seeds or, with one seed on one side, by at most the range of the other's."
)
RUN = {"name": str, "corpus": str, "profile": str, "seed": int}
PROVENANCE = {"config": str, "data": str, "date": str, "versions": dict}
FIGURE = {**RUN, "split": str, "metric": str, "value": (int, float), "command": str, "provenance": PROVENANCE}


class Results(NamedTuple):
    """A table with its figures and curves, as ``results/`` has them."""

    table: tables.Table
    figures: List[Dict]
    curves: List[Dict]


class Column(NamedTuple):
    """What is measured on what."""

    corpus: str
    metric: str
    split: str

    @property
    def label(self) -> str:
        name = METRICS[self.metric][0] if self.metric in METRICS else self.metric
        return f"{self.corpus} {name}" + ("" if self.split == "test" else f" ({self.split})")


@dataclass(frozen=True)
class Cell:
    """A row's figures in a column, one a seed."""

    figures: List[Dict]

    @property
    def values(self) -> List[float]:
        return [figure["value"] for figure in self.figures]

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def deviation(self) -> float:
        """Of the sample; there must be two."""
        return math.sqrt(sum((value - self.mean) ** 2 for value in self.values) / (len(self.values) - 1))

    @property
    def paper(self) -> str:
        return next((str(figure["paper"]) for figure in self.figures if figure.get("paper") is not None), "")

    def __str__(self) -> str:
        metric, count = self.figures[0]["metric"], len(self.values)
        decimals = METRICS[metric][1] if metric in METRICS else 2 if metric.startswith("pi_") else 3
        mean = f"{self.mean:.{decimals}f}"
        spread = f" ± {self.deviation:.{decimals}f}" if count > 1 and math.isfinite(self.mean) else ""
        return mean if count == 1 else f"{mean}{spread} ({count})"


class Line(NamedTuple):
    """A row that was run."""

    name: str
    options: str
    cells: Dict[Column, Cell]


class Section(NamedTuple):
    """What was found of a table with one profile.

    Args:
        papers: the columns with figures of the paper's.
        mixtures: lines with mean mixture weights, by their corpus.
        missing: rows that were not run.
        spread: what the seeds say of the differences to the baseline, in sentences.
        made: how the figures were made, in a sentence.
        command: one row's.
    """

    profile: str
    columns: List[Column]
    papers: List[Column]
    lines: List[Line]
    mixtures: List[Tuple[Line, str, Dict[str, Cell]]]
    missing: List[str]
    spread: List[str]
    made: str
    command: str


def load_results(folder: Path, names: Sequence[str] = ()) -> List[Results]:
    """The results of these tables; of all tables that have some where none is named.

    Raises:
        ValueError: a table is unknown, a named one has no results, or a file isn't what the runner writes.
    """
    found = []
    for name in names or tables.names():
        table, path = tables.load_table(name), folder / f"{name}.json"
        figures = read(path, FIGURE)
        if figures:
            found.append(told_by_origin(table, figures, read_curves(folder / "curves" / path.name)))
        elif names:
            raise ValueError(f"{path} has no results; bash scripts/{name}.sh makes them")
    return found


def told_by_origin(table: tables.Table, figures: List[Dict], curves: Sequence[Dict] = ()) -> Results:
    """The results, in which rows that were run with other options too, after ``--``, have a name for each, and so have
    different data under one name."""
    data: Dict[str, set] = defaultdict(set)
    configs: Dict[Tuple, List[str]] = defaultdict(list)
    for figure in figures:
        origin = figure["provenance"]
        data[figure["corpus"]].add(origin["data"])
        configs[figure["name"], figure["corpus"], figure["profile"]].append(origin["config"])
    rows = {row.name: row for row in table.rows}
    own = {run: " ".join(row_options(SEARCHED, *run[1:], rows.get(run[0], tables.Row(""))) or ()) for run in configs}

    def named(entry: Dict, origin: Dict) -> Dict:
        name, corpus, profile = entry["name"], entry["corpus"], entry["profile"]
        run = name, corpus, profile
        found = configs[run]
        other = origin["config"] in found and origin["config"] != (own[run] if own[run] in found else found[0])
        told = {"name": f"{name} ({origin['config']})"} if other else {}
        if len(data[corpus]) > 1 and origin["data"] in data[corpus]:
            told["corpus"] = f"{corpus} {origin['data']}"
        return {**entry, **told}

    return Results(
        table,
        [named(figure, figure["provenance"]) for figure in figures],
        [named(curve, curve) for curve in curves],
    )


def read(path: Path, kinds: Dict) -> List[Dict]:
    """A results file's objects, each with values of these types."""
    try:
        content = load(path)
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error}") from error
    for place, entry in enumerate(content, 1):
        check(entry, kinds, f"{path}: object {place}")
    return content


def check(entry, kinds: Dict, where: str) -> None:
    for name, kind in kinds.items():
        value = entry.get(name) if isinstance(entry, dict) else None
        if isinstance(kind, dict):
            check(value, kind, f"{where}, {name}")
        elif not isinstance(value, kind):
            raise ValueError(f"{where} has no {name!r}, or one of another type")


def read_curves(path: Path) -> List[Dict]:
    """Each run's validation perplexity ``ppl`` by update, and its ``weights`` by component and update."""
    found = []
    for place, entry in enumerate(read(path, RUN), 1):
        try:
            curves = {"ppl": entry.get("valid", {}).get("ppl", {}), **entry.get("weights", {})}
            curves = {name: {int(x): float(y) for x, y in curve.items()} for name, curve in curves.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: object {place} has no curves by update: {error}") from error
        run = {"config": entry.get("config"), "data": entry.get("data"), **{name: entry[name] for name in RUN}}
        found.append({**run, "ppl": curves.pop("ppl"), "weights": curves})
    return found


def summaries(results: Results) -> List[Section]:
    """One for each profile."""
    figures = sorted(results.figures + minutes(results.figures), key=lambda figure: figure["seed"])
    profiles = sorted({figure["profile"] for figure in figures})
    return [summary(results.table, name, [f for f in figures if f["profile"] == name]) for name in profiles]


def minutes(figures: List[Dict]) -> List[Dict]:
    """Each run's training time, as one more figure."""
    timed = [figure for figure in figures if isinstance(figure["provenance"].get("seconds"), (int, float))]
    runs = {tuple(figure[name] for name in RUN): figure for figure in timed}
    shared = {"split": "training", "metric": "minutes", "paper": None}
    return [{**figure, **shared, "value": figure["provenance"]["seconds"] / 60} for figure in runs.values()]


def summary(table: tables.Table, profile: str, figures: List[Dict]) -> Section:
    found: Dict[str, Dict[Column, Cell]] = defaultdict(dict)
    for figure in figures:
        column = Column(figure["corpus"], figure["metric"], figure["split"])
        found[figure["name"]].setdefault(column, Cell([])).figures.append(figure)
    planned = [row.name for row in table.rows]
    lines = []
    for name in unique([*planned, *found]):
        if name in found:
            configs = unique(f["provenance"]["config"] for f in figures if f["name"] == name)
            lines.append(Line(name, " / ".join(configs), found[name]))
    in_paper = {name for row in table.rows for name in row.paper}
    columns = columns_of({c for line in lines for c in line.cells}, table.split, in_paper)
    corpora = unique(column.corpus for column in columns)
    mixtures = [(line, corpus, weights_of(line, corpus)) for line in lines for corpus in corpora]
    return Section(
        profile,
        columns,
        papers=[c for c in columns if any(line.cells[c].paper for line in lines if c in line.cells)],
        lines=lines,
        mixtures=[mixture for mixture in mixtures if mixture[-1]],
        missing=[name for name in planned if name not in found],
        spread=spread_of(lines, [column for column in columns if column.metric != "minutes"]),
        made=made(figures),
        command=max(figures, key=lambda f: (f["command"].startswith("bash "), f["split"] == table.split))["command"],
    )


def unique(items: Iterable) -> List:
    return list(dict.fromkeys(items))


def columns_of(columns: Iterable[Column], split: str, in_paper: Iterable[str]) -> List[Column]:
    """Those of the main table, in order: the split's figures, others where there are none; of the mixture weights only
    what the paper has."""
    of_split = {(c.corpus, c.metric) for c in columns if c.split == split}
    columns = [c for c in columns if c.split == split or (c.corpus, c.metric) not in of_split]
    columns = [c for c in columns if c.metric in in_paper or not c.metric.startswith("pi_")]

    def place(column):
        return ORDER.get(column.metric, len(ORDER))

    first = {c.corpus: min(place(other) for other in columns if other.corpus == c.corpus) for c in columns}
    return sorted(columns, key=lambda column: (first[column.corpus], column.corpus, place(column), column))


def weights_of(line: Line, corpus: str) -> Dict[str, Cell]:
    """Of a mixture by component, and their variance as ``pi_variance_pp2``."""
    own = {column.metric: cell for column, cell in line.cells.items() if column.corpus == corpus}
    return {name: cell for name, cell in own.items() if name.startswith("pi_") and name != "pi_variance"}


def told_apart(one: Cell, other: Cell) -> Optional[bool]:
    """By ``RULE``; None: nothing is known of the spread."""
    several = [cell for cell in (one, other) if len(cell.values) > 1]
    if len(several) == 2:
        freedom = [len(cell.values) - 1 for cell in several]
        bound = 2 * math.sqrt(sum(n * cell.deviation**2 for n, cell in zip(freedom, several)) / sum(freedom))
    else:
        bound = max(several[0].values) - min(several[0].values) if several else math.nan
    difference = abs(one.mean - other.mean)
    return None if math.isnan(difference + bound) else difference > bound


def spread_of(lines: List[Line], columns: List[Column]) -> List[str]:
    said, unknown = [], []
    for column in columns:
        cells = {line.name: line.cells[column] for line in lines if column in line.cells}
        if sum(len(cell.values) > 1 for cell in cells.values()) < 2:
            unknown.append(column.label)
            continue
        baseline = next((name for name in cells if name in BASELINES), next(iter(cells)))
        verdicts = {name: told_apart(cell, cells[baseline]) for name, cell in cells.items() if name != baseline}
        for verdict, words in ((False, "not told apart from"), (True, "told apart from"), (None, "not known against")):
            names = [name for name, apart in verdicts.items() if apart is verdict]
            if names:
                said.append(f"{column.label}: {words} {baseline} by this rule: {', '.join(names)}.")
    if said:
        said.insert(0, RULE)
    if unknown:
        said.append(f"The spread over seeds is unknown (fewer than two rows have two seeds): {', '.join(unknown)}.")
    return said


def made(figures: List[Dict]) -> str:
    origins = [figure["provenance"] for figure in figures]

    def each(values):
        return ", ".join(str(value) for value in unique(values) if value is not None)

    def every(name):
        return each(origin.get(name) for origin in origins)

    dates = sorted(origin["date"] for origin in origins)
    data = each(f"{figure['corpus']} {figure['provenance']['data']}" for figure in figures)
    versions = each(f"{package} {version}" for origin in origins for package, version in origin["versions"].items())
    gpus = each(origin.get("gpu") or "none" for origin in origins)
    machine = f"{every('processor')}, threads {every('threads')}, GPU {gpus}"
    return (
        f"Made at commit {every('commit')}, {' to '.join(unique((dates[0], dates[-1])))}; data {data}; {versions}, "
        f"Python {every('python')}; {machine}; seeds {each(figure['seed'] for figure in figures)}."
    )
