"""Searches kernel hyper-parameters on a grid: short trainings, compared by their perplexity on the development set.

``scripts/grid_search.sh`` calls it. Optuna has the grid, the storage, the trials' signs of life and what is pruned;
any number of processes, on one machine or several, share a search through its storage, a database.
"""

import argparse
import math
import os
import shlex
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Sequence, Union

import optuna
import yaml
from filelock import FileLock
from optuna.trial import FrozenTrial, Trial, TrialState

from ..analysis.training_log import read_curves
from ..errors import CommandParser, one_line_errors
from ..kernels.spec import build_kernels, component_names, parse_kernels, parse_value
from .commands import Failed, last_line
from .data import Corpus
from .files import check_folder, to_folder
from .profiles import load_profile, option_value, profiles
from .runs import Run, check_extra
from .search_storage import cause, open_storage, storage_error
from .searched import SEARCHED, add_searched, key, load_searched
from .step import free_device, say
from .tables import ROOT, checkout
from .training import default_profile
from .workflow import OWN, cores, devices, die_with_parent, gpus, interruptible, parse_with_extra, threads_of

LOOK = 1.0  # seconds between two looks at a training
LARGE = 1 << 20  # a dimension that no value is too large for
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}  # Optuna's and ours
# not for fairseq-train after --
NOT_AFTER = {
    **OWN,
    "--seed": "give it before --",
    "--kernels": "give --kernel before --",
    "--kernel-params": "give --grid before --",
    "--max-update": "give --updates before --",
    **dict.fromkeys(("--output-layer", "--stock"), "a search is of the hyper-parameters of --kernel"),
}

Grid = Dict[str, List[str]]


def parse_grid(text: str, kernels: str) -> Grid:
    """``"log.p=1,2,4 log.gamma=0.1,1"`` as ``{"log.p": ["1", "2", "4"], "log.gamma": ["0.1", "1"]}``.

    Raises:
        ValueError: not of that form, of a kernel that ``kernels`` lacks, or a value that is not allowed.
    """
    names = parse_kernels(kernels)
    known = dict.fromkeys([*names, *component_names(names)])
    grid: Grid = {}
    for part in text.split():
        name, equals, values = part.partition("=")
        if not equals or name in grid:
            wrong = "is there twice" if equals else "has no values"
            raise ValueError(f"--grid: {name!r} {wrong}; write KERNEL.NAME=VALUE,VALUE as in log.p=1,2,4")
        if name.partition(".")[0] not in known:
            raise ValueError(f"--grid: {name!r} is of no kernel in --kernel {kernels}; choose from {', '.join(known)}")
        grid[name] = values.split(",")
        for value in grid[name]:
            build_kernels(kernels, LARGE, f"{name}={value}")
        if len({parse_value(value, name) for value in grid[name]}) < len(grid[name]):
            raise ValueError(f"--grid: {part!r} has a value twice; give each once")
    if not grid:
        raise ValueError("--grid is empty; write KERNEL.NAME=VALUE,VALUE as in log.p=1,2,4")
    return grid


def default_grid(kernels: str) -> str:
    """The grid in ``configs/grids.yaml`` of the only kernel of a mixture that has one there.

    Raises:
        ValueError: none has, or several.
    """
    grids = yaml.safe_load(checkout("configs", "grids.yaml").read_text(encoding="utf-8"))
    known = [grids[name] for name in dict.fromkeys(parse_kernels(kernels)) if name in grids]
    if len(known) != 1:
        counted = f"{len(known)} grids" if known else "no grid"
        raise ValueError(f'--kernel {kernels} has {counted} in configs/grids.yaml; give one: --grid "log.p=2,4"')
    return known[0]


def default_updates(corpus: Corpus, profile: str) -> int:
    """A quarter of what the profile's training makes at most."""
    groups = load_profile(corpus.kind, profile)
    most, dataset = groups["optimization"].get("max_update"), groups["dataset"]
    if most:
        return most // 4
    from fairseq.data import data_utils

    sizes: Counter = Counter()  # words of each language, whose parts are train, train1, ...
    for path in corpus.binarised.glob("train*.idx"):
        text = data_utils.load_indexed_dataset(str(path.with_suffix("")))
        sizes[path.stem.partition(".")[2]] += int(text.sizes.sum())
    words = dataset.get("max_tokens") or dataset["batch_size"] * groups["task"]["tokens_per_sample"]
    return groups["optimization"]["max_epoch"] * max(sizes.values()) // words // 4 + 1


class Search:
    """A search as one process takes part in it.

    Args:
        args: of the command line, complete.
        corpus: the data.
        grid: what is searched.

    Raises:
        ValueError: the storage can't be opened, or the study is there already, with other settings.
        SystemExit: fairseq-train refuses the options after ``--``.
    """

    def __init__(self, args: argparse.Namespace, corpus: Corpus, grid: Grid):
        self.args, self.corpus, self.grid = args, corpus, grid
        self.key = key(corpus.name, args.profile, args.kernel)
        self.points = math.prod(len(values) for values in grid.values())
        self.stopping = threading.Event()
        check_extra(args.extra, [self.training({name: values[0] for name, values in grid.items()})])
        self.storage = open_storage(args.storage, args.save_dir)  # which makes it, and so comes after all checks
        self.study = optuna.create_study(
            storage=self.storage,
            study_name=args.study or self.key,
            sampler=optuna.samplers.GridSampler(grid, seed=args.seed),
            # hopeless: from half time on, never so good as the median of the finished trials was by then
            pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=args.updates // 2),
            load_if_exists=True,
        )
        settings = {"data": corpus.fingerprint, "options": shlex.join(self.options())}
        known = self.study.user_attrs.get("settings", settings)
        if known != settings:
            differing = " and ".join(name for name in settings if settings[name] != known[name])
            raise ValueError(
                f"study {self.study.study_name} has other {differing} (it was: {known['options']}, on data "
                f"{known['data']}); name another --study"
            )
        self.study.set_user_attr("settings", settings)

    def options(self) -> List[str]:
        """What tells one search from another, but for the data."""
        args = self.args
        grid = " ".join(f"{name}={','.join(values)}" for name, values in self.grid.items())
        words = ["--kernel", args.kernel, "--grid", grid, "--profile", args.profile]
        words += ["--updates", str(args.updates), "--seed", str(args.seed)]
        return words + (["--", *args.extra] if args.extra else [])

    def kernel_params(self, params: Mapping[str, str]) -> str:
        return ",".join(f"{name}={params[name]}" for name in self.grid)

    def training(self, params: Mapping[str, str]) -> Run:
        """Of a point: the profile, its schedule shortened; what follows ``--`` wins."""
        args, scheduler = self.args, load_profile(self.corpus.kind, self.args.profile)["lr_scheduler"]
        length = ["--max-update", str(args.updates), "--save-interval-updates", str(max(1, args.updates // 4))]
        own = option_value(args.extra, "--lr-scheduler") is None  # another scheduler may not have these settings
        if own and "total_num_update" in scheduler:
            length += ["--total-num-update", str(args.updates)]
        elif own and scheduler.get("warmup_updates", 0) > 0.3 * args.updates:  # three tenths of it, then
            length += ["--warmup-updates", str(math.ceil(0.3 * args.updates))]
        options = ("--kernels", args.kernel, "--kernel-params", self.kernel_params(params), *length, *args.extra)
        return Run(self.corpus, args.profile, options, args.seed, args.save_dir)

    def trials(self) -> List[FrozenTrial]:
        """One of each point that has any, the best first: of several the best, of failed ones the last."""
        order = [TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING, TrialState.WAITING, TrialState.FAIL]
        trials = [trial for trial in self.study.get_trials(deepcopy=False) if trial.params]
        # one that took over another's outcome has reported nothing itself
        trials.sort(
            key=lambda trial: (
                order.index(trial.state), trial.value or math.inf, not trial.intermediate_values, -trial.number
            )
        )  # fmt: skip
        best: Dict[str, FrozenTrial] = {}
        for trial in trials:
            best.setdefault(self.kernel_params(trial.params), trial)
        return list(best.values())

    def run(self) -> None:
        """All points, those that failed before too."""
        before = len(self.study.trials)
        again = optuna.storages.RetryHeartbeatStaleTrialCallback()
        while not self.stopping.is_set():
            optuna.storages.fail_stale_trials(self.study)  # and queues them again
            for trial in self.trials():  # one that doesn't say why it failed was interrupted
                if trial.state == TrialState.FAIL and (trial.number < before or "failed" not in trial.user_attrs):
                    again(self.study, trial)
            states = [trial.state for trial in self.trials()]
            if len(states) < self.points or TrialState.WAITING in states:
                # the sampler ends it when the grid is through; what is queued then is taken here
                number = None if len(states) < self.points else states.count(TrialState.WAITING)
                try:
                    self.study.optimize(self.value, n_trials=number, n_jobs=self.args.jobs, catch=(Failed,))
                except (optuna.exceptions.UpdateFinishedTrialError, ValueError) as error:
                    # SQLite may give two a queued trial; the second to finish finds it finished
                    if isinstance(error, ValueError) and "Cannot tell a" not in str(error):
                        raise
            elif TrialState.RUNNING in states:  # another process'
                self.stopping.wait(LOOK)
            else:
                return

    def value(self, trial: Trial) -> float:
        """Best perplexity of a point on the development set."""
        params = {name: trial.suggest_categorical(name, values) for name, values in self.grid.items()}
        label, run = self.kernel_params(params), self.training(params)
        try:
            with self.alone(run):
                same = [other.user_attrs for other in self.study.get_trials(deepcopy=False) if other.params == params]
                known = [attributes for attributes in same if "outcome" in attributes]
                if known:  # the sampler gives a point that is running twice
                    commit, outcome = known[0]["commit"], known[0]["outcome"]
                else:
                    say(f"{label}: training (log: {run.log})")
                    commit, outcome = run.begin()["commit"], self.watch(trial, run)
                    say(f"{label}: pruned" if outcome == "pruned" else f"{label}: valid ppl {outcome:g}")
                trial.set_user_attr("commit", commit)
                trial.set_user_attr("outcome", outcome)
        except (Failed, ValueError, OSError) as error:
            if not self.stopping.is_set():  # interrupted trials are tried again
                say(f"{label}: failed: {error}")
                trial.set_user_attr("failed", str(error))
            raise Failed(str(error)) from None
        if outcome == "pruned":
            raise optuna.TrialPruned()
        return outcome

    @contextmanager
    def alone(self, run: Run) -> Iterator[None]:
        """While no other process searches or trains there.

        Raises:
            filelock.Timeout: interrupted.
        """
        run.folder.mkdir(parents=True, exist_ok=True)
        wait = {"timeout": -1, "poll_interval": LOOK, "cancel_check": self.stopping.is_set}
        with FileLock(run.folder / "trial.lock").acquire(**wait):
            with run.lock().acquire(**wait):  # no training is left of a search that was killed
                pass
            yield

    def command(self, run: Run) -> List[str]:
        """What ``scripts/train_lm.sh`` and ``train_mt.sh`` become."""
        _, _, *arguments = run.training()
        return [sys.executable, "-W", "ignore", "-m", f"{__package__}.training", run.corpus.kind, *arguments]

    def watch(self, trial: Trial, run: Run) -> Union[float, str]:
        """Trains, and reports each validation; the best, or ``"pruned"`` if it is hopeless.

        Raises:
            Failed: the training did, or diverged.
        """
        output, reported = run.folder / "train.out", {}
        if not (run.folder / "checkpoint_last.pt").is_file():  # an attempt before, which failed
            run.log.unlink(missing_ok=True)
        environment, device = {**os.environ, "OMP_NUM_THREADS": str(threads_of(self.args.jobs))}, None
        if gpus():
            wanted = self.args.save_dir, devices(self.args.jobs), self.stopping.is_set
            device, environment["CUDA_VISIBLE_DEVICES"] = free_device(*wanted)
        with open(output, "w") as out:
            process = subprocess.Popen(
                self.command(run),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                preexec_fn=die_with_parent,
            )
        try:
            while process.returncode is None:
                if self.stopping.is_set():
                    raise Failed("interrupted")
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK)
                curve = read_curves(run.log, "valid").get("ppl", {}) if run.log.is_file() else {}
                for update in sorted(curve.keys() - reported.keys()):
                    reported[update] = curve[update]
                    if not math.isfinite(curve[update]):
                        raise Failed(f"diverged: perplexity {curve[update]} after {update} updates (log: {run.log})")
                    trial.report(curve[update], update)
                    if update < self.args.updates and trial.should_prune():
                        return "pruned"
        finally:
            process.kill()
            process.wait()
            if device is not None:
                device.release()
            if not self.stopping.is_set():
                for path in run.folder.glob("checkpoint*.pt"):
                    path.unlink()
        if process.returncode or not reported:
            killed = process.returncode < 0 and f"ended by {signal.Signals(-process.returncode).name}"
            raise Failed(killed or last_line(output))
        return min(reported.values())

    def table(self) -> str:
        """The trials as lines."""
        lines = ["valid ppl  updates  state     parameters"]
        for trial in self.trials():
            value = trial.value if trial.value is not None else trial.intermediate_values.get(trial.last_step)
            state = STATES[trial.state.name]
            shown = "-" if value is None else f"{value:.2f}"
            lines.append(f"{shown:>9}  {trial.last_step or 0:7}  {state:8}  {self.kernel_params(trial.params)}")
        return "\n".join(lines)

    def entry(self) -> Dict:
        """The best point and its origin, for ``searched.yaml``.

        Raises:
            Failed: all trials did.
        """
        options, trials = self.options(), self.trials()
        best, states = trials[0], [trial.state.name for trial in trials]
        if best.state != TrialState.COMPLETE:
            raise Failed(f"all {self.points} trials failed, one with: {best.user_attrs.get('failed')}")
        folder = self.corpus.folder
        if folder.is_absolute():  # which tells of the machine
            folder = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder.name
        origin = {
            "valid_ppl": best.value,
            "grid": option_value(options, "--grid"),
            "updates": self.args.updates,
            "seed": self.args.seed,
            "trials": {kind: states.count(state) for state, kind in STATES.items()},
            "data": self.corpus.fingerprint,
            "commit": best.user_attrs["commit"],
            "date": str(best.datetime_complete.date()),
            "study": self.study.study_name,
            "storage": self.storage.engine.name,
            "command": shlex.join(["bash", "scripts/grid_search.sh", str(folder), *options]),
        }
        return {"kernel_params": self.kernel_params(best.params), "origin": origin}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(prog="grid_search.sh", add_help=False)
    parser.usage = "bash scripts/grid_search.sh DATA --kernel KERNEL [options] (--help tells more)"
    parser.add_argument("data", type=Path)
    parser.add_argument("--kernel", required=True)
    for name in ("grid", "storage", "study"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--profile", choices=sorted({*profiles("lm"), *profiles("mt")}), default=default_profile())
    parser.add_argument("--updates", type=int)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-dir", type=to_folder, default=Path("checkpoints/search"))
    parser.add_argument("--searched", type=Path)
    parser.add_argument("--publish", action="store_const", dest="searched", const=SEARCHED)
    args, args.extra = parse_with_extra(parser, argv, NOT_AFTER)
    args.kernel = "".join(args.kernel.split())
    args.searched = args.searched or args.save_dir / "searched.yaml"
    for name, value, least in (("updates", args.updates, 1), ("jobs", args.jobs, 0), ("seed", args.seed, 1)):
        if value is not None and value < least:
            parser.error(f"--{name} {value} is not allowed: give {least} or more")
    args.jobs = args.jobs or len(gpus()) or cores()
    return args


def main() -> None:
    with one_line_errors():
        args = parse(sys.argv[1:])
        grid = parse_grid(default_grid(args.kernel) if args.grid is None else args.grid, args.kernel)
        corpus = Corpus.at(args.data)
        if args.updates is None:
            args.updates = default_updates(corpus, args.profile)
        load_searched(args.searched)
        check_folder(f"--searched {args.searched}", args.searched.parent)  # before the search, not after it
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        threading.excepthook = lambda _: None  # that a sign of life got lost with the storage is told below, in a line
        search = Search(args, corpus, grid)
    try:
        with interruptible("grid_search.sh", search.stopping.set):
            search.run()
            print(search.table())
            entry = search.entry()
    except Failed as error:
        sys.exit(f"grid_search.sh: {error}; the same command tries them again")
    except Exception as error:
        lost = storage_error(error)
        if lost is None:
            raise
        sys.exit(f"grid_search.sh: the storage failed ({cause(lost)}); the same command goes on where it stopped")
    add_searched(args.searched, search.key, entry)
    print(f"{search.key}: {entry['kernel_params']} is the best; tables take it by --searched {args.searched}")


if __name__ == "__main__":
    main()
