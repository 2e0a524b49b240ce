"""Trains and evaluates a table's rows, some at a time, and writes down each as it is done.

``scripts/table1.sh`` and the others call it.
"""

import argparse
import logging
import os
import queue
import shlex
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Collection, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch

from ..errors import one_line_errors
from . import results
from .data import KINDS, Corpus
from .runs import Failed, Run
from .searched import SEARCHED, row_options, searched_on
from .tables import Row, Table, load_table
from .unigram import UnigramRun

WAIT = 5.0  # seconds between two looks at a row that another process trains
# not for fairseq-train after --, in any experiment; and in tables
OWN = {
    **dict.fromkeys(("--profile", "--save-dir"), "give it before --"),
    "--dry-run": "scripts/train_lm.sh and train_mt.sh have it",
}
NOT_AFTER = {
    **OWN,
    "--seed": "give --seeds before --",
    **dict.fromkeys(("--kernels", "--output-layer", "--stock"), "choose --rows, or call scripts/train_lm.sh itself"),
}


class Work(NamedTuple):
    """A row, and one of its runs."""

    row: Row
    run: Run

    @property
    def label(self) -> str:
        return f"{self.row.name} on {self.run.corpus.name}, seed {self.run.seed}"


class Runner:
    """Rows of one table.

    Args:
        table: the table.
        work: its runs.
        results_folder: where ``TABLE.json`` and ``curves/TABLE.json`` are.
        environments: of the trainings that go on at the same time, one each: threads, devices.
        measures: names of ``runs.MEASURES`` with their options.
        wait: for rows that other processes train; else they are theirs, and in ``left``.
    """

    def __init__(
        self,
        table: Table,
        work: Sequence[Work],
        results_folder: Path,
        environments: List[Dict[str, str]],
        measures: Dict[str, Sequence[str]],
        wait: bool = True,
    ):
        self.table, self.work, self.environments, self.measures = table, work, environments, measures
        self.wait = wait
        self.path = results_folder / f"{table.name}.json"
        self.curves = results_folder / "curves" / f"{table.name}.json"
        self.order = [row.name for row in table.rows]
        self.left: List[Work] = []
        self.failed: Dict[str, str] = {}
        self.stopping = threading.Event()

    @property
    def done(self) -> List[Work]:
        """After :meth:`run`, what it has trained or found trained."""
        return [work for work in self.work if work.label not in self.failed and work not in self.left]

    def run(self) -> None:
        """All rows; those that another process trains are waited for at the end."""
        waiting: queue.Queue[Tuple[Work, bool]] = queue.Queue()
        for work in self.work:
            waiting.put((work, False))
        workers = [threading.Thread(target=self.worker, args=(waiting, env), daemon=True) for env in self.environments]
        for worker in workers:
            worker.start()
        try:
            while any(worker.is_alive() for worker in workers):
                time.sleep(0.1)  # a join would keep Ctrl-C waiting
        finally:
            self.stopping.set()
            for worker in workers:
                worker.join()

    def worker(self, waiting, environment: Dict[str, str]) -> None:
        while not self.stopping.is_set():
            try:
                work, again = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                if not self.one(work, environment, again):
                    waiting.put((work, True))
            except Stopped:
                return
            except (Exception, SystemExit) as error:  # whatever it is, it must not end the other rows
                known = isinstance(error, (Failed, ValueError, OSError, SystemExit))
                self.failed[work.label] = str(error) if known else repr(error)
                say(f"{work.label}: failed: {self.failed[work.label]}")

    def one(self, work: Work, environment: Dict[str, str], again: bool) -> bool:
        """False: another process is at it."""
        row, run = work
        with run.locked() as lock:
            if lock is None:
                if not again:
                    what = "it is waited for" if self.wait else "left to it"
                    say(f"{work.label}: another process has {run.folder}; {what}")
                if not self.wait:
                    self.left.append(work)
                    return True
                self.stopping.wait(WAIT)
                return False
            record = run.finished()
            if record is None:
                if not row.unigram:
                    say(f"{work.label}: training {'goes on' if run.log.is_file() else 'starts'} (log: {run.log})")
                record = run.execute(lock, environment, self.stop)
            self.write(work, record)
            for measure, options in self.measures.items():
                if run.corpus.kind == "lm" and not row.unigram and "--stock" not in run.options:
                    record["metrics"] += run.measured(measure, options, lock, environment, self.stop)
                    self.write(work, record)
        say(f"{work.label}: {shown(record)}")
        return True

    def write(self, work: Work, record: Dict) -> None:
        results.add(self.path, results.figures(self.table, work.row, work.run, record), self.order)
        results.add_curves(self.curves, work.row.name, work.run, record)

    def stop(self) -> bool:
        if self.stopping.is_set():
            raise Stopped()
        return False


class Stopped(Exception):
    """The table is being interrupted."""


def say(text: str) -> None:
    """A line with the time of day; fairseq's import has taken the loggers for itself."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def shown(record: Dict) -> str:
    """A record's figures in one line."""
    chosen = [m for m in record["metrics"] if not m["metric"].startswith("pi_")]
    return ", ".join(f"{m['split']} {m['metric']} {m['value']:g}" for m in chosen)


def environments(jobs: int) -> List[Dict[str, str]]:
    """Of ``jobs`` trainings at a time (0: one a GPU, or one a core): a GPU each, or an equal part of the cores where
    OMP_NUM_THREADS doesn't say how many threads."""
    if torch.cuda.is_available():
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = given.split(",") if given else [str(index) for index in range(torch.cuda.device_count())]
        found = {"FOUND_DEVICE": "cuda"}  # which saves the scripts looking
        return [{**found, "CUDA_VISIBLE_DEVICES": devices[job % len(devices)]} for job in range(jobs or len(devices))]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs = jobs or cores
    given = os.environ.get("OMP_NUM_THREADS", "")
    threads = given if given.isdigit() else str(max(1, cores // jobs))
    return [{"FOUND_DEVICE": "cpu", "OMP_NUM_THREADS": threads} for _ in range(jobs)]


def in_array() -> bool:
    """Whether this is a task of a SLURM array job."""
    return "SLURM_ARRAY_TASK_ID" in os.environ


def begin_of_task(work: List[Work]) -> List[Work]:
    """The work in an array task's own order, in which each task begins elsewhere."""
    if not (in_array() and work):
        return work
    first = (int(os.environ["SLURM_ARRAY_TASK_ID"]) - int(os.environ.get("SLURM_ARRAY_TASK_MIN", "0"))) % len(work)
    return work[first:] + work[:first]


def options_of(row: Row, corpus: Corpus, profile: str) -> Optional[Sequence[str]]:
    """Of the training script; None, and a line that says why, where the row can't be on this corpus."""
    left_out = f"{row.name} on {corpus.name}: left out"
    if row.kind not in ("", corpus.kind):
        say(f"{left_out}, as it is for {KINDS[row.kind]}")
        return None
    point = SEARCHED, corpus.name, profile
    options = row_options(*point, row)
    data = searched_on(*point, row.searched) if row.searched else None
    if options is None or data not in (None, corpus.fingerprint):
        search = ["bash", "scripts/grid_search.sh", str(corpus.folder), "--kernel", row.searched, "--profile", profile]
        why = f"the search was on data {data}, this is {corpus.fingerprint}"
        say(f"{left_out}, as {'no search was made' if options is None else why}: {shlex.join(search)}")
        return None
    return options


def runs_of(rows: Sequence[Row], corpora: Sequence[Corpus], args: argparse.Namespace) -> List[Work]:
    """The rows on each corpus with each seed; the unigram on text of one language, once."""
    work = []
    for corpus in corpora:
        for seed in args.seeds:
            for row in rows:
                if not row.unigram:
                    options = options_of(row, corpus, args.profile)
                    if options is not None:
                        work.append(Work(row, Run(corpus, args.profile, (*options, *args.extra), seed, args.save_dir)))
                elif corpus.kind == "lm" and seed == args.seeds[0]:  # its own is always 1: there is no chance in it
                    work.append(Work(row, UnigramRun(corpus, args.profile, ("unigram",), 1, args.save_dir)))
    return work


def parse_with_extra(
    parser: argparse.ArgumentParser, argv: Sequence[str], own: Mapping[str, str]
) -> Tuple[argparse.Namespace, Tuple[str, ...]]:
    """The arguments before ``--``, and fairseq-train's after it: none of ``own``, whose values say what to do."""
    end = argv.index("--") if "--" in argv else len(argv)
    args, extra = parser.parse_args(argv[:end]), tuple(argv[end + 1 :])
    for option in (word.partition("=")[0] for word in extra):
        if option in own:
            parser.error(f"{option} after -- is not allowed: every training here has its own; {own[option]}")
    return args, extra


@contextmanager
def interruptible(program: str) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal end the program in one line, in a shell's background jobs too; but for
    nohup's. A second Ctrl-C doesn't end it sooner: trainings would be left behind."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)

    def interrupt(*_):
        for number in numbers:
            signal.signal(number, lambda *_: None)  # SIG_IGN would be the commands' too
        raise KeyboardInterrupt

    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(f"{program}: interrupted; the same command goes on where it stopped")
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    name, *argv = argv
    parser = argparse.ArgumentParser(
        prog=f"{name}.sh",
        description="Trains and evaluates the rows of a table. A finished row isn't run again, a broken one goes on; "
        "the same command in several places shares the rows, so do the tasks of a SLURM array. What follows -- goes "
        "to every row's training.",
    )
    parser.add_argument("data", nargs="+", type=Path, help="folders of data-prep scripts: text, parallel text or both")
    parser.add_argument(
        "--profile", choices=["cpu", "paper"], help="sizes, budget (default: paper with a GPU, else cpu)"
    )
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW", help="some rows (default: all)")
    parser.add_argument("--seeds", nargs="+", default=["1"], metavar="SEED", help="default: 1")
    parser.add_argument("--jobs", type=int, default=0, help="trainings at a time (default: one a GPU, or one a core)")
    for name, default, use in (
        ("save-dir", "checkpoints/tables", "of the runs"),
        ("results", "results", "of TABLE.json"),
    ):
        parser.add_argument(f"--{name}", type=Path, default=Path(default), help=f"folder {use} (default: {default})")
    parser.add_argument("--simlex", type=Path, help="SimLex-999.txt, to score language models' embeddings by")
    args, args.extra = parse_with_extra(parser, argv, NOT_AFTER)
    args.program = parser.prog
    args.rows, seeds = ([word for given in words for word in given.split()] for words in (args.rows, args.seeds))
    if not (seeds and all(seed.isdigit() and int(seed) > 0 for seed in seeds)):
        parser.error(f"--seeds {' '.join(seeds)} is not allowed: give integers >= 1, as in --seeds 1 2 3")
    args.seeds = [int(seed) for seed in seeds]
    if args.jobs < 0:
        parser.error(f"--jobs {args.jobs} is not allowed: give 1 or more, or 0 for one a GPU or core")
    if args.simlex is not None and not args.simlex.is_file():
        parser.error(
            f"--simlex {args.simlex} not found; its authors' page, fh295.github.io/simlex.html, has SimLex-999.txt"
        )
    if args.simlex is not None:
        from ..analysis.word_similarity import read_pairs  # its imports take a second

        read_pairs(args.simlex)
    if args.profile is None:
        args.profile = "paper" if torch.cuda.is_available() else "cpu"
    return args


def run_table(table: Table, rows: Sequence[Row], args: argparse.Namespace) -> Runner:
    """Trains and evaluates the rows as the arguments say.

    Raises:
        ValueError: of the data, of what searches have found, or of files with results.
    """
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    corpora = [Corpus.at(folder) for folder in args.data]
    for corpus in corpora:
        corpus.check()
    measures = {name: [] for name in table.measures}
    if args.simlex is not None:
        measures["simlex"] = ["--simlex", str(args.simlex)]
    work = begin_of_task(runs_of(rows, corpora, args))
    runner = Runner(table, work, args.results, environments(args.jobs), measures, wait=not in_array())
    for path in (runner.path, runner.curves):
        results.load(path)  # not only when there is something to add
    runner.run()
    return runner


def end(program: str, failed: Collection[str]) -> None:
    """Ends the program with an error where something has failed."""
    if failed:
        sys.exit(f"{program}: failed: {'; '.join(failed)}; the same command tries these again")


def main() -> None:
    with one_line_errors():
        table = load_table(sys.argv[1])
        args = parse(sys.argv[1:])
        rows = table.chosen(args.rows)
    with interruptible(args.program):
        with one_line_errors():
            runner = run_table(table, rows, args)
    end(args.program, runner.failed)


if __name__ == "__main__":
    main()
