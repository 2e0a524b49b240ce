"""One step of a table, in a process of its own: ``python -m fairseq_kernels.experiments.jobs FOLDER NUMBER``.

``FOLDER/jobs.json`` has the steps: each a training with its evaluation, or a measurement. What became of one is in
``FOLDER/outcomes/NUMBER.done``, or ``.failed`` with the reason, or ``.busy`` where another process has the run.
"""

import os
import sys
import time
import traceback
from pathlib import Path
from typing import Dict, Sequence, Tuple

from filelock import FileLock, Timeout

from .commands import Failed
from .data import Corpus
from .files import read_json, write_text
from .runs import Run
from .unigram import UnigramRun


def job(run: Run, measure: Sequence = (), after: Sequence[int] = ()) -> Dict:
    """A step as JSON: a training, or what is measured (name, options) of a run; ``after`` are the steps before it."""
    described = {"profile": run.profile, "options": run.options, "seed": run.seed}
    described.update(unigram=isinstance(run, UnigramRun), corpus=str(run.corpus.folder), root=str(run.root))
    return {"run": described, "measure": measure, "after": after}


def run_of(corpus: str, root: str, options: Sequence[str], unigram: bool, **described) -> Run:
    """The run that :func:`job` has described."""
    kind = UnigramRun if unigram else Run
    return kind(Corpus.at(Path(corpus)), options=tuple(options), root=Path(root), **described)


def free_device(folder: Path, devices: Sequence[str]) -> Tuple[FileLock, str]:
    """The first of the devices that no other process has, as CUDA_VISIBLE_DEVICES names it, and the lock that keeps it;
    waits for one."""
    while True:
        for number, device in enumerate(devices):
            lock = FileLock(folder / f"device{number}.lock")
            try:
                lock.acquire(timeout=0)
                return lock, device
            except Timeout:
                pass
        time.sleep(1)


def main() -> None:
    folder, number = Path(sys.argv[1]).resolve(), sys.argv[2]
    plan = read_json(folder / "jobs.json")
    os.chdir(plan["cwd"])  # to which the folders are relative
    step = plan["jobs"][int(number)]
    outcome = folder / "outcomes" / number
    try:
        run = run_of(**step["run"])
        with run.lock():
            if plan["devices"]:
                # the lock is held until the process ends
                _lock, os.environ["CUDA_VISIBLE_DEVICES"] = free_device(folder, plan["devices"])
            if step["measure"]:
                run.measure(*step["measure"])
            elif run.finished() is None:
                run.execute()
    except Timeout:
        write_text(outcome.with_suffix(".busy"), "")
        sys.exit(1)
    except (Exception, SystemExit) as error:  # whatever it is, the table tells it
        known = isinstance(error, (Failed, ValueError, OSError, SystemExit))
        if not known:
            traceback.print_exc()
        write_text(outcome.with_suffix(".failed"), str(error) if known else repr(error))
        sys.exit(1)
    write_text(outcome.with_suffix(".done"), "")


if __name__ == "__main__":
    main()
