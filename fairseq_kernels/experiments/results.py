"""``results/TABLE.json``: a list of objects, one a figure, that several processes may add to."""

import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, Sequence

from .runs import Run, write_json
from .tables import Row, Table

KEY = ("name", "corpus", "split", "metric", "profile", "seed", "config")
RUN_KEY = ("name", "corpus", "profile", "seed", "config")
LOCK = ".lock"


def figures(table: Table, row: Row, run: Run, record: Dict) -> List[Dict]:
    """The objects of one run."""
    shared = {"name": row.name, "corpus": run.corpus.name}
    measured_on_test = {metric["metric"] for metric in record["metrics"] if metric["split"] == "test"}
    found = []
    for metric in record["metrics"]:
        counterpart = metric["split"] == "test" or metric["metric"] not in measured_on_test
        paper = row.paper.get(metric["metric"]) if counterpart else None
        origin = {"profile": run.profile, "seed": run.seed, "command": record["command"]}
        origin["provenance"] = {**record["provenance"], "config": config(run)}
        found.append({**shared, **metric, "paper": paper, **origin})
    return found


def config(run: Run) -> str:
    """The options that tell a run from others with its profile and seed."""
    return " ".join(run.options)


def add(path: Path, new: List[Dict], order: List[str]) -> None:
    """Puts figures into a results file in the place of older ones of the same name, corpus, split, metric, profile,
    seed and configuration; ``order`` is the rows'."""
    merge(path, new, KEY, order)


def add_curves(path: Path, name: str, run: Run, record: Dict) -> None:
    """Puts a run's learning curves and mixture weights into ``results/curves/TABLE.json``."""
    of_run = {"corpus": run.corpus.name, "profile": run.profile, "seed": run.seed, "config": config(run)}
    merge(path, [{"name": name, **of_run, **record["curves"]}], RUN_KEY)


def merge(path: Path, new: List[Dict], key: Sequence[str], order: Sequence[str] = ()) -> None:
    """Puts objects into a file in the place of those with the same values of ``key``; in the order of their names, if
    there is one, then by the key."""
    def values_of(entry):  # a figure has its configuration in its provenance
        return tuple(str({**entry.get("provenance", {}), **entry}.get(name, "")) for name in key)

    with exclusive(path.parent):
        kept = {values_of(entry): entry for entry in [*load(path), *new]}

        def place(values):
            return order.index(values[0]) if values[0] in order else len(order), values

        write_json(path, [kept[values] for values in sorted(kept, key=place)])


def load(path: Path) -> List[Dict]:
    """A results file's objects; none if there is no file."""
    return json.loads(path.read_text()) if path.is_file() else []


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """One process at a time writes in the folder, on all machines that share it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)  # NFS locks files, not folders
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
