"""Runs a table's rows through Snakemake, shows their progress, and writes down each as it is done.

``scripts/table.sh`` calls it.
"""

import argparse
import ctypes
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, Collection, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from filelock import FileLock, Timeout

from ..errors import one_line_errors
from . import results
from .commands import last_line
from .data import KINDS, Corpus
from .files import exclusive, write_json
from .jobs import job
from .profiles import profiles
from .progress import SECONDS, Progress
from .runs import Run
from .searched import SEARCHED, row_options, searched_on
from .tables import Row, Table, checkout, load_table
from .training import default_profile
from .unigram import UnigramRun

WAIT = 1.0  # seconds between two looks at the runs
GRACE = 30  # seconds that Snakemake has to end in, when it is stopped
LIBC = ctypes.CDLL(None)
SNAKEFILE = Path(__file__).with_name("Snakefile")
RESULTS = Path("checkpoints") / "results"  # of a user; the published ones are in results/
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


class Workflow:
    """Rows of one table.

    Args:
        table: the table.
        work: its runs.
        results_folder: where ``TABLE.json`` and ``curves/TABLE.json`` are.
        measures: names of ``runs.MEASURES`` with their options.
        jobs: how many at a time.
        profile: folder of a Snakemake profile, for a cluster; else everything runs on this machine.
    """

    def __init__(
        self,
        table: Table,
        work: Sequence[Work],
        results_folder: Path,
        measures: Mapping[str, Sequence[str]],
        jobs: int,
        profile: Optional[Path] = None,
    ):
        self.table, self.work, self.measures, self.jobs, self.profile = table, list(work), measures, jobs, profile
        self.path = results_folder / f"{table.name}.json"
        self.curves = results_folder / "curves" / f"{table.name}.json"
        self.failed: Dict[str, str] = {}

    @property
    def done(self) -> List[Work]:
        """After :meth:`run`, what is trained."""
        return [work for work in self.work if work.label not in self.failed]

    def run(self) -> None:
        """All rows; those that another process has are waited for."""
        left = [work for work in self.work if not self.collect(work)]
        if left:
            say(f"{len(left)} to run, {self.jobs} at a time; logs: train.log in the folders in {left[0].run.root}")
        while left:
            with own_folder(left[0].run.root) as folder:
                busy = Pass(self, folder, left).run()
            for work in busy:
                with work.run.lock().acquire(timeout=-1, poll_interval=WAIT):
                    pass
            left = [work for work in busy if not self.collect(work)]

    def steps(self, run: Run) -> List[Tuple[str, Sequence[str]]]:
        """What is measured of a run."""
        own = run.corpus.kind == "lm" and not isinstance(run, UnigramRun) and "--stock" not in run.options
        return list(self.measures.items()) if own else []

    def collect(self, work: Work) -> bool:
        """Puts what is there of a run into the results; whether that is all, or the run has failed."""
        try:
            record = work.run.finished()
            if record is None:
                return False
            measured = [work.run.measured(*step) for step in self.steps(work.run)]
            record["metrics"] += [metric for metrics in measured for metric in metrics]
            results.add(self.path, results.figures(self.table, work.row, work.run, record), self.order)
            results.add_curves(self.curves, work.row.name, work.run, record)
        except (ValueError, OSError) as error:
            self.fail(work, str(error))
            return True
        if all(measured):
            say(f"{work.label}: {shown(record)}")
        return all(measured)

    @property
    def order(self) -> List[str]:
        return [row.name for row in self.table.rows]

    def fail(self, work: Work, why: str) -> None:
        self.failed[work.label] = why
        say(f"{work.label}: failed: {why}")


class Pass:
    """A call of Snakemake for some runs.

    Args:
        workflow: what they belong to.
        folder: for its files; no other process has it.
        work: the runs.
    """

    def __init__(self, workflow: Workflow, folder: Path, work: Sequence[Work]):
        self.workflow, self.folder, self.log = workflow, folder, folder / "snakemake.log"
        self.jobs: List[Dict] = []
        self.works: List[Work] = []  # what each job belongs to
        for each in work:
            first = len(self.jobs)
            self.jobs.append(job(each.run))
            self.jobs += [job(each.run, step, [first]) for step in workflow.steps(each.run)]
            self.works += [each] * (len(self.jobs) - first)

    def command(self) -> List[str]:
        threads = threads_of(self.workflow.jobs)
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE), "--directory", str(self.folder)]
        # what is done is said by files of ours, each renamed into its place: nothing is incomplete or out of date
        command += ["--nolock", "--ignore-incomplete", "--keep-incomplete", "--drop-metadata", "--keep-going"]
        command += ["--rerun-triggers", "input", "--nocolor", "--config", f"threads={threads}"]
        if self.workflow.profile is not None:
            return [*command, "--workflow-profile", str(self.workflow.profile.resolve())]
        return [*command, "--cores", str(self.workflow.jobs * threads)]

    def run(self) -> List[Work]:
        """Runs them; those that other processes have."""
        (self.folder / "outcomes").mkdir()
        here = devices(self.workflow.jobs) if self.workflow.profile is None else []  # a cluster gives a job its own
        write_json(self.folder / "jobs.json", {"cwd": os.getcwd(), "devices": here, "jobs": self.jobs})
        progress = {each.label: Progress(each.run.log, shlex.split(each.run.arguments())) for each in self.works}
        with open(self.log, "w") as log:
            process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=die_with_parent,
            )  # fmt: skip
        outcomes: Dict[int, str] = {}
        try:
            last = time.monotonic()
            while True:
                ended = process.poll() is not None
                self.look(outcomes)
                if ended:
                    break
                if time.monotonic() > last + SECONDS:
                    last = time.monotonic()
                    for each in self.works:
                        for line in progress[each.label].lines():
                            say(f"{each.label}: {line}")
                time.sleep(WAIT)
        finally:
            stop(process, gently=self.workflow.profile is not None)
        return self.ended(outcomes)

    def look(self, outcomes: Dict[int, str]) -> None:
        """Notes what has become of steps since the last look."""
        for number, work in enumerate(self.works):
            for kind in ("done", "failed", "busy"):
                path = self.folder / "outcomes" / f"{number}.{kind}"
                if number not in outcomes and path.is_file():
                    outcomes[number] = kind
                    if kind == "done":
                        self.workflow.collect(work)
                    elif kind == "failed":
                        self.workflow.fail(work, path.read_text())
                    else:
                        say(f"{work.label}: another process has {work.run.folder}; it is waited for")

    def ended(self, outcomes: Dict[int, str]) -> List[Work]:
        """Fails the runs without an outcome, but for what comes after another's; those that are busy."""
        busy = [work for number, work in enumerate(self.works) if outcomes.get(number) == "busy"]
        for number, work in enumerate(self.works):
            if number not in outcomes and work not in busy and work.label not in self.workflow.failed:
                said = f"Snakemake's last line: {last_line(self.log)}; logs: {self.log}, {work.run.log}"
                self.workflow.fail(work, f"ended without a word, killed or with the disk full ({said})")
        return list({work.label: work for work in busy}.values())


@contextmanager
def own_folder(root: Path) -> Iterator[Path]:
    """A new folder for this process in ``ROOT/workflows``, where those of processes that have ended are removed."""
    folders = root / "workflows"
    with exclusive(root):
        for folder in folders.glob("*"):
            with suppress(Timeout), FileLock(folder / "lock", timeout=0):
                shutil.rmtree(folder)
        folders.mkdir(exist_ok=True)
        # trainings of a process that was killed may still write to its folder: no name is used again
        folder = Path(tempfile.mkdtemp(dir=folders, prefix=time.strftime("%Y%m%d-%H%M%S-")))
        lock = FileLock(folder / "lock")
        lock.acquire()
    try:
        yield folder
    finally:
        lock.release()


def die_with_parent() -> None:
    """Snakemake's end is that of the table, even by SIGKILL; its trainings go on, and hold their runs' locks."""
    if hasattr(LIBC, "prctl"):  # Linux alone
        LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def stop(process: subprocess.Popen, gently: bool) -> None:
    """Ends Snakemake and its jobs on this machine; ``gently`` first, so that it cancels those on a cluster."""
    if process.poll() is None and gently:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            pass
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                pass


def say(text: str) -> None:
    """A line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def shown(record: Dict) -> str:
    """A record's figures in one line."""
    chosen = [m for m in record["metrics"] if not m["metric"].startswith("pi_")]
    return ", ".join(f"{m['split']} {m['metric']} {m['value']:g}" for m in chosen)


def gpus() -> List[str]:
    """As CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not torch.cuda.is_available():
        return []
    return given.split(",") if given else [str(index) for index in range(torch.cuda.device_count())]


def devices(jobs: int) -> List[str]:
    """The GPU of each of ``jobs`` trainings at a time; none without a GPU."""
    known = gpus()
    return [known[number % len(known)] for number in range(jobs)] if known else []


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of(jobs: int) -> int:
    """Of a training: an equal part of the cores where OMP_NUM_THREADS doesn't say."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) else max(1, cores() // jobs)


def options_of(row: Row, corpus: Corpus, profile: str, searched: Path = SEARCHED) -> Optional[Sequence[str]]:
    """Of the training script; None, and a line that says why, where the row can't be on this corpus."""
    left_out = f"{row.name} on {corpus.name}: left out"
    if row.kind not in ("", corpus.kind):
        say(f"{left_out}, as it is for {KINDS[row.kind]}")
        return None
    point = searched, corpus.name, profile
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
                    options = options_of(row, corpus, args.profile, args.searched)
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
def interruptible(program: str, at_once: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal end the program in one line, in a shell's background jobs too; but for
    nohup's. A second Ctrl-C doesn't end it sooner: trainings would be left behind. ``at_once``
    is called first."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)

    def interrupt(*_):
        for number in numbers:
            signal.signal(number, lambda *_: None)  # SIG_IGN would be the commands' too
        at_once()
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
    parser = argparse.ArgumentParser(prog=f"{name}.sh", add_help=False, allow_abbrev=False)
    parser.usage = f"bash scripts/table.sh {name} DATA... [options] (--help tells more)"
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--profile", choices=sorted({*profiles("lm"), *profiles("mt")}), default=default_profile())
    parser.add_argument("--rows", nargs="+", default=[])
    parser.add_argument("--seeds", nargs="+", default=["1"])
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--save-dir", type=Path, default=Path("checkpoints") / "tables")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--publish", action="store_const", dest="results", const=checkout("results"))
    parser.add_argument("--searched", type=Path, default=SEARCHED)
    parser.add_argument("--simlex", type=Path)
    parser.add_argument("--workflow-profile", type=Path)
    args, args.extra = parse_with_extra(parser, argv, NOT_AFTER)
    args.program = parser.prog
    args.rows, seeds = ([word for given in words for word in given.split()] for words in (args.rows, args.seeds))
    if not (seeds and all(seed.isdigit() and int(seed) > 0 for seed in seeds)):
        parser.error(f"--seeds {' '.join(seeds)} is not allowed: give integers >= 1, as in --seeds 1 2 3")
    args.seeds = [int(seed) for seed in seeds]
    if args.jobs < 0:
        parser.error(f"--jobs {args.jobs} is not allowed: give 1 or more, or 0 for one a GPU or core")
    args.jobs = args.jobs or len(gpus()) or cores()
    for option, path in (("--simlex", args.simlex), ("--workflow-profile", args.workflow_profile)):
        if path is not None and not path.exists():
            parser.error(f"{option} {path} not found")
    if args.simlex is not None:
        from ..analysis.word_similarity import read_pairs  # its imports take a second

        read_pairs(args.simlex)
    return args


def run_table(table: Table, rows: Sequence[Row], args: argparse.Namespace) -> Workflow:
    """Trains and evaluates the rows as the arguments say.

    Raises:
        ValueError: of the data, of what searches have found, of files with results, or there is no Snakemake.
    """
    corpora = [Corpus.at(folder) for folder in args.data]
    for corpus in corpora:
        corpus.check()
        if args.profile not in profiles(corpus.kind):
            known = ", ".join(profiles(corpus.kind))
            raise ValueError(f"--profile {args.profile} is not for {KINDS[corpus.kind]}; choose from {known}")
    measures = {name: [] for name in table.measures}
    if args.simlex is not None:
        measures["simlex"] = ["--simlex", str(args.simlex)]
    if importlib.util.find_spec("snakemake") is None:
        how = "pip install '.[tables]' in a clone" if sys.version_info >= (3, 11) else "it wants Python 3.11 or newer"
        raise ValueError(f"tables need Snakemake: {how}")
    workflow = Workflow(table, runs_of(rows, corpora, args), args.results, measures, args.jobs, args.workflow_profile)
    for path in (workflow.path, workflow.curves):
        results.load(path)  # not only when there is something to add
    workflow.run()
    return workflow


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
            workflow = run_table(table, rows, args)
    if workflow.path.is_file():
        print(f"figures: {workflow.path}")
    end(args.program, workflow.failed)


if __name__ == "__main__":
    main()
