"""A row of a table and one of its runs, done in a process of its own: ``python -m
fairseq_kernels.experiments.step FOLDER NUMBER``, started by Snakemake.

``FOLDER/plan`` has the steps. Where one isn't done, ``FOLDER/NUMBER.failed`` says why, or there is ``NUMBER.busy``:
another process has the run.
"""

import os
import pickle
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from filelock import FileLock, Timeout

from ..analysis.bleu import sentence_counts
from . import old_results as results
from .commands import Failed
from .files import write_text
from .runs import Run
from .tables import Row, Table


class Step(NamedTuple):
    """A row, and one of its runs.

    Args:
        measures: what is measured beside perplexity and BLEU, names of ``tables.MEASURES`` with their options.
        results: the folder of ``TABLE.json`` and ``curves/TABLE.json``.
    """

    table: Table
    row: Row
    run: Run
    measures: Mapping[str, Sequence[str]]
    results: Path

    @property
    def label(self) -> str:
        return f"{self.row.name} on {self.run.corpus.name}, seed {self.run.seed}"

    def collect(self) -> bool:
        """Puts what is there of the run into the results; whether that is all.

        Raises:
            ValueError: the run is of other data or settings, or a file is damaged.
        """
        record = self.run.finished()
        if record is None:
            return False
        measured = [self.run.measured(*measure) for measure in self.measures.items()]
        record["metrics"] += [metric for metrics in measured for metric in metrics]
        path = self.results / f"{self.table.name}.json"
        results.add(path, results.figures(self.row, self.run, record), [row.name for row in self.table.rows])
        results.add_details(self.results / "curves" / path.name, self.row.name, self.run, record, **record["curves"])
        for split in {metric["split"] for metric in record["metrics"] if metric["metric"] == "bleu"}:
            self.add_sentences(record, split)
        if all(measured):
            say(f"{self.label}: {shown(record)}")
        return all(measured)

    def add_sentences(self, record: Dict, split: str) -> None:
        """What the report's paired bootstrap needs, where fairseq-generate's output is still there."""
        output = self.run.folder / f"{split}.out"
        if output.is_file():
            sentences = [" ".join(map(str, counts)) for counts in sentence_counts(output)]  # a line each
            path = self.results / "sentences" / f"{self.table.name}.json"
            results.add_details(path, self.row.name, self.run, record, split=split, sentences=sentences)

    def execute(self) -> None:
        """Does what is left of it in this process, which must hold the run's lock."""
        if self.run.finished() is None:
            self.run.execute(self.label)
        try:
            for measure in self.measures.items():
                self.run.measure(*measure)
        finally:
            self.collect()


def say(text: str) -> None:
    """A line with the time of day."""
    with suppress(BrokenPipeError):  # the screen is closed: the step goes on
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def shown(record: Dict) -> str:
    """A record's figures in one line."""
    chosen = [m for m in record["metrics"] if not m["metric"].startswith("pi_")]
    return ", ".join(f"{m['split']} {m['metric']} {m['value']:g}" for m in chosen)


def free_device(
    folder: Path, devices: Sequence[str], stopping: Callable[[], bool] = lambda: False
) -> Tuple[FileLock, str]:
    """The first of the devices that no other process has, as CUDA_VISIBLE_DEVICES names it, and the lock that keeps it;
    waits for one.

    Raises:
        Failed: ``stopping`` says so first.
    """
    while not stopping():
        for number, device in enumerate(devices):
            lock = FileLock(folder / f"device{number}.lock")
            with suppress(Timeout):
                lock.acquire(timeout=0)
                return lock, device
        time.sleep(1)
    raise Failed("interrupted")


def write_plan(folder: Path, steps: List[Step], devices: Sequence[str]) -> None:
    """What :func:`main` reads; of the GPUs' names there is one for each step that runs at a time."""
    (folder / "plan").write_bytes(pickle.dumps((os.getcwd(), devices, steps)))


def main() -> None:
    folder, number = Path(sys.argv[1]).resolve(), sys.argv[2]
    home, devices, steps = pickle.loads((folder / "plan").read_bytes())
    os.chdir(home)  # to which the paths are relative
    step = steps[int(number)]
    try:
        with step.run.lock():
            if devices:
                # the lock is held until the process ends
                _lock, os.environ["CUDA_VISIBLE_DEVICES"] = free_device(folder, devices)
            step.execute()
    except Timeout:
        write_text(folder / f"{number}.busy", "")
        sys.exit(1)
    except (Exception, SystemExit) as error:  # whatever it is, the table tells it
        known = isinstance(error, (Failed, ValueError, OSError, SystemExit))
        if not known:
            traceback.print_exc()
        why = str(error) if known else repr(error)
        say(f"{step.label}: failed: {why}")
        write_text(folder / f"{number}.failed", why)
        sys.exit(1)


if __name__ == "__main__":
    main()
