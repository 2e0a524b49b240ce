"""The commands behind ``scripts/table.sh``, ``train_{lm,mt}.sh`` and ``evaluate_{lm,mt}.sh``: their options, and what
they print. ``python -m fairseq_kernels.experiments.cli {table,train,evaluate} ...``
"""

import argparse
import fcntl
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import List, Sequence, Tuple

import torch
from filelock import FileLock, Timeout

from ..analysis.training_log import read_curves
from ..errors import CommandParser, explanation
from ..logs import log_as_fairseq
from ..whole_files import write_json
from . import grid, mixtures
from .corpus import Corpus, check_name
from .profiles import check_options, command_line, import_user_dir, profiles, settings_of, words_of
from .run import EVALUATIONS, USER_DIR, Failed, Run, train, training
from .tables import KINDS, RESULTS, Table, checkout, load_table, publish

GRACE = 30  # seconds that Snakemake and its jobs have to end in, when they are stopped
SEEDS = 2**31  # those below are allowed, as fairseq-train's
# not for fairseq-train after --
OWN = {
    **dict.fromkeys(("profile", "save_dir", "user_dir"), "give it before --"),
    "seed": "give --seeds before --",
    "log_format": "curves are read from the log",
    **dict.fromkeys(("disable_validation", "valid_subset"), "figures are of the best checkpoint on valid"),
    **dict.fromkeys(("no_save", "no_last_checkpoints"), "figures are of the best and last checkpoints"),
    **dict.fromkeys(("kernels", "output_layer", "stock"), "choose --rows, or call scripts/train_lm.sh itself"),
}


def default_profile() -> str:
    return "paper" if torch.cuda.is_available() else "cpu"


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def folder(text: str) -> Path:
    """An option's value, as ``type=`` of argparse."""
    if not text:  # a shell variable that isn't set
        raise argparse.ArgumentTypeError("is empty; give a folder")
    try:
        return check_name(Path(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def say(text: str) -> None:
    """A line with the time of day."""
    with suppress(BrokenPipeError):  # the screen is closed: the table goes on
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


# tables


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(prog=f"{argv[0]}.sh", add_help=False)
    parser.usage = f"bash scripts/table.sh {argv[0]} DATA... [options] (--help tells more)"
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--profile", choices=sorted({*profiles("lm"), *profiles("mt")}), default=default_profile())
    parser.add_argument("--rows", nargs="+", action="extend", default=[])
    parser.add_argument("--seeds", nargs="+", action="extend", default=[])
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--save-dir", type=folder, default=Path("checkpoints") / "tables")
    parser.add_argument("--results", type=folder, default=RESULTS)
    parser.add_argument("--publish", action="store_const", dest="results", const=checkout("results"))
    parser.add_argument("--searched", type=Path)
    parser.add_argument("--simlex", type=Path)
    parser.add_argument("--user-dir", type=folder, default=Path(USER_DIR))
    parser.add_argument("--workflow-profile", type=Path)
    end = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[1:end])
    args.rows, args.extra = " ".join(args.rows).split(), settings_of(argv[end + 1 :])
    for name in OWN.keys() & args.extra.keys():
        parser.error(f"--{name.replace('_', '-')} after -- is not allowed: every run has its own; {OWN[name]}")
    seeds = " ".join(args.seeds or ["1"]).split()
    if not (seeds and all(seed.isdecimal() and 0 < int(seed) < SEEDS for seed in seeds)):
        parser.error(f"--seeds {' '.join(seeds)} is not allowed: give integers from 1 to {SEEDS - 1}, as --seeds 1 2 3")
    args.seeds = list(dict.fromkeys(map(int, seeds)))
    if args.jobs < 0:
        parser.error(f"--jobs {args.jobs} is not allowed: give 1 or more")
    args.jobs = args.jobs or (1 if torch.cuda.is_available() else cores())
    for option in ("simlex", "workflow_profile", "user_dir"):
        if (path := getattr(args, option)) is not None and not path.exists():
            parser.error(f"--{option.replace('_', '-')} {path} not found")
    return args


def planned(table: Table, args: argparse.Namespace) -> List[Run]:
    """The rows on each corpus with each seed; the unigram on text of one language, once.

    Raises:
        ValueError: the data lack something, or nothing can be run.
        SystemExit: one line: a file of the data is damaged, or fairseq-train refuses the options after ``--``.
    """
    runs, searched = [], args.searched or grid.SEARCHED
    for corpus in map(Corpus.at, args.data):
        corpus.check()
        if args.profile not in profiles(corpus.kind):
            known = ", ".join(profiles(corpus.kind))
            raise ValueError(f"--profile {args.profile} is not for {KINDS[corpus.kind]}; choose from {known}")
        for row in table.chosen(args.rows):
            left_out, options = "", {}
            if row.unigram and corpus.kind == "mt" or row.kind and row.kind.name != corpus.kind:
                left_out = f"it isn't for {KINDS[corpus.kind]}"
            elif row.profile_options and args.profile not in row.profile_options:
                left_out = f"it has no size for --profile {args.profile}, but for {', '.join(row.profile_options)}"
            elif not row.unigram:
                try:
                    options = {**grid.row_options(row, searched, corpus.name, args.profile), **args.extra}
                except LookupError as error:
                    search = f"bash scripts/grid_search.sh {command_line(corpus.folder)} --kernel {row.searched}"
                    left_out = f"{searched} has no {error}; make it by {search} --profile {args.profile}"
            if left_out:
                say(f"{row.name} on {corpus.name}: left out, as {left_out}")
                continue
            if table.grid:
                options = grid.shortened(corpus.kind, args.profile, options)
            for seed in [1] if row.unigram else args.seeds:
                runs.append(Run(corpus, row.name, args.profile, seed, options, args.save_dir, row.unigram))
    if len({run.folder for run in runs}) < len(runs):
        raise ValueError("two corpora have one name; give data in folders of different names")
    if not runs:
        raise ValueError("none of the rows can be run, as the lines above say; choose others, or other DATA")
    for run in [run for run in runs if args.extra and not run.unigram][-1:]:  # a mistyped option, before any training
        check_options(["DATA", *run.arguments()])
    return runs


def measures_of(run: Run, table: Table, args: argparse.Namespace) -> List[str]:
    """The measures of a language model of ours, by name."""
    if run.corpus.kind == "mt" or run.unigram or "stock" in run.options:
        return []
    return [*(measure.name for measure in table.measures), *["simlex"] * (args.simlex is not None)]


def run_all(runs: Sequence[Run], table: Table, args: argparse.Namespace) -> List[str]:
    """Has Snakemake run what isn't done, and puts what is into the results; the labels of what failed.

    Raises:
        ValueError: another table is run in the folder.
    """
    root = args.save_dir
    root.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(given) if given.isdecimal() else max(1, cores() // args.jobs)
    config = {"threads": threads, "home": os.getcwd(), "python": sys.executable, "runs": {}}
    config["simlex"] = str(args.simlex or "")
    for run in runs:
        words = [run.corpus.folder, "--row", run.row, "--profile", run.profile, "--seed", run.seed, "--save-dir", root]
        words += ["--user-dir", args.user_dir, *["--unigram"] * run.unigram, "--", *words_of(run.options)]
        plan = {"arguments": list(map(str, words)), "measures": measures_of(run, table, args)}
        config["runs"][str(run.folder.relative_to(root))] = plan
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(Path(__file__).with_name("Snakefile"))]
    command += ["--directory", str(root), "--configfile", str(root.resolve() / "plan.json"), "--nolock", "--nocolor"]
    command += ["--rerun-triggers", "params", "input", "--rerun-incomplete", "--keep-going"]
    if args.workflow_profile is None:
        command += ["--cores", str(args.jobs * threads)]
    else:
        command += ["--workflow-profile", str(args.workflow_profile.resolve())]
    cache = {"XDG_CACHE_HOME": str(root.resolve() / ".snakemake" / "cache")}  # HOME may not be writable
    with open(root / "lock", "a") as lock, open(root / "snakemake.log", "a") as log:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another table is run in {root}; wait for it, or name another --save-dir") from None
        write_json(root / "plan.json", config)
        for run in runs:
            (run.folder / "failed").unlink(missing_ok=True)
            if not run.record():  # it is lost or damaged: made again
                for marker in (run.folder / "done", *run.folder.glob("measured-*")):
                    marker.unlink(missing_ok=True)
        how = {"stdin": subprocess.DEVNULL, "stderr": log, "env": {**os.environ, **cache}, "start_new_session": True}
        # Snakemake has the lock, too: it is held until both have ended
        process = subprocess.Popen(command, pass_fds=[lock.fileno()], **how)
        try:
            return watch(process, runs, table, args)
        finally:
            for number in (signal.SIGINT, signal.SIGKILL):  # Snakemake and its jobs; those on a cluster it cancels
                if process.poll() is None:
                    os.killpg(process.pid, number)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(GRACE)


def watch(process: subprocess.Popen, runs: Sequence[Run], table: Table, args: argparse.Namespace) -> List[str]:
    """Publishes what is done and tells what has failed until Snakemake has ended; the labels of what isn't done."""
    left, told = list(runs), []
    while True:
        ended = process.poll() is not None
        for run in list(left):
            record, failure = run.record(), run.folder / "failed"
            missing = {*measures_of(run, table, args)} - {each["metric"] for each in record.get("metrics", ())}
            if record and (ended or not missing):
                record["run"]["row"] = run.row
                publish(args.results / f"{table.name}.json", [record], [row.name for row in table.rows])
                shown = [each for each in record["metrics"] if not each["metric"].startswith("pi_")]
                say(f"{run.label}: " + ", ".join(f"{m['split']} {m['metric']} {m['value']:.6g}" for m in shown))
            if record and not missing:
                left.remove(run)
            elif run not in told and (failure.exists() or ended):
                killed = f"ended without a word, killed or out of memory (logs: {run.folder}, {run.root}/snakemake.log)"
                say(f"{run.label}: failed: {failure.read_text() if failure.exists() else killed}")
                told.append(run)
        if ended:
            return [run.label for run in left]
        time.sleep(0.5)


def table_command(name: str, *words: str) -> None:
    """``scripts/table.sh NAME DATA...``."""
    analysis = name in mixtures.ANALYSES
    table, args = load_table("table3" if analysis else name), parse([name, *words])
    if analysis and args.rows:
        args.rows = list(dict.fromkeys([mixtures.BASELINE, *args.rows]))
    import_user_dir(args.user_dir)
    runs = planned(table, args)
    runs = mixtures.chosen(name, runs) if analysis else runs
    failed = run_all(runs, table, args)
    done = [run for run in runs if run.label not in failed]
    if analysis:
        mixtures.analyse(name, done, [row.name for row in table.rows], args)
    elif table.grid:
        published = args.results == checkout("results")
        grid.add_best(done, args.searched or (grid.SEARCHED if published else args.save_dir / "searched.yaml"))
    print(f"figures: {args.results / name}.json")
    if failed:
        raise Failed(f"failed: {'; '.join(failed)}; when that is mended, the same command tries these again")


# single trainings and evaluations


def parse_before_fairseq(parser: argparse.ArgumentParser, argv: Sequence[str]) -> Tuple[argparse.Namespace, List[str]]:
    """Our arguments and fairseq's, whose values can't be told from DATA: that comes first."""
    parser.add_argument("--user-dir", type=folder, default=Path(USER_DIR))
    args, options = parser.parse_known_args(argv)
    if not args.data.exists() and argv[0].startswith("-"):
        parser.error(f"{args.data} is not found; give DATA first, then the options")
    if "--" in options:
        parser.error("-- is for tables; leave it out here, and give fairseq's options among the others")
    return args, options


def corpus_of(kind: str, data: Path, command: str) -> Corpus:
    corpus = Corpus.at(data)
    if corpus.kind != kind:
        raise ValueError(f"{corpus.folder} is {KINDS[corpus.kind]}; scripts/{command}_{corpus.kind}.sh takes it")
    return corpus


def train_command(kind: str, *words: str) -> None:
    """``scripts/train_lm.sh`` and ``train_mt.sh``."""
    parser = CommandParser(prog=f"train_{kind}.sh", add_help=False)
    parser.usage = f"bash scripts/train_{kind}.sh DATA --save-dir DIR [options] (--help tells more)"
    parser.add_argument("data", type=Path)
    parser.add_argument("--profile", choices=profiles(kind), default=default_profile())
    parser.add_argument("--save-dir", type=folder, required=True)
    parser.add_argument("--dry-run", action="store_true")
    args, options = parse_before_fairseq(parser, words)
    corpus = corpus_of(kind, args.data, "train")
    import_user_dir(args.user_dir)
    arguments = training(corpus, args.profile, settings_of(options), args.save_dir)
    check_options(arguments)
    if args.dry_run:
        print(command_line("fairseq-train", *arguments, "--user-dir", args.user_dir))
        return
    args.save_dir.mkdir(parents=True, exist_ok=True)
    log = args.save_dir / "train.log"
    print(f"train_{kind}.sh: trains; log: {log}", flush=True)
    try:
        with FileLock(args.save_dir / "lock", timeout=0):
            train(arguments, args.save_dir, args.user_dir)
    except Timeout:
        raise Failed(f"another process trains in {args.save_dir}; wait for it or name another --save-dir") from None
    for update, value in list(read_curves(log, "valid").get("ppl", {}).items())[-1:]:
        print(f"valid perplexity {value:.1f} after {update:,} updates (log: {log})")


def evaluate_command(kind: str, *words: str) -> None:
    """``scripts/evaluate_lm.sh`` and ``evaluate_mt.sh``."""
    parser = CommandParser(prog=f"evaluate_{kind}.sh", add_help=False)
    parser.usage = f"bash scripts/evaluate_{kind}.sh DATA CHECKPOINT [options] (--help tells more)"
    parser.add_argument("data", type=Path)
    parser.add_argument("checkpoint")
    parser.add_argument("--gen-subset", default="test")
    args, options = parse_before_fairseq(parser, words)
    corpus, split = corpus_of(kind, args.data, "evaluate"), args.gen_subset
    checkpoints = [Path(path) for path in args.checkpoint.split(":")]  # several are an ensemble
    if kind == "lm" and len(checkpoints) > 1:
        raise ValueError(f"{args.checkpoint}: ensembles, separated by :, are for translation; give one checkpoint")
    for path in checkpoints:
        if not path.is_file():
            raise ValueError(f"checkpoint {path} not found; give a .pt file that train_{kind}.sh made")
    if split not in corpus.splits():
        raise ValueError(f"--gen-subset {split!r} is not in {corpus.binarised}; it has {', '.join(corpus.splits())}")
    place = Path(f"{checkpoints[-1]}.{split}")
    first, *others = EVALUATIONS[kind](corpus, checkpoints, split, place, args.user_dir, options)[0]
    if kind == "lm":
        print(f"{split} perplexity {first['value']:.1f} ({first['tokens']:,} words with line ends) (log: {place}.log)")
    else:
        detokenised = f"sacreBLEU {others[0]['value']:.1f} ({others[0]['signature']})"
        print(f"{split} BLEU4 {first['value']:.1f} (fairseq's, tokenised), {detokenised} (log: {place}.gen)")


COMMANDS = {"table": table_command, "train": train_command, "evaluate": evaluate_command}


def main() -> None:
    command, name, *words = sys.argv[1:]
    program = f"{name}.sh" if command == "table" else f"{command}_{name}.sh"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:  # nohup's
            signal.signal(number, signal.default_int_handler)
    log_as_fairseq(logging.WARNING)  # nothing of its files and folders
    try:
        COMMANDS[command](name, *words)
    except (Failed, ValueError, OSError) as error:
        sys.exit(f"{program}: error: {explanation(error) or error}")
    except KeyboardInterrupt:
        print(f"{program}: interrupted; the same command goes on where it stopped", file=sys.stderr, flush=True)
        os._exit(1)  # else triton lists what an interrupted training didn't give back


if __name__ == "__main__":
    main()
