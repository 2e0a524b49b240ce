"""The commands behind ``scripts/table.sh``, ``train_{lm,mt}.sh`` and ``evaluate_{lm,mt}.sh``: their options, and what
they print. ``python -m fairseq_kernels.experiments.cli {table,train,evaluate,quickstart} ...``
"""

import argparse
import dataclasses
import functools
import itertools
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import List, Sequence

from filelock import FileLock, Timeout
from omegaconf.errors import OmegaConfBaseException

from ..analysis.curves import read_curves
from ..errors import CommandParser, explanation
from ..logs import log_as_fairseq
from ..whole_files import write_json
from . import grid, mixtures, quickstart
from .corpus import Corpus
from .profiles import profiles
from .run import SECONDS, USER_DIR, Failed, Run, follow, train, training
from .tables import RESULTS, ROOT, Table, load_table, publish, settings_of

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # of Ctrl-C, of a shell's kill, of a terminal that is closed
PATIENCE = 10.0  # seconds that Snakemake gets to end
OWN = ("seed", "save_dir", "user_dir", "kernels", "output_layer", "stock")  # of a table's rows, not after --


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def default_profile() -> str:
    return "paper" if has_gpu() else "cpu"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(prog=f"{argv[0]}.sh", add_help=False)
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--profile", choices=sorted({*profiles("lm"), *profiles("mt")}))
    parser.add_argument("--rows", nargs="+", action="extend", default=[])
    parser.add_argument("--seeds", nargs="+", default=["1"])
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--save-dir", type=Path, default=Path("checkpoints") / "tables")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--publish", action="store_const", dest="results", const=ROOT / "results")
    parser.add_argument("--searched", type=Path)
    parser.add_argument("--simlex", type=Path)
    parser.add_argument("--user-dir", default=USER_DIR)
    parser.add_argument("--workflow-profile", type=Path)
    if argv[0].startswith("search_"):
        parser.add_argument("--kernel")  # of grid_search.sh, for which it is the table
    end = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[1:end])
    args.rows, args.extra = " ".join(args.rows).split(), settings_of(argv[end + 1 :])
    args.seeds = [int(seed) for seed in " ".join(args.seeds).split()]
    for name in args.extra.keys() & set(OWN):
        parser.error(f"--{name.replace('_', '-')} after -- is not allowed, as every row or run has its own")
    args.profile = args.profile or default_profile()
    return args


def trainings_at_a_time(args: argparse.Namespace) -> int:
    return args.jobs or (1 if has_gpu() else os.cpu_count() or 1)


def planned(table: Table, args: argparse.Namespace) -> List[Run]:
    """The rows on each corpus with each seed; the unigram once. Wrong data and options are told here already."""
    runs = []
    for corpus in map(Corpus.at, args.data):
        for row in table.chosen(args.rows):
            try:
                options = grid.row_options(row, corpus, args.profile, args.searched or grid.SEARCHED)
            except LookupError as error:
                print(f"{row.name} on {corpus.name}: left out, as {error.args[0]}", flush=True)
                continue
            measured = corpus.kind == "lm" and not row.unigram and "stock" not in options
            measures = [*table.measures, *[f"simlex:{args.simlex}"] * bool(args.simlex)] if measured else []
            options.update({} if row.unigram else args.extra)
            for seed in [1] if row.unigram else args.seeds:
                how = (args.profile, seed, options, args.save_dir.resolve(), args.user_dir, row.unigram, measures)
                runs.append(Run(corpus, row.name, *how))
    if not runs:
        raise ValueError("none of the rows can be run, as the lines above say")
    if left := [run for run in runs if not run.is_done()]:
        from .commands import check_options  # seconds, which a finished table needn't wait

        for corpus in dict.fromkeys(run.corpus for run in left):
            corpus.check()
        for run in [run for run in left if not run.unigram][-1:]:  # a mistyped option, before any training
            check_options(["DATA", "--user-dir", args.user_dir, *run.arguments()])
    return runs


def started(runs: Sequence[Run], args: argparse.Namespace) -> subprocess.Popen:
    """Snakemake, which runs these."""
    root, jobs = runs[0].root, trainings_at_a_time(args)
    threads = int(os.environ.get("OMP_NUM_THREADS") or max(1, (os.cpu_count() or 1) // jobs))
    plan = {str(run.folder.relative_to(root)): json.dumps(dataclasses.asdict(run), default=str) for run in runs}
    write_json(root / "plan.json", {"threads": threads, "home": os.getcwd(), "python": sys.executable, "runs": plan})
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(Path(__file__).with_name("Snakefile"))]
    command += ["--directory", str(root), "--configfile", str(root / "plan.json"), "--nolock", "--keep-going"]
    command.append("--forceall")  # a marker may be there, where a record isn't
    profile = args.workflow_profile
    command += ["--workflow-profile", str(profile.resolve())] if profile else ["--cores", str(jobs * threads)]
    cache = {"XDG_CACHE_HOME": str(root / ".snakemake" / "cache")}  # HOME may not be writable
    with open(root / "snakemake.log", "a") as log:
        how = {"stdin": subprocess.DEVNULL, "stderr": log, "env": {**os.environ, **cache}}
        # in the background of a script it would inherit that the signal of Ctrl-C is ignored
        heeds = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        return subprocess.Popen(command, start_new_session=True, preexec_fn=heeds, **how)


def end(process: subprocess.Popen) -> None:
    """Ends a process and all that it has started. Snakemake, interrupted, cancels a cluster's jobs."""
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
    finally:  # also where the wait is interrupted
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_all(runs: Sequence[Run], table: Table, args: argparse.Namespace) -> List[Run]:
    """Has Snakemake run what isn't done, tells of progress, and puts what is done into the results; returns what has
    failed."""
    left = [run for run in runs if not run.is_done()]
    progress = {}
    for run in left:
        progress[run.folder] = follow(run.folder / "train.log", settings_of(run.arguments()), f"{run.label}: ")
        (run.folder / "failed").unlink(missing_ok=True)
    process, left = started(left, args) if left else None, list(runs)
    try:
        for tick in itertools.count():
            ended = process is None or process.poll() is not None
            for run in [run for run in left if run.is_done()]:
                left.remove(run)
                record = run.record()
                record["run"]["row"] = run.row  # the training may be another table's
                publish(args.results / f"{table.of or table.name}.json", [record], [row.name for row in table.rows])
                shown = [each for each in record["metrics"] if not each["metric"].startswith("pi_")]
                figures = ", ".join(f"{m['split']} {m['metric']} {m['value']:.6g}" for m in shown)
                print(f"{run.label}: {figures}", flush=True)
            for run in left if tick % (2 * SECONDS) == 0 else ():
                next(progress[run.folder])
            for failed in [run.folder / "failed" for run in left if (run.folder / "failed").is_file()]:
                print(failed.read_text(encoding="utf-8"), flush=True)
                failed.unlink()
            if ended or not left:
                break
            time.sleep(0.5)
        with suppress(subprocess.TimeoutExpired):  # it may wait for ever for news of a cluster's jobs
            process and process.wait(PATIENCE)
    finally:
        process and end(process)
    return left


def table_command(name: str, *words: str) -> None:
    """``scripts/table.sh NAME DATA...``."""
    table, args = load_table(name), parse([name, *words])
    if table.command:
        raise ValueError(f"this table is made by another command: {table.command}")
    if table.of and args.rows:
        args.rows = list(dict.fromkeys([mixtures.BASELINE, *args.rows]))
    runs = planned(table, args)
    runs = mixtures.chosen(name, runs) if table.of else runs
    args.save_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(args.save_dir / "lock", timeout=0):
        failed = run_all(runs, table, args)
    done = [run for run in runs if run not in failed]
    if table.of:
        mixtures.analyse(table, done, args.results)
    elif table.grid and done:
        published = args.results == ROOT / "results"
        grid.add_best(done, args.searched or (grid.SEARCHED if published else args.save_dir / "searched.yaml"))
    print(f"figures: {args.results / name}.json")
    if failed:
        labels = "; ".join(f"{run.label} (logs: {run.folder})" for run in failed)
        raise Failed(f"failed: {labels}; the same command tries again (Snakemake's log: {args.save_dir}/snakemake.log)")


def train_command(kind: str, *words: str) -> None:
    """``scripts/train_lm.sh`` and ``train_mt.sh``."""
    parser = CommandParser(prog=f"train_{kind}.sh", add_help=False)
    parser.add_argument("data", type=Path)
    parser.add_argument("--profile", choices=profiles(kind))
    parser.add_argument("--save-dir", type=Path, required=True)
    parser.add_argument("--user-dir", default=USER_DIR)
    parser.add_argument("--dry-run", action="store_true")
    args, options = parser.parse_known_args(words)
    there = args.data.exists() or not args.dry_run  # a command is shown before its data are prepared
    corpus = Corpus.at(args.data) if there else Corpus(args.data, args.data / "data-bin", kind)
    corpus = dataclasses.replace(corpus, kind=kind)  # what other data lack fairseq says
    from .commands import check_options

    profile = args.profile or default_profile()
    arguments = training(corpus, profile, settings_of(options), args.save_dir, args.user_dir)
    check_options(arguments)
    if args.dry_run:
        print(shlex.join(["fairseq-train", *arguments]))
        return
    log = args.save_dir / "train.log"
    print(f"train_{kind}.sh: trains; log: {log}", flush=True)
    train(arguments, args.save_dir)
    for update, value in list(read_curves(log, "valid").get("ppl", {}).items())[-1:]:
        print(f"valid perplexity {value:.1f} after {update:,} updates (log: {log})")


def evaluate_command(kind: str, *words: str) -> None:
    """``scripts/evaluate_lm.sh`` and ``evaluate_mt.sh``."""
    parser = CommandParser(prog=f"evaluate_{kind}.sh", add_help=False)
    parser.add_argument("data", type=Path)
    parser.add_argument("checkpoint")  # several are an ensemble
    parser.add_argument("--gen-subset", default="test")
    args, options = parser.parse_known_args(words)
    split, place = args.gen_subset, Path(f"{args.checkpoint.rpartition(':')[2]}.{args.gen_subset}")
    corpus = Corpus.at(args.data)
    from .commands import EVALUATIONS

    (first, *others), _ = EVALUATIONS[kind](corpus, args.checkpoint, split, place, options)
    if kind == "lm":
        print(f"{split} perplexity {first['value']:.1f} ({first['tokens']:,} words with line ends) (log: {place}.log)")
    else:
        detokenised = f"sacreBLEU {others[0]['value']:.1f} ({others[0]['signature']})"
        print(f"{split} BLEU4 {first['value']:.1f} (fairseq's, tokenised), {detokenised} (log: {place}.gen)")


def interrupt(*_: object) -> None:
    """Once: a second signal would leave half done what the first one ends."""
    for number in ENDING:
        signal.signal(number, lambda *_: None)
    raise KeyboardInterrupt


def main() -> None:
    commands = dict(table=table_command, train=train_command, evaluate=evaluate_command, quickstart=quickstart.main)
    command, name, *words = sys.argv[1:]
    program = {"table": f"{name}.sh", "quickstart": "quickstart.sh"}.get(command, f"{command}_{name}.sh")
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # which nohup has set
            signal.signal(number, interrupt)
    log_as_fairseq(logging.WARNING)  # nothing of its files and folders
    try:
        commands[command](name, *words)
    except Timeout as error:
        sys.exit(f"{program}: error: another table is run in {Path(error.lock_file).parent}; wait for it")
    except Exception as error:
        known = isinstance(error, (Failed, ValueError, OSError, OmegaConfBaseException))
        if not known and not explanation(error):
            raise
        sys.exit(f"{program}: error: {explanation(error) or error}")
    except KeyboardInterrupt:
        print(f"{program}: interrupted; the same command goes on where it stopped", file=sys.stderr, flush=True)
        os._exit(1)  # else triton lists what an interrupted training didn't give back


if __name__ == "__main__":
    main()
