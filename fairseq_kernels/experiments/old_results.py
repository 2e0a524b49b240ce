"""``results/TABLE.json``: a list of objects, one a figure, that several processes may add to."""

from pathlib import Path
from typing import Dict, List, Mapping, Sequence

from .files import exclusive, read_json, write_json
from .runs import Run
from .tables import Row

RUN_KEY = ("name", "corpus", "data", "profile", "seed", "config")
KEY = (*RUN_KEY, "split", "metric", "baseline")


def figures(row: Row, run: Run, record: Dict) -> List[Dict]:
    """The objects of one run; a figure's command is its own, or in older records the run's."""
    measured_on_test = {metric["metric"] for metric in record["metrics"] if metric["split"] == "test"}
    objects = []
    for metric in record["metrics"]:
        counterpart = metric["split"] == "test" or metric["metric"] not in measured_on_test
        paper = row.paper.get(metric["metric"]) if counterpart else None
        command = metric.get("command") or record["command"]
        objects.append(figure(row, run, record, **{**metric, "command": command}, paper=paper))
    return objects


def figure(row: Row, run: Run, record: Mapping, command: str, **values) -> Dict:
    """The object of one figure, ``values``, with what the run's record says of its training."""
    values = {**record.get("trained", {}), **values}
    shared = {"profile": run.profile, "seed": run.seed, "command": command}
    origin = {**record["provenance"], "config": config(run)}
    return {"name": row.name, "corpus": run.corpus.name, **values, **shared, "provenance": origin}


def config(run: Run) -> str:
    """The options that tell a run from others with its profile and seed."""
    return " ".join(run.options)


def add(path: Path, new: List[Dict], order: List[str]) -> None:
    """Puts figures into a results file in the place of older ones of the same run, split and metric (and baseline of
    Table 4), and of all that an earlier training of the run has left; ``order`` is the rows'."""
    merge(path, new, KEY, order)


def add_details(path: Path, name: str, run: Run, record: Dict, **details) -> None:
    """Puts more of a run into a file beside its figures, ``results/curves/TABLE.json`` for instance."""
    shared = {"corpus": run.corpus.name, "data": record["provenance"]["data"], "profile": run.profile}
    merge(path, [{"name": name, **shared, "seed": run.seed, "config": config(run), **details}], KEY)


def merge(path: Path, new: List[Dict], key: Sequence[str], order: Sequence[str] = ()) -> None:
    """Puts objects into a file in the place of those with the same values of ``key``; in the order of their names, if
    there is one, then by the key."""

    def values_of(entry):
        known = {**entry.get("provenance", {}), **entry}  # a figure has some of its key in its provenance
        return tuple(known.get(name) for name in key)

    def training(entry):
        return {name: value for name, value in entry.get("provenance", {}).items() if name != "analysis_commit"}

    trainings = {values_of(entry)[: len(RUN_KEY)]: training(entry) for entry in new}
    with exclusive(path.parent):
        old = [
            entry for entry in load(path) if trainings.get(values_of(entry)[: len(RUN_KEY)]) in (None, training(entry))
        ]
        merged = {values_of(entry): entry for entry in [*old, *new]}

        def place(values):
            row = order.index(values[0]) if values[0] in order else len(order)
            return row, [(value is not None, value) for value in values]

        write_json(path, [merged[values] for values in sorted(merged, key=place)])


def append(path: Path, record: Dict) -> None:
    """Puts a benchmark's record after the others in a file."""
    with exclusive(path.parent):
        write_json(path, [*load(path), record])


def load(path: Path) -> List[Dict]:
    """A results file's objects; none if there is no file.

    Raises:
        ValueError: the file is damaged, or no list of objects.
    """
    content = read_json(path) if path.is_file() else []
    if not (isinstance(content, list) and all(isinstance(entry, dict) for entry in content)):
        raise ValueError(f"{path} holds no list of objects; move it away")
    return content
