"""Searches kernel hyper-parameters on a grid: short trainings, compared by their perplexity on the development set.

``scripts/grid_search.sh`` calls it. Any number of processes, on one machine or several, share a search through its
storage, a database: each takes points of the grid that no other has.
"""

import argparse
import logging
import math
import shlex
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import datetime, timedelta
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Set, Union

import torch
import yaml

try:
    import optuna
    from optuna.trial import FrozenTrial, Trial, TrialState
    from sqlalchemy.engine import URL, make_url
    from sqlalchemy.exc import ArgumentError, IntegrityError, ProgrammingError, SQLAlchemyError
except ImportError:  # said in one line
    optuna = None

from ..analysis.training_log import read_curves
from ..errors import one_line_errors
from ..kernels.spec import build_kernels, parse_kernels, parse_value
from .data import Corpus
from .files import exclusive, write_json
from .runner import OWN, Stopped, environments, interruptible, parse_with_extra, say
from .runs import Failed, Pruned, Run
from .searched import SEARCHED, add_searched, key, load_searched
from .tables import ROOT

GRIDS = ROOT / "configs" / "grids.yaml"
BEAT, GRACE = 15, 90  # seconds between a trial's signs of life; after GRACE without one its process is dead
WAIT = 5.0  # seconds between two looks at what other processes train
LARGE = 1 << 20  # a dimension that no value is too large for
# of the training scripts: updates of --profile cpu; epochs of --profile paper, and words of a batch
UPDATES = {"lm": 2800, "mt": 1000}
EPOCHS = {"lm": (30, 32 * 35), "mt": (50, 4096)}
# of --profile cpu: what of the learning rate's schedule goes with the length, and its part of all updates
SCHEDULES = {"lm": ("--total-num-update", 1.0), "mt": ("--warmup-updates", 0.3)}
STATES = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}  # ours and Optuna's
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
    names = dict.fromkeys(parse_kernels(kernels))
    grid: Grid = {}
    for part in text.split():
        name, equals, values = part.partition("=")
        if not equals or name in grid:
            wrong = "is there twice" if equals else "has no values"
            raise ValueError(f"--grid: {name!r} {wrong}; write KERNEL.NAME=VALUE,VALUE as in log.p=1,2,4")
        if name.partition(".")[0] not in names:
            raise ValueError(f"--grid: {name!r} is of no kernel in --kernel {kernels}; choose from {', '.join(names)}")
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
    grids = yaml.safe_load(GRIDS.read_text())
    found = [grids[name] for name in dict.fromkeys(parse_kernels(kernels)) if name in grids]
    if len(found) != 1:
        counted = f"{len(found)} grids" if found else "no grid"
        raise ValueError(f'--kernel {kernels} has {counted} in configs/grids.yaml; give one: --grid "log.p=2,4"')
    return found[0]


def default_updates(corpus: Corpus, profile: str) -> int:
    """A quarter of what the profile's training makes at most."""
    if profile == "cpu":
        return UPDATES[corpus.kind] // 4
    from fairseq.data import data_utils

    texts = [data_utils.load_indexed_dataset(str(path.with_suffix(""))) for path in corpus.binarised.glob("train*.idx")]
    epochs, batch = EPOCHS[corpus.kind]
    return epochs * max(int(text.sizes.sum()) for text in texts) // batch // 4 + 1


class ShortRun(Run):
    """A training without an evaluation: a search must not look at the test set."""

    def perplexities(self) -> Dict[int, float]:
        """On the development set so far, by update."""
        return read_curves(self.log, "valid").get("ppl", {}) if self.log.is_file() else {}

    def execute(self, lock, environment, look=None):
        record = {"provenance": self.begin()}
        say(f"training {'goes on' if self.log.is_file() else 'starts'}: {self.log}")
        try:
            if look is not None and look():  # what an interrupted training has shown
                raise Pruned()
            self.train(lock, environment, look)
        except Pruned:
            self.remove_checkpoints()
            raise
        if not self.perplexities():
            raise Failed(f"no validation in {self.log}")
        write_json(self.result, record)
        self.remove_checkpoints()
        return record

    def remove_checkpoints(self) -> None:
        for path in self.folder.glob("checkpoint*.pt"):
            path.unlink()


class Search:
    """A search as one process takes part in it.

    Args:
        args: of the command line, complete.
        corpus: the data.
        grid: what is searched.
        storage: of :func:`open_storage`.

    Raises:
        ValueError: the study is there already, with other settings.
    """

    def __init__(self, args: argparse.Namespace, corpus: Corpus, grid: Grid, storage: "optuna.storages.RDBStorage"):
        self.args, self.corpus, self.grid = args, corpus, grid
        self.key = key(corpus.name, args.profile, args.kernel)
        self.points = math.prod(len(values) for values in grid.values())
        self.stopping = threading.Event()
        self.waiting = False
        # at the end one of each point, best first; pruned ones have their last perplexity, failed ones none
        self.trials: List[FrozenTrial] = []
        self.storage = storage
        # the n-th trial is the n-th point, in an order that must be the same everywhere
        sampler = optuna.samplers.GridSampler(grid, seed=1)
        sampler.after_trial = lambda *arguments: None  # at the last point it ends Study.optimize: not at work here
        self.study = optuna.create_study(
            storage=storage,
            study_name=args.study or self.key,
            sampler=sampler,
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
        options = {"kernel": args.kernel, "grid": grid, "profile": args.profile}
        options.update(updates=str(args.updates), seed=str(args.seed))
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        return words + (["--", *args.extra] if args.extra else [])

    def kernel_params(self, params: Mapping[str, str]) -> str:
        return ",".join(f"{name}={params[name]}" for name in self.grid)

    def training(self, params: Mapping[str, str]) -> ShortRun:
        """Of a point."""
        args, updates = self.args, str(self.args.updates)
        length = ["--max-update", updates, "--save-interval-updates", str(max(1, args.updates // 4))]
        if args.profile == "cpu":
            option, part = SCHEDULES[self.corpus.kind]
            length += [option, str(math.ceil(part * args.updates))]
        options = ("--kernels", args.kernel, "--kernel-params", self.kernel_params(params), *args.extra, *length)
        return ShortRun(self.corpus, args.profile, options, args.seed, args.save_dir)

    def by_point(self) -> Dict[int, "FrozenTrial"]:
        """The trial that counts of each point that has one."""
        optuna.storages.fail_stale_trials(self.study)  # and queues their points again
        for trial in self.study.get_trials(deepcopy=False):
            if never_alive(trial) and self.tell(trial.number, TrialState.FAIL):
                queue_again(self.study, trial)
        order = [TrialState.FAIL, TrialState.WAITING, TrialState.RUNNING, TrialState.PRUNED, TrialState.COMPLETE]
        trials = sorted(self.study.get_trials(), key=lambda t: (order.index(t.state), "failed" in t.user_attrs))
        found = {trial.system_attrs.get("grid_id"): trial for trial in trials}
        found.pop(None, None)  # a trial that is just being made
        return found

    def run(self) -> None:
        """All points, those that failed before too."""
        for trial in self.by_point().values():
            if trial.state == TrialState.FAIL:
                queue_again(self.study, trial)
        jobs = environments(self.args.jobs)[: self.points]
        with ThreadPoolExecutor(len(jobs)) as pool:
            try:
                for worker in as_completed([pool.submit(self.work, environment) for environment in jobs]):
                    worker.result()
            except BaseException:
                self.stopping.set()
                raise

    def work(self, environment: Dict[str, str]) -> None:
        """Takes points until all are done; those of other processes too, where they are left behind."""
        distributions = {name: optuna.distributions.CategoricalDistribution(v) for name, v in self.grid.items()}
        while not self.stopping.is_set():
            found = self.by_point()
            if len(found) < self.points or any(trial.state == TrialState.WAITING for trial in found.values()):
                trial = self.study.ask(distributions)
                if self.is_surplus(trial):
                    self.tell(trial, TrialState.FAIL)
                else:
                    self.execute(trial, environment)
            elif not all(is_over(trial) for trial in found.values()):
                if not self.waiting:
                    self.waiting = True
                    say(f"no point is left to begin; the running trials are waited for, silent ones for {GRACE} s")
                self.stopping.wait(WAIT)
            else:
                order = list(STATES.values())
                self.trials = sorted(found.values(), key=lambda t: (order.index(t.state.name), t.value or math.inf))
                return

    def execute(self, trial: "Trial", environment: Dict[str, str]) -> None:
        """Trains a point and tells the storage what has come of it."""
        label = self.kernel_params(trial.params)
        try:
            value = self.value(trial, environment)
        except Pruned:
            say(f"{label}: pruned")
            self.tell(trial, TrialState.PRUNED)
        except Stopped:
            if self.tell(trial, TrialState.FAIL):
                queue_again(self.study, self.study.get_trials()[trial.number])
        except optuna.exceptions.UpdateFinishedTrialError:
            say(f"{label}: had shown no sign of life and was given to another process")
        except (Failed, ValueError, OSError) as error:
            say(f"{label}: failed: {error}")
            self.tell(trial, TrialState.FAIL, failed=str(error))
        else:
            say(f"{label}: valid ppl {value:g}")
            self.tell(trial, TrialState.COMPLETE, value)

    def tell(
        self, trial: Union["Trial", int], state: "TrialState", value: Optional[float] = None, **attributes: str
    ) -> bool:
        """False if the trial is over already: another process or thread has given it up for dead."""
        try:
            for name, attribute in attributes.items():
                trial.set_user_attr(name, attribute)
            self.study.tell(trial, value, state)
        except (optuna.exceptions.UpdateFinishedTrialError, ValueError):  # the latter if it was over before the call
            return False
        return True

    def value(self, trial: "Trial", environment: Dict[str, str]) -> float:
        """Best perplexity on the development set."""
        run = self.training(trial.params)
        reported: Set[int] = set()
        last_beat = -math.inf

        def live() -> None:
            nonlocal last_beat
            if self.stopping.is_set():
                raise Stopped()
            if time.monotonic() > last_beat + BEAT:
                if last_beat == -math.inf:
                    trial.set_user_attr("alive", True)
                last_beat = time.monotonic()
                self.storage.record_heartbeat(trial._trial_id)

        def look() -> bool:
            """Reports what is new; True if that is hopeless."""
            live()
            hopeless = False
            for update, perplexity in run.perplexities().items():
                if not math.isfinite(perplexity):
                    raise Failed(f"diverged: perplexity {perplexity} after {update} updates (log: {run.log})")
                if update not in reported:
                    reported.add(update)
                    trial.report(perplexity, update)
                    hopeless |= update < self.args.updates and trial.should_prune()
            return hopeless

        record = None
        while record is None:
            live()
            with run.locked() as lock:
                if lock is not None:
                    record = run.finished() or run.execute(lock, environment, look)
            if record is None:  # a training that has outlived its search has the folder
                self.stopping.wait(WAIT)
        look()
        trial.set_user_attr("commit", record["provenance"]["commit"])
        return min(run.perplexities().values())

    def is_surplus(self, trial: "Trial") -> bool:
        """Whether another process has taken the same point in the same moment, or trained it meanwhile."""
        same = [other for other in self.study.get_trials(deepcopy=False) if other.params == trial.params]
        return any(
            other.state in (TrialState.COMPLETE, TrialState.PRUNED)
            or (other.state == TrialState.RUNNING and other.number < trial.number)
            for other in same
        )

    def table(self) -> str:
        """The trials as lines."""
        lines = ["valid ppl  updates  state     parameters"]
        for trial in self.trials:
            value = "-" if trial.value is None else f"{trial.value:.2f}"
            [state] = [kind for kind, name in STATES.items() if name == trial.state.name]
            params = self.kernel_params(trial.params)
            lines.append(f"{value:>9}  {trial.last_step or 0:7}  {state:8}  {params}")
        return "\n".join(lines)

    def found(self, storage: str) -> Dict:
        """The best point and its origin, for ``searched.yaml``; ``storage`` is its kind.

        Raises:
            Failed: all trials did.
        """
        options, states = self.options(), [trial.state.name for trial in self.trials]
        best = self.trials[0]
        if best.state != TrialState.COMPLETE:
            raise Failed(f"all {self.points} trials failed, one with: {best.user_attrs.get('failed')}")
        folder = self.corpus.folder
        if folder.is_absolute():  # which tells of the machine
            folder = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder.name
        origin = {
            "valid_ppl": best.value,
            "grid": options[options.index("--grid") + 1],
            "updates": self.args.updates,
            "seed": self.args.seed,
            "trials": {kind: states.count(state) for kind, state in STATES.items()},
            "data": self.corpus.fingerprint,
            "commit": best.user_attrs["commit"],
            "date": str(best.datetime_complete.date()),
            "study": self.study.study_name,
            "storage": storage,
            "command": shlex.join(["bash", "scripts/grid_search.sh", str(folder), *options]),
        }
        return {"kernel_params": self.kernel_params(best.params), "origin": origin}


def queue_again(study: "optuna.Study", trial: "FrozenTrial") -> None:
    """A new trial of a point, without what the old one has told: a sign of life, a failure."""
    point = {"params": trial.params, "distributions": trial.distributions, "system_attrs": trial.system_attrs}
    study.add_trial(optuna.create_trial(state=TrialState.WAITING, **point))


def never_alive(trial: "FrozenTrial") -> bool:
    """Whether its process has died before its first sign of life: Optuna itself would wait for such a one for ever."""
    silent = trial.state == TrialState.RUNNING and "alive" not in trial.user_attrs
    return silent and datetime.now() - trial.datetime_start > timedelta(seconds=GRACE)


def is_over(trial: "FrozenTrial") -> bool:
    """Not if it was interrupted and is about to be queued again."""
    return trial.state.is_finished() and (trial.state != TrialState.FAIL or "failed" in trial.user_attrs)


def open_storage(url: Optional[str], folder: Path) -> "optuna.storages.RDBStorage":
    """The storage of a URL; by default an SQLite file in the folder.

    Raises:
        ValueError: no URL of a database, no driver for it, or it can't be opened.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--save-dir {folder} can't be made ({error.strerror}); give a folder") from None
    try:
        address = make_url(url) if url else URL.create("sqlite", database=str(folder / "search.db"))
    except (ArgumentError, ValueError):  # the message doesn't repeat the URL, which may have a password
        raise ValueError("--storage is no URL; give sqlite:///FILE or postgresql://USER@HOST/DATABASE") from None
    if address.drivername in ("postgres", "postgresql"):
        address = address.set(drivername="postgresql+psycopg")  # the driver in our extra
    kind = address.drivername.partition("+")[0]
    if kind == "sqlite" and address.database in (None, "", ":memory:"):
        raise ValueError("--storage sqlite keeps nothing without a file; give sqlite:///FILE")
    where = f"--storage {kind}://{address.host or ''}/{address.database or ''}"
    connect = {"sqlite": {"timeout": 60}, "postgresql": {"connect_timeout": 10}}.get(kind, {})
    for left in (2, 1, 0):
        try:
            with exclusive(folder):  # SQLite: one at a time makes the tables
                return optuna.storages.RDBStorage(
                    address.render_as_string(hide_password=False),
                    engine_kwargs={"connect_args": connect, "pool_pre_ping": True},
                    heartbeat_interval=BEAT,
                    grace_period=GRACE,
                    heartbeat_stale_trial_callback=queue_again,
                )
        except ImportError:
            raise ValueError(f"{where} has no driver; PostgreSQL's: pip install 'psycopg[binary]'") from None
        except (SQLAlchemyError, optuna.exceptions.OptunaError, RuntimeError) as error:
            if left and isinstance(error, (IntegrityError, ProgrammingError)):  # another machine is making them
                time.sleep(1)
                continue
            why = " ".join(str(getattr(error, "orig", None) or error).split())
            raise ValueError(
                f"{where} can't be opened ({why}); check the URL, and that the database is there"
            ) from None


def cause(error: BaseException) -> str:
    """The driver's own message, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="grid_search.sh",
        description="Searches a kernel's hyper-parameters on a grid by short trainings and their perplexity on the "
        "development set; hopeless trainings are stopped. The same command goes on after an interruption, and called "
        "several times shares the search. What follows -- goes to every training.",
    )
    parser.add_argument("data", type=Path, help="folder of a data-prep script: text or parallel text")
    parser.add_argument("--kernel", required=True, help="a kernel or a mixture, as log or 3xlin,log")
    for name, use in (
        ("grid", 'as "log.p=1,2,4 log.gamma=0.1,1" (default: the kernel\'s in configs/grids.yaml)'),
        ("storage", "URL of a database, as postgresql://USER@HOST/DATABASE (default: an SQLite file in --save-dir)"),
        ("study", "name of the search in the storage (default: CORPUS/PROFILE/KERNEL)"),
    ):
        parser.add_argument(f"--{name}", help=use)
    parser.add_argument(
        "--profile", choices=["cpu", "paper"], help="sizes, optimiser (default: paper with a GPU, else cpu)"
    )
    for name, default, use in (
        ("updates", None, "of a trial (default: a quarter of the profile's, 700 for a language model on the CPU)"),
        ("jobs", 0, "trials at a time (default: one a GPU, or one a core)"),
        ("seed", 1, "of the trainings (default: 1)"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=use)
    for name, default, use in (
        ("save-dir", Path("checkpoints/search"), "folder of the trainings (default: checkpoints/search)"),
        ("configs", SEARCHED, "gets the best point (default: configs/searched.yaml of this repository, for tables)"),
    ):
        parser.add_argument(f"--{name}", type=Path, default=default, help=use)
    args, args.extra = parse_with_extra(parser, argv, NOT_AFTER)
    args.kernel = "".join(args.kernel.split())
    for name, value, least in (("updates", args.updates, 1), ("jobs", args.jobs, 0), ("seed", args.seed, 1)):
        if value is not None and value < least:
            parser.error(f"--{name} {value} is not allowed: give {least} or more")
    if args.profile is None:
        args.profile = "paper" if torch.cuda.is_available() else "cpu"
    return args


def main() -> None:
    with one_line_errors():
        args = parse(sys.argv[1:])
        if optuna is None:
            raise ValueError("a search needs Optuna: pip install optuna, or bash scripts/setup.sh")
        grid = parse_grid(default_grid(args.kernel) if args.grid is None else args.grid, args.kernel)
        corpus = Corpus.at(args.data)
        if args.updates is None:
            args.updates = default_updates(corpus, args.profile)
        load_searched(args.configs)
        try:  # told before the search, not after it
            with exclusive(args.configs.parent):
                pass
        except OSError as error:
            raise ValueError(f"--configs {args.configs} can't be written ({error.strerror}); name another") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        logging.getLogger("fairseq").setLevel(logging.WARNING)
        storage = open_storage(args.storage, args.save_dir)
        search = Search(args, corpus, grid, storage)
    try:
        with interruptible("grid_search.sh"):
            search.run()
            print(search.table())
            entry = search.found(storage.engine.name)
    except Failed as error:
        sys.exit(f"grid_search.sh: {error}; the same command tries them again")
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        sys.exit(f"grid_search.sh: the storage failed ({cause(error)}); the same command goes on where it stopped")
    add_searched(args.configs, search.key, entry)
    print(f"{search.key}: {entry['kernel_params']} is the best; it is in {args.configs}")


if __name__ == "__main__":
    main()
