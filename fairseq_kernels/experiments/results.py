"""``results/TABLE.json``: a list of objects, one a figure, that several processes may add to."""

import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, Optional

from .runs import Run, write_json
from .tables import Row, Table

KEY = ("name", "corpus", "split", "metric", "profile", "seed")


def figures(table: Table, row: Row, run: Run, record: Dict) -> List[Dict]:
    """The objects of one run."""
    shared = {"name": row.name, "corpus": run.corpus.name}
    measured_on_test = {metric["metric"] for metric in record["metrics"] if metric["split"] == "test"}
    found = []
    for metric in record["metrics"]:
        counterpart = metric["split"] == "test" or metric["metric"] not in measured_on_test
        paper = row.paper.get(metric["metric"]) if counterpart else None
        origin = {"profile": run.profile, "seed": run.seed, "command": record["command"]}
        origin["provenance"] = {**record["provenance"], "config": " ".join(run.options)}
        found.append({**shared, **metric, "paper": paper, **origin})
    return found


def add(path: Path, new: List[Dict], order: List[str]) -> None:
    """Puts figures into a results file in the place of older ones of the same name, corpus, split, metric, profile and
    seed; ``order`` is the rows'."""
    with exclusive(path.parent):
        kept = {tuple(figure[name] for name in KEY): figure for figure in [*load(path), *new]}

        def place(figure):
            known = order.index(figure["name"]) if figure["name"] in order else len(order)
            return known, *(figure[name] for name in KEY)

        write_json(path, sorted(kept.values(), key=place))


def add_curves(path: Path, name: str, run: Run, record: Dict) -> None:
    """Puts a run's learning curves and mixture weights into ``results/curves/TABLE.json``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(path.parent):
        content = {(entry["name"], entry["corpus"], entry["profile"], entry["seed"]): entry for entry in load(path)}
        key = name, run.corpus.name, run.profile, run.seed
        content[key] = dict(zip(("name", "corpus", "profile", "seed"), key), **record["curves"])
        write_json(path, [content[key] for key in sorted(content)])


def load(path: Path) -> List[Dict]:
    """A results file's objects; none if there is no file."""
    return json.loads(path.read_text()) if path.is_file() else []


def value_of(found: List[Dict], **wanted) -> Optional[float]:
    """The figure that has these values, as in ``value_of(found, name="lin", metric="ppl", split="test", seed=1)``."""
    return next((f["value"] for f in found if all(f[key] == value for key, value in wanted.items())), None)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """One process at a time writes in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
