"""Runs a table's rows through Snakemake. ``scripts/table.sh`` calls it."""

import argparse
import ctypes
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
from typing import Callable, Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from filelock import FileLock, Timeout

from ..errors import CommandParser, one_line_errors
from . import old_results as results
from .commands import last_line
from .data import Corpus
from .files import check_folder, exclusive, to_folder
from .profiles import profiles
from .runs import Run, UnigramRun, check_extra
from .searched import SEARCHED, row_options, searched_entry
from .step import Step, say, write_plan
from .tables import KINDS, RESULTS, Row, Table, checkout, load_table
from .training import default_profile

WAIT = 1.0  # seconds between two looks at a run that another process has
SEEDS = 2**31  # those below are allowed, as fairseq-train's
GRACE = 30  # seconds that Snakemake has to end in, when it is stopped
LIBC = ctypes.CDLL(None)
SNAKEFILE = Path(__file__).with_name("Snakefile")
# not for fairseq-train after --, in any experiment; and in tables
OWN = {
    **dict.fromkeys(("--profile", "--save-dir"), "give it before --"),
    "--log-format": "figures are read from it",
    **dict.fromkeys(("--disable-validation", "--valid-subset"), "figures are of the best checkpoint on valid"),
    **dict.fromkeys(("--no-save", "--no-last-checkpoints"), "figures are of the best and last checkpoints"),
    "--dry-run": "scripts/train_lm.sh and train_mt.sh have it",
}
NOT_AFTER = {
    **OWN,
    "--seed": "give --seeds before --",
    **dict.fromkeys(("--kernels", "--output-layer", "--stock"), "choose --rows, or call scripts/train_lm.sh itself"),
}


def run_steps(steps: Sequence[Step], jobs: int, profile: Optional[Path] = None) -> Dict[str, str]:
    """Runs what isn't done, and waits for what other processes have; why steps failed, by their labels.

    Args:
        jobs: how many at a time.
        profile: folder of a Snakemake profile, for a cluster; else everything runs on this machine.
    """
    failed: Dict[str, str] = {}

    def undone(steps: Sequence[Step]) -> List[Step]:
        left = []
        for step in steps:
            try:
                left += [] if step.collect() else [step]
            except (ValueError, OSError) as error:
                failed[step.label] = str(error)
                say(f"{step.label}: failed: {error}")
        return left

    left = undone(steps)
    if left:
        say(f"{len(left)} to run, {jobs} at a time; logs: train.log in the folders in {left[0].run.root}")
    while left:
        with own_folder(left[0].run.root) as folder:
            snakemake(folder, left, jobs, profile)
            busy = [step for number, step in enumerate(left) if (folder / f"{number}.busy").exists()]
            for number, step in enumerate(left):
                said, done = (folder / f"{number}.{kind}" for kind in ("failed", "done"))
                if step not in busy and not done.exists():
                    logs = f"Snakemake's last line: {last_line(folder / 'log')}; logs: {folder / 'log'}, {step.run.log}"
                    killed = f"ended without a word, killed or with the disk full ({logs})"
                    failed[step.label] = said.read_text(encoding="utf-8") if said.exists() else killed
                    if profile is not None or not said.exists():  # on this machine the step has said it
                        say(f"{step.label}: failed: {failed[step.label]}")
        for step in busy:
            say(f"{step.label}: another process has {step.run.folder}; it is waited for")
            with step.run.lock().acquire(timeout=-1, poll_interval=WAIT):
                pass
        left = undone(busy)
    return failed


def snakemake(folder: Path, steps: List[Step], jobs: int, profile: Optional[Path]) -> None:
    """Calls Snakemake for the steps, once, with a folder of its own."""
    here = devices(jobs) if profile is None else []  # a cluster gives a job its own
    write_plan(folder, steps, here)
    threads = threads_of(jobs)
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE), "--directory", str(folder)]
    # what is done is said by files of ours, each renamed into its place: nothing is incomplete or out of date
    command += ["--nolock", "--ignore-incomplete", "--keep-incomplete", "--drop-metadata", "--keep-going"]
    command += ["--rerun-triggers", "input", "--nocolor", "--config", f"threads={threads}", f"steps={len(steps)}"]
    if profile is None:
        command += ["--cores", str(jobs * threads)]
    else:
        command += ["--workflow-profile", str(profile.resolve())]
    with open(folder / "log", "w") as log:
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder)}  # Snakemake's, as HOME may not be writable
        how = {"env": environment, "start_new_session": True, "preexec_fn": die_with_parent}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, **how)
    try:
        process.wait()
    finally:
        stop(process, gently=profile is not None)


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
    for number in [signal.SIGINT] * gently + [signal.SIGTERM, signal.SIGKILL]:
        if process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.send_signal(number) if number == signal.SIGINT else os.killpg(process.pid, number)
                process.wait(GRACE)


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
    return int(given) if given.isdecimal() and int(given) else max(1, cores() // jobs)


def options_of(row: Row, corpus: Corpus, profile: str, searched: Path = SEARCHED) -> Optional[Sequence[str]]:
    """Of the training script; None, and a line that says why, where the row can't be on this corpus or profile."""
    why, point = "", (searched, corpus.name, profile)
    if row.kind not in ("", corpus.kind):
        why = f"it is for {KINDS[row.kind]}"
    elif row.profile_options and profile not in row.profile_options:
        why = f"it has no size for --profile {profile}, but for {', '.join(row.profile_options)}"
    elif row.searched:
        entry = searched_entry(*point, row.searched)
        data = ((entry or {}).get("origin") or {}).get("data", corpus.fingerprint)
        if entry is None or data != corpus.fingerprint:
            search = ["bash", "scripts/grid_search.sh", str(corpus.folder), "--kernel", row.searched]
            other = f"the search in {searched} was on data {data}, this is {corpus.fingerprint}"
            why = other if entry else f"{searched} has no search of it"
            why = f"{why}; give --searched the file that this makes: {shlex.join([*search, '--profile', profile])}"
    if why:
        say(f"{row.name} on {corpus.name}: left out, as {why}")
        return None
    return row_options(*point, row)


def steps_of(table: Table, rows: Sequence[Row], args: argparse.Namespace) -> List[Step]:
    """The rows on each corpus with each seed; the unigram on text of one language, once.

    Raises:
        ValueError: of the data, of what searches have found, or of files with results; or nothing can be run.
        SystemExit: one line: fairseq-train refuses the options after ``--``.
    """
    for folder in (args.results, args.results / "curves", args.results / "sentences"):
        results.load(folder / f"{table.name}.json")  # not only when there is something to add
    measures = {name: [] for name in table.measures}
    if args.simlex is not None:
        measures["simlex"] = ["--simlex", str(args.simlex)]
    steps, corpora = [], [Corpus.at(folder) for folder in args.data]
    names = [corpus.name for corpus in corpora]
    for corpus in corpora:
        corpus.check()
        if names.count(corpus.name) > 1:
            raise ValueError(f"two corpora are called {corpus.name}; give data in folders of different names")
        if args.profile not in profiles(corpus.kind):
            known = ", ".join(profiles(corpus.kind))
            raise ValueError(f"--profile {args.profile} is not for {KINDS[corpus.kind]}; choose from {known}")
        for seed in args.seeds:
            for row in rows:
                run = run_of(row, corpus, seed, args)
                own = corpus.kind == "lm" and not row.unigram and "--stock" not in row.options
                steps += [Step(table, row, run, measures if own else {}, args.results)] if run else []
    if not steps:
        raise ValueError("none of the rows can be run, as the lines above say; choose others, or other DATA")
    check_extra(args.extra, [step.run for step in steps])
    for option, folder in (("--results", args.results), ("--save-dir", args.save_dir)):
        check_folder(f"{option} {folder}", folder)
    return steps


def run_of(row: Row, corpus: Corpus, seed: int, args: argparse.Namespace) -> Optional[Run]:
    """None where the row can't be on this corpus, and of the unigram, the same with every seed, but with the first."""
    if not row.unigram:
        options = options_of(row, corpus, args.profile, args.searched)
        return None if options is None else Run(corpus, args.profile, (*options, *args.extra), seed, args.save_dir)
    if corpus.kind == "lm" and seed == args.seeds[0]:
        return UnigramRun(corpus, args.profile, ("unigram",), 1, args.save_dir)
    return None


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
    parser = CommandParser(prog=f"{name}.sh", add_help=False)
    parser.usage = f"bash scripts/table.sh {name} DATA... [options] (--help tells more)"
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--profile", choices=sorted({*profiles("lm"), *profiles("mt")}), default=default_profile())
    parser.add_argument("--rows", nargs="+", action="extend", default=[])
    parser.add_argument("--seeds", nargs="+", action="extend", default=[])
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--save-dir", type=to_folder, default=Path("checkpoints") / "tables")
    parser.add_argument("--results", type=to_folder, default=RESULTS)
    parser.add_argument("--publish", action="store_const", dest="results", const=checkout("results"))
    parser.add_argument("--searched", type=Path, default=SEARCHED)
    parser.add_argument("--simlex", type=Path)
    parser.add_argument("--workflow-profile", type=Path)
    args, args.extra = parse_with_extra(parser, argv, NOT_AFTER)
    args.program = parser.prog
    args.rows, seeds = (" ".join(words).split() for words in (args.rows, args.seeds or ["1"]))
    if not (seeds and all(seed.isdecimal() and 0 < int(seed) < SEEDS for seed in seeds)):
        parser.error(f"--seeds {' '.join(seeds)} is not allowed: give integers from 1 to {SEEDS - 1}, as --seeds 1 2 3")
    args.seeds = list(dict.fromkeys(map(int, seeds)))
    if args.jobs < 0:
        parser.error(f"--jobs {args.jobs} is not allowed: give 1 or more, or 0 for one a GPU or core")
    args.jobs = args.jobs or len(gpus()) or cores()
    files = {"--simlex": args.simlex, "--searched": args.searched, "--workflow-profile": args.workflow_profile}
    for option, path in files.items():
        if path not in (None, SEARCHED) and not path.exists():
            parser.error(f"{option} {path} not found")
    if args.workflow_profile is not None and not any(args.workflow_profile.glob("config*.yaml")):
        parser.error(f"--workflow-profile {args.workflow_profile} has no config.yaml; give a folder like configs/slurm")
    if args.workflow_profile is not None and sys.version_info < (3, 11):
        parser.error("--workflow-profile needs Python 3.11 or newer, as Snakemake 8 does; choose one by PYTHON")
    if args.simlex is not None:
        from ..analysis.word_similarity import read_pairs  # its imports take a second

        read_pairs(args.simlex)
    return args


def end(program: str, failed: Collection[str]) -> None:
    """Ends the program with an error where something has failed."""
    if failed:
        sys.exit(f"{program}: failed: {'; '.join(failed)}; when that is mended, the same command tries these again")


def main() -> None:
    with one_line_errors():
        table = load_table(sys.argv[1])
        args = parse(sys.argv[1:])
        rows = table.chosen(args.rows)
    with interruptible(args.program), one_line_errors():
        failed = run_steps(steps_of(table, rows, args), args.jobs, args.workflow_profile)
    figures = args.results / f"{table.name}.json"
    if figures.is_file():
        print(f"figures: {figures}")
    end(args.program, failed)


if __name__ == "__main__":
    main()
