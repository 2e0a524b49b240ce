"""The report's tables of ``scripts/table4.sh`` and ``scripts/linear_weight.sh``, from their figures in ``results/``."""

from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from ..analysis.disambiguation import interval
from .summaries import FIGURE, RUN, made, read, told_by_origin, unique
from .tables import load_table

HEADS = ["", *list(RUN)[1:]]  # of a figure's run


class Number(NamedTuple):
    """As it is shown, and the figures that it comes from."""

    text: str
    figures: List[Dict]

    def __str__(self) -> str:
        return self.text


class AnalysisTable(NamedTuple):
    """A table of the report: cells are texts or :class:`Number`; ``made`` says how, ``command`` by which commands."""

    name: str
    title: str
    source: str
    note: str
    header: List[str]
    rows: List[List]
    made: str
    command: str


def table4(figures: List[Dict]) -> Tuple[List[str], List[List]]:
    """A row a model and baseline: accuracy and log-likelihood, with the differences from lin."""
    header = [*HEADS, "against lin of", "accuracy, %", "− lin's", "log-likelihood, nats", "− lin's"]
    models: Dict[Tuple, Dict] = {}
    for figure in figures:
        run = *of_run(figure), figure["baseline"]
        models.setdefault(run, {})[figure["metric"]] = figure
    rows = []
    for run, found in models.items():
        rows.append([*run])
        for metric, unit, digits in (("cluster_accuracy", 100, 1), ("cluster_log_likelihood", 1, 3)):
            figure = found[metric]
            rows[-1].append(Number(f"{unit * figure['value']:.{digits}f}", [figure]))
            rows[-1].append(interval(figure["difference"], unit, digits + 1) if figure["difference"] else "")
    return header, rows


def linear_weight(figures: List[Dict]) -> Tuple[List[str], List[List]]:
    """A row a mixture and seed: the mean, how often it is above one half, by position and by rank."""
    every = {row["of"] for figure in figures for row in figure["details"]["by_rank"]}  # corpora differ in the last one
    positions, ranks = ("0", "1", "5", "20+"), sorted(every, key=lambda of: [int(end) for end in of.split("-")])
    header = [*HEADS, "mean", "above 0.5", *(f"at word {place}" for place in positions)]
    header += [f"rank {rank}" for rank in ranks]
    rows = []
    for figure in figures:
        details = figure["details"]
        places = {row["of"]: row["mean"] for row in (*details["by_position"], *details["by_rank"])}
        each = [places.get(name) for name in (*positions, *ranks)]
        rows.append([*of_run(figure), Number(f"{figure['value']:.3f}", [figure])])
        rows[-1].append(f"{100 * details['above_half']:.1f} %")
        rows[-1] += ["" if mean is None else f"{mean:.2f}" for mean in each]
    return header, rows


def of_run(figure: Dict) -> List[str]:
    return [str(figure[name]) for name in RUN]


class Kind(NamedTuple):
    """Of an analysis: what is read of it, and how it is shown."""

    title: str
    source: str
    note: str
    rows: Callable


ANALYSES = {
    "table4": Kind(
        "Choosing among close words",
        "Gao et al. 2019, Table 4",
        "Clusters of close words by inner product of lin's projection matrix: how often, and how surely, a model finds "
        "the right one where it knows the cluster. In brackets: 95 % intervals of a paired bootstrap over lines. The "
        "clusters, and sentences in the paper's form, are in the folder table4.",
        table4,
    ),
    "linear_weight": Kind(
        "Where the weight of lin goes",
        "Gao et al. 2019, section 4.4: always above 50 %",
        "Total weight of the linear components: its mean over the words of the text, by place in the line (from 0) and "
        "by rank of the word in training. The plot is linear_weight-CORPUS-PROFILE.svg.",
        linear_weight,
    ),
}


def load_analyses(folder: Path, names: Sequence[str] = ()) -> List[AnalysisTable]:
    """Those that have results; of the named ones all must.

    Raises:
        ValueError: a named one hasn't, or a file isn't what the scripts write.
    """
    found = []
    for name in names or ANALYSES:
        path, kind = folder / f"{name}.json", ANALYSES[name]
        figures = read(path, FIGURE)
        if not figures and names:
            raise ValueError(f"{path} has no results; bash scripts/{name}.sh makes them")
        if figures:
            figures = told_by_origin(load_table("table3"), figures).figures
            header, rows = kind.rows(figures)
            command = "\n".join(unique(figure["command"] for figure in figures))
            found.append(AnalysisTable(name, kind.title, kind.source, kind.note, header, rows, made(figures), command))
    return found
