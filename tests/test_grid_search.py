"""The grid search: every point once, hopeless ones stopped, interruptions survived, the best written down."""

import math
import multiprocessing
import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import optuna
import pytest
import yaml

from fairseq_kernels import KERNELS
from fairseq_kernels.experiments import grid_search, runner, runs
from fairseq_kernels.experiments.data import Corpus
from fairseq_kernels.experiments.grid_search import (
    GRIDS,
    Search,
    ShortRun,
    default_grid,
    default_updates,
    open_storage,
    parse,
    parse_grid,
    queue_again,
)
from fairseq_kernels.experiments.runs import Failed, Pruned
from fairseq_kernels.experiments.searched import searched_params
from fairseq_kernels.word_counts import word_counts

ROOT = GRIDS.parents[1]
UPDATES = 8
TINY = [word for size in ("embed-dim", "hidden-size", "out-embed-dim") for word in (f"--decoder-{size}", "8")]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Waits are short, git isn't asked, and signal handlers stay as they are."""
    monkeypatch.setattr(grid_search, "WAIT", 0.1)
    monkeypatch.setattr(runs, "commit", lambda: "0123456789ab")
    monkeypatch.setattr(runner.signal, "signal", lambda *_: None)


class Searched:
    """A search of log.p on a corpus of nothing, whose trainings write a log and no more: ``perplexity(p, update)``."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.data = folder / "toy"
        (self.data / "data-bin").mkdir(parents=True)
        (self.data / "data-bin" / "dict.txt").write_text("a 1\n")
        self.configs = folder / "searched.yaml"
        self.trained = folder / "trained"  # a line for each training
        self.pause = 0.0

    def perplexity(self, p: float, update: int) -> float:
        return 10 * p + UPDATES - update

    def before(self, run: ShortRun) -> None:
        """Called by each training when it has begun."""

    def train(self, run: ShortRun, look) -> None:
        p = run.options[run.options.index("--kernel-params") + 1].removeprefix("log.p=")
        with self.trained.open("a") as trained:
            trained.write(p + "\n")
        (run.folder / "checkpoint_last.pt").touch()
        self.before(run)
        for update in range(UPDATES // 4, UPDATES + 1, UPDATES // 4):
            with run.log.open("a") as log:
                log.write(f"now | INFO | valid | ppl {self.perplexity(float(p), update)} | num_updates {update}\n")
            if look():
                raise Pruned()
            time.sleep(self.pause)

    def points(self) -> list:
        return self.trained.read_text().split()

    def logs(self) -> list:
        return list(self.folder.glob("runs/**/train.log"))

    def arguments(self, values="1,2,3", *options) -> list:
        own = {"--kernel": "log", "--grid": f"log.p={values}", "--profile": "cpu", "--updates": UPDATES, "--jobs": 2}
        own.update({"--save-dir": self.folder / "runs", "--configs": self.configs})
        return [str(word) for word in (self.data, *(word for option in own.items() for word in option), *options)]

    def make_silent(self) -> None:
        """As if what runs had begun, and shown its last sign of life, long ago."""
        with sqlite3.connect(self.folder / "runs" / "search.db") as database:
            database.execute("update trials set datetime_start = '2020-01-01 00:00:00.000000'")
            database.execute("update trial_heartbeats set heartbeat = '2020-01-01 00:00:00.000000'")

    def __call__(self, *options) -> dict:
        """The entry that the search writes."""
        main(self.arguments(*options))
        return yaml.safe_load(self.configs.read_text())["toy/cpu/log"]

    def joined(self, *options) -> Search:
        """The search as another process sees it."""
        args = parse(self.arguments(*options))
        grid = parse_grid(args.grid, args.kernel)
        return Search(args, Corpus.at(args.data), grid, open_storage(None, args.save_dir))


def main(arguments) -> None:
    argv, sys.argv = sys.argv, ["grid_search.sh", *map(str, arguments)]
    try:
        grid_search.main()
    finally:
        sys.argv = argv


@pytest.fixture
def search(tmp_path, monkeypatch):
    searched = Searched(tmp_path)
    monkeypatch.setattr(ShortRun, "train", lambda run, lock, environment, look: searched.train(run, look))
    return searched


def last_line(error, capsys) -> str:
    """What the user sees of a SystemExit."""
    line = str(error.value.code) if not isinstance(error.value.code, int) else capsys.readouterr().err.splitlines()[-1]
    assert error.value.code and "\n" not in line
    return line


# what a search finds


def test_every_point_is_trained_once_and_the_best_is_written(search, capsys):
    search.configs.write_text("other/cpu/pow: {kernel_params: pow.p=1}\ntoy/cpu/log: {kernel_params: log.p=9}\n")
    entry = search("3,1,2", "--seed", 5, "--", "--lr", "0.1")
    assert sorted(search.points()) == ["1", "2", "3"]
    assert entry["kernel_params"] == "log.p=1"
    origin = entry["origin"]
    assert origin["valid_ppl"] == 10 and origin["updates"] == UPDATES and origin["seed"] == 5
    assert origin["grid"] == "log.p=3,1,2" and origin["trials"] == {"complete": 3, "pruned": 0, "failed": 0}
    assert origin["data"] == Corpus.at(search.data).fingerprint and origin["storage"] == "sqlite"
    assert origin["study"] == "toy/cpu/log" and origin["date"] and origin["commit"] == "0123456789ab"
    assert origin["command"] == (
        "bash scripts/grid_search.sh toy --kernel log --grid log.p=3,1,2 --profile cpu --updates 8 --seed 5 -- --lr 0.1"
    )
    assert searched_params(search.configs, "other", "cpu", "pow") == "pow.p=1"  # the other entry is kept
    assert searched_params(search.configs, "toy", "cpu", "log") == "log.p=1"
    assert searched_params(search.configs, "toy", "paper", "log") is None
    assert searched_params(search.folder / "none.yaml", "toy", "cpu", "log") is None
    table = [line.split() for line in capsys.readouterr().out.splitlines() if "complete" in line]
    assert [row[0] for row in table] == ["10.00", "20.00", "30.00"] and table[0][1:] == ["8", "complete", "log.p=1"]


def test_a_finished_search_trains_nothing_again(search):
    first = search()
    search.configs.unlink()
    assert search() == first
    assert len(search.points()) == 3


def test_two_hyperparameters_make_a_product(search):
    trainings = []
    search.train = lambda run, look: (
        trainings.append(run),
        run.log.write_text("now | INFO | valid | ppl 1 | num_updates 8\n"),
    )
    entry = search("1,2 log.gamma=0.1,1,learned")
    points = {run.options[3] for run in trainings}
    assert points == {f"log.p={p},log.gamma={gamma}" for p in (1, 2) for gamma in ("0.1", "1", "learned")}
    assert len(trainings) == 6 and entry["kernel_params"] in points


def test_hopeless_trials_are_stopped_at_half_time(search):
    entry = search("1,2,3,4,5,6,7,8", "--jobs", 1)
    order = [float(p) for p in search.points()]
    complete, pruned = [], []
    for p in order:
        (pruned if len(complete) >= 3 and p > statistics.median(complete) else complete).append(p)
    assert sorted(order) == list(range(1, 9)) and pruned
    assert entry["kernel_params"] == "log.p=1"
    assert entry["origin"]["trials"] == {"complete": len(complete), "pruned": len(pruned), "failed": 0}
    lengths = {
        log.parent.parent.name.split("log.p=")[1].split("_")[0]: log.read_text().count("valid") for log in search.logs()
    }
    assert {float(p): count for p, count in lengths.items()} == {**{p: 4 for p in complete}, **{p: 2 for p in pruned}}
    assert not list(search.folder.glob("runs/**/checkpoint*"))


def test_trials_that_fail_or_diverge_are_counted(search, capsys):
    def before(run):
        if "log.p=2" in run.options:
            raise Failed("out of memory")

    search.before = before
    search.perplexity = lambda p, update: math.nan if p == 3 else p
    entry = search("1,2,3")
    assert entry["kernel_params"] == "log.p=1"
    assert entry["origin"]["trials"] == {"complete": 1, "pruned": 0, "failed": 2}
    out = capsys.readouterr().out
    assert "log.p=2: failed: out of memory" in out and "log.p=3: failed: diverged: perplexity nan" in out


def test_failed_trials_are_tried_again(search, capsys):
    def fail(run):
        raise Failed("no space left")

    search.before = fail
    with pytest.raises(SystemExit) as error:
        search()
    assert "all 3 trials failed" in last_line(error, capsys) and "no space left" in str(error.value)
    assert not search.configs.exists()
    search.before = lambda run: None
    assert search()["origin"]["trials"] == {"complete": 3, "pruned": 0, "failed": 0}


# interruptions, several processes


def test_interrupted_search_goes_on(search):
    def interrupt(run):
        if len(search.points()) == 2:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            search.pause = 0.1  # until a look finds out

    search.before = interrupt
    with pytest.raises(SystemExit, match="interrupted"):
        search("1,2,3", "--jobs", 1)
    first = search.points()
    assert len(first) == 2 and len(list(search.folder.glob("runs/**/checkpoint*"))) == 1
    states = [trial.state.name for trial in search.joined("1,2,3").by_point().values()]
    assert sorted(states) == ["COMPLETE", "WAITING"]  # so that another process can go on with it
    search.before, search.pause = lambda run: None, 0
    entry = search("1,2,3", "--jobs", 1)
    assert search.points()[2:] == [p for p in first[1:]] + [p for p in "123" if p not in first]
    assert entry["origin"]["trials"] == {"complete": 3, "pruned": 0, "failed": 0}
    assert len(search.logs()) == 3  # the interrupted training went on in its folder


def test_killed_search_goes_on(search):
    def kill(run):
        if len(search.points()) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    search.before = kill
    process = multiprocessing.get_context("fork").Process(target=main, args=(search.arguments("1,2,3", "--jobs", "1"),))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    first = search.points()
    search.make_silent()
    search.before = lambda run: None
    entry = search("1,2,3")
    assert sorted(search.points()[2:]) == sorted({"1", "2", "3"} - {first[0]})  # finished: the first alone
    assert entry["origin"]["trials"] == {"complete": 3, "pruned": 0, "failed": 0}
    assert len(search.logs()) == 3


def test_point_of_another_process_is_left_to_it_while_it_lives(search, monkeypatch):
    said = []

    def say(message):
        said.append(message)
        if "waited for" in message:
            search.make_silent()

    monkeypatch.setattr(grid_search, "say", say)
    other = search.joined()
    trial = other.study.ask({name: optuna.distributions.CategoricalDistribution(v) for name, v in other.grid.items()})
    other.study._storage.record_heartbeat(trial._trial_id)  # its last one
    queue_again(other.study, other.study.get_trials()[0])  # as two processes at once might
    entry = search()
    assert sorted(search.points()) == ["1", "2", "3"] and search.points()[-1] == trial.params["log.p"]
    assert entry["origin"]["trials"] == {"complete": 3, "pruned": 0, "failed": 0}
    assert sum("waited for" in message for message in said) == 1


def test_interrupted_trial_is_waited_for_until_it_is_queued_again(search):
    other = search.joined("1")
    trial = other.study.ask({"log.p": optuna.distributions.CategoricalDistribution(["1"])})
    other.tell(trial, optuna.trial.TrialState.FAIL)
    worker = threading.Thread(target=other.work, args=({},))
    worker.start()
    worker.join(0.5)
    assert worker.is_alive()
    queue_again(other.study, other.study.get_trials()[0])
    worker.join()
    assert search.points() == ["1"]


def test_result_that_comes_too_late_is_left_out(search, capsys):
    """Another process has given a trial up for dead and finished its point."""

    def late(run):
        other = search.joined("1")
        [trial] = other.study.get_trials()
        other.study._storage.set_trial_state_values(trial._trial_id, optuna.trial.TrialState.FAIL)
        queue_again(other.study, trial)
        search.before = lambda run: None

    search.before = late
    assert search("1")["kernel_params"] == "log.p=1"
    assert "log.p=1: had shown no sign of life" in capsys.readouterr().out


def test_processes_share_a_search(search):
    search.pause = 0.1
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=main, args=(search.arguments("1,2,3,4", "--jobs", "1"),)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert sorted(search.points()) == ["1", "2", "3", "4"]


def test_training_that_outlives_its_search_is_waited_for(search):
    other = search.joined("1")
    run = other.training({"log.p": "1"})
    with run.locked() as lock:
        assert lock is not None
        threading.Timer(1, lambda: os.close(os.dup(lock))).start()
        thread = threading.Thread(target=search, args=("1",))
        thread.start()
        time.sleep(1)
        assert thread.is_alive() and not search.trained.exists()
    thread.join()
    assert search.points() == ["1"]


def test_study_of_another_grid_is_refused(search):
    search("1,2")
    with pytest.raises(SystemExit, match="study toy/cpu/log has other options .*log.p=1,2.*name another --study"):
        search("1,2,3")
    assert search("1,2,3", "--study", "larger")["origin"]["trials"]["complete"] == 3
    assert sorted(search.points()) == ["1", "2", "3"]  # those of the smaller grid are taken from their folders


def test_a_process_that_dies_before_its_first_sign_of_life_blocks_no_search(search):
    """Optuna counts a trial as stale by its last sign of life alone."""
    joined = search.joined("1,2")
    joined.study.ask({"log.p": optuna.distributions.CategoricalDistribution(["1", "2"])})
    search.make_silent()
    search("1,2")
    assert sorted(search.points()) == ["1", "2"]


def test_a_trial_in_a_dead_ones_place_is_not_taken_for_alive(search):
    joined = search.joined("1")
    trial = joined.study.ask({"log.p": optuna.distributions.CategoricalDistribution(["1"])})
    trial.set_user_attr("alive", True)
    assert joined.tell(trial, optuna.trial.TrialState.FAIL, failed="no space left")
    queue_again(joined.study, joined.study.get_trials()[0])
    [_, again] = joined.study.get_trials()
    assert again.state.name == "WAITING" and again.params == {"log.p": "1"} and not again.user_attrs


@pytest.mark.parametrize("before_the_call", [True, False])
def test_a_dead_trial_is_queued_once_whoever_finds_it(search, monkeypatch, before_the_call):
    """Two find it at once: for the second it is over, before its call or within it."""
    first, second = search.joined("1"), search.joined("1")
    first.study.ask({"log.p": optuna.distributions.CategoricalDistribution(["1"])})
    search.make_silent()
    late, name = (second.study, "tell") if before_the_call else (second.study._storage, "set_trial_state_values")
    call = getattr(late, name)
    monkeypatch.setattr(late, name, lambda *arguments: (first.by_point(), call(*arguments))[1])
    second.by_point()
    assert [trial.state.name for trial in first.study.get_trials()] == ["FAIL", "WAITING"]


def test_study_of_other_data_is_refused(search):
    search("1,2")
    (search.data / "data-bin" / "dict.txt").write_text("b 2\n")
    with pytest.raises(SystemExit, match="study toy/cpu/log has other data"):
        search("1,2")


# grids and trainings


def test_default_grids_are_valid_and_small():
    grids = yaml.safe_load(GRIDS.read_text())
    assert set(grids) == {"log", "pow", "pol", "rbf", "ssg", "mog", "hpb", "wav"} <= set(KERNELS)
    for kernel, text in grids.items():
        assert 2 <= math.prod(len(values) for values in parse_grid(text, kernel).values()) <= 12
    assert default_grid("3xlin,log") == default_grid("log")


def test_grid_of_a_mixture():
    text = "rbf.gamma=0.1,1 log.p=2,4"
    assert parse_grid(text, "3xlin,log,rbf") == {"rbf.gamma": ["0.1", "1"], "log.p": ["2", "4"]}


@pytest.mark.parametrize(
    ("dictionary", "profile", "updates", "schedule"),
    [
        ("dict.txt", "cpu", 700, ("--total-num-update", "40")),
        ("dict.en.txt", "cpu", 250, ("--warmup-updates", "12")),
        ("dict.txt", "paper", None, ()),
    ],
)
def test_length_of_a_training(search, dictionary, profile, updates, schedule):
    (search.data / "data-bin" / "dict.txt").rename(search.data / "data-bin" / dictionary)
    if updates is not None:
        assert default_updates(Corpus.at(search.data), profile) == updates
    options = (
        search.joined("1", "--profile", profile, "--updates", 40, "--", "--lr", "1").training({"log.p": "1"}).options
    )
    assert options[:6] == ("--kernels", "log", "--kernel-params", "log.p=1", "--lr", "1")
    assert options[6:10] == ("--max-update", "40", "--save-interval-updates", "10")
    assert options[10:] == schedule


def test_folder_of_many_options_has_a_short_name(search):
    names = []
    for value in ("1", "2"):
        many = [*(f"--option-{number}" for number in range(30)), value]
        names.append(search.joined("1", "--study", value, "--", *many).training({"log.p": "1"}).folder.parent.name)
    assert names[0] != names[1] and all(len(name) <= 200 for name in names)


def test_lengths_are_those_of_the_training_scripts():
    for kind, updates in grid_search.UPDATES.items():
        script = (ROOT / "scripts" / f"train_{kind}.sh").read_text()
        assert f"--max-update {updates}" in script and f"--max-epoch {grid_search.EPOCHS[kind][0]}" in script
        option, part = grid_search.SCHEDULES[kind]
        assert f"{option} {round(part * updates)}" in script


# mistakes

MISTAKES = {
    "unknown kernel": (["--kernel", "gauss"], ["gauss", "lin"]),
    "unknown parameter": (["--grid", "log.q=1,2"], ["log.q", "log.p"]),
    "value outside": (["--grid", "log.p=1,-2"], ["log.p=-2", "a number > 0"]),
    "no number": (["--grid", "log.p=1,two"], ["log.p=two", "number"]),
    "kernel outside": (["--grid", "rbf.gamma=1,2"], ["rbf.gamma", "--kernel log"]),
    "no values": (["--grid", "log.p"], ["'log.p'", "has no values", "log.p=1,2,4"]),
    "value twice": (["--grid", "log.p=1,1.0"], ["log.p=1,1.0", "twice"]),
    "parameter twice": (["--grid", "log.p=1 log.p=2"], ["log.p", "twice"]),
    "empty grid": (["--grid", " "], ["--grid is empty"]),
    "no default grid": (["--kernel", "lin"], ["--kernel lin", "no grid", "--grid"]),
    "two default grids": (["--kernel", "log,rbf"], ["--kernel log,rbf", "2 grids", "--grid"]),
    "updates": (["--updates", "0"], ["--updates 0", "1 or more"]),
    "own option": (["--", "--kernel-params", "log.p=3"], ["--kernel-params", "--grid"]),
    "own option with =": (["--", "--max-update=3"], ["--max-update", "--updates"]),
    "no kernels": (["--", "--stock"], ["--stock after --", "--kernel"]),
    "no URL": (["--storage", "secret@host"], ["--storage", "postgresql://USER@HOST/DATABASE"]),
    "no file": (["--storage", "sqlite://"], ["sqlite", "sqlite:///FILE"]),
    "no such folder": (["--storage", "sqlite:////nowhere/a.db"], ["sqlite", "/nowhere/a.db", "unable to open"]),
    "unknown database": (["--storage", "nosql://host/db"], ["nosql://host/db", "nosql"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_one_clear_line(name, search, capsys):
    options, said = MISTAKES[name]
    arguments = [str(search.data), "--kernel", "log", "--save-dir", str(search.folder), *options]
    with pytest.raises(SystemExit) as error:
        main(arguments)
    line = last_line(error, capsys)
    assert all(part in line for part in said) and "secret" not in line, line


def test_missing_data(search):
    with pytest.raises(SystemExit, match="nowhere.*data-prep"):
        main([search.folder / "nowhere", "--kernel", "log"])


def test_configs_that_are_no_mapping_are_refused_before_the_search(search):
    search.configs.write_text("- a\n- list\n")
    with pytest.raises(SystemExit, match="searched.yaml is not a mapping"):
        search()
    search.configs.unlink()
    search.configs.mkdir()
    with pytest.raises(SystemExit, match="searched.yaml is no file"):
        search()
    search.configs.rmdir()
    search.configs = Path(__file__) / "searched.yaml"
    with pytest.raises(SystemExit, match="--configs .*/searched.yaml can't be written"):
        search()
    search.configs = search.folder / "searched.yaml"
    search.configs.write_text("a: b: c\n")
    with pytest.raises(SystemExit, match="searched.yaml is no YAML"):
        search()
    assert not search.trained.exists()


def test_missing_optuna(search, monkeypatch):
    monkeypatch.setattr(grid_search, "optuna", None)
    with pytest.raises(SystemExit, match="pip install optuna"):
        search()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_missing_driver(search, monkeypatch, scheme):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SystemExit, match=r"postgresql://host/db has no driver.*pip install") as error:
        search("1", "--storage", f"{scheme}://user:secret@host/db")
    assert "secret" not in str(error.value)


def test_unreachable_database(search, capsys):
    with pytest.raises(SystemExit, match=r"postgresql://127.0.0.1/db can't be opened \(.*refused") as error:
        search("1", "--storage", "postgresql://user:secret@127.0.0.1:1/db")
    assert "secret" not in last_line(error, capsys)


# without a shortcut


def test_search_on_text(lm_data, tmp_path):
    """Two points, with the script; the corpus has no test set, which a search must not look at."""
    data = tmp_path / "text" / "data-bin"
    shutil.copytree(lm_data, data, ignore=shutil.ignore_patterns("test*"))
    command = ["bash", ROOT / "scripts" / "grid_search.sh", data.parent, "--kernel", "log", "--grid", "log.p=1,4"]
    command += ["--profile", "cpu", "--updates", "8", "--jobs", "2", "--save-dir", tmp_path / "runs"]
    command += ["--configs", tmp_path / "searched.yaml", "--", *TINY, "--warmup-updates", "0", "--lr", "0.05"]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert result.returncode == 0 and not result.stderr, result.stdout + result.stderr
    origin = yaml.safe_load((tmp_path / "searched.yaml").read_text())["text/cpu/log"]["origin"]
    assert origin["trials"] == {"complete": 2, "pruned": 0, "failed": 0} and 1 < origin["valid_ppl"] < 24
    logs = list(tmp_path.glob("runs/text/cpu/*/seed1/train.log"))
    assert len(logs) == 2
    for log in logs:
        assert [f"num_updates {update}" in log.read_text() for update in (2, 4, 6, 8)] == [True] * 4
    corpus = Corpus.at(data)
    from fairseq.data import Dictionary

    words = word_counts(data / "train", Dictionary.load(str(data / "dict.txt"))).sum()
    assert default_updates(corpus, "paper") == 30 * words // (32 * 35) // 4 + 1
