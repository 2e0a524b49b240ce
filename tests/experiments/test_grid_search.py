"""The grid search: every point once, hopeless ones stopped, interruptions survived, the best written down."""

import math
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import optuna
import pytest
import yaml
from table_commands import environment

from fairseq_kernels import KERNELS
from fairseq_kernels.experiments import grid_search, runs, search_storage
from fairseq_kernels.experiments.data import Corpus
from fairseq_kernels.experiments.grid_search import (
    Search,
    default_grid,
    default_updates,
    parse,
    parse_grid,
)
from fairseq_kernels.experiments.searched import searched_entry
from fairseq_kernels.experiments.tables import ROOT
from fairseq_kernels.word_counts import word_counts

UPDATES = 8
TINY = [word for size in ("embed-dim", "hidden-size", "out-embed-dim") for word in (f"--decoder-{size}", "8")]
# in the place of a training: a line of validation for each quarter of the updates, 10 p + what is left of them
TRAINING = """
import sys, time
log, p, trained = sys.argv[1:]
open(trained, "a").write(p + "\\n")
open(log.replace("train.log", "checkpoint_last.pt"), "w")
if p == "13":
    sys.exit("no space left")
for update in (2, 4, 6, 8):
    value = "nan" if p == "17" else 10 * float(p) + 8 - update
    print(f"now | INFO | valid | ppl {value} | num_updates {update}", file=open(log, "a"))
    time.sleep(0.15)
"""


class Searched:
    """A search of log.p on a corpus of nothing, with quick trainings."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.data = folder / "toy"
        (self.data / "data-bin").mkdir(parents=True)
        (self.data / "data-bin" / "dict.txt").write_text("a 1\n")
        self.searched = folder / "searched.yaml"
        self.trained = folder / "trained"  # a line for each training

    def training(self, run) -> list:
        p = run.options[run.options.index("--kernel-params") + 1].removeprefix("log.p=")
        return [sys.executable, "-c", TRAINING, str(run.log), p, str(self.trained)]

    def points(self) -> list:
        return self.trained.read_text().split() if self.trained.exists() else []

    def arguments(self, values="1,2,3", *options) -> list:
        own = {"--kernel": "log", "--grid": f"log.p={values}", "--profile": "cpu", "--updates": UPDATES, "--jobs": 2}
        own.update({"--save-dir": self.folder / "runs", "--searched": self.searched})
        return [str(word) for word in (self.data, *(word for option in own.items() for word in option), *options)]

    def __call__(self, *options) -> dict:
        """The entry that the search writes."""
        main(self.arguments(*options))
        return yaml.safe_load(self.searched.read_text())["toy/cpu/log"]

    def process(self, *options) -> multiprocessing.Process:
        self.running = process = multiprocessing.get_context("fork").Process(
            target=main, args=(self.arguments(*options),)
        )
        process.start()
        return process

    def joined(self, *options) -> Search:
        """The search as another process sees it."""
        args = parse(self.arguments(*options))
        return Search(args, Corpus.at(args.data), parse_grid(args.grid, args.kernel))

    def until_trained(self, number: int) -> None:
        while len(self.points()) < number:
            assert self.running.is_alive()
            time.sleep(0.02)


def main(arguments) -> None:
    argv, sys.argv = sys.argv, ["grid_search.sh", *map(str, arguments)]
    try:
        grid_search.main()
    finally:
        sys.argv = argv


@pytest.fixture
def search(tmp_path, monkeypatch):
    searched = Searched(tmp_path)
    monkeypatch.setattr(Search, "command", lambda self, run: searched.training(run))
    monkeypatch.setattr(grid_search, "LOOK", 0.05)
    monkeypatch.setattr(runs, "commit", lambda: "0123456789ab")
    return searched


def last_line(error, capsys) -> str:
    """What the user sees of a SystemExit."""
    line = str(error.value.code) if not isinstance(error.value.code, int) else capsys.readouterr().err.splitlines()[-1]
    assert error.value.code and "\n" not in line
    return line


# what a search finds


def test_every_point_is_trained_once_and_the_best_is_written(search, capsys):
    search.searched.write_text("other/cpu/pow: {kernel_params: pow.p=1}\ntoy/cpu/log: {kernel_params: log.p=9}\n")
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
    assert searched_entry(search.searched, "other", "cpu", "pow") == {"kernel_params": "pow.p=1"}  # is kept
    assert searched_entry(search.searched, "toy", "paper", "log") is None
    table = [line.split() for line in capsys.readouterr().out.splitlines() if "complete" in line]
    assert [row[0] for row in table] == ["10.00", "20.00", "30.00"] and table[0][1:] == ["8", "complete", "log.p=1"]
    assert not list(search.folder.glob("runs/**/checkpoint*"))

    search.searched.unlink()  # a finished search trains nothing again
    again = search("3,1,2", "--seed", 5, "--", "--lr", "0.1")
    assert again == entry and len(search.points()) == 3


def test_the_best_perplexity_counts_not_the_last(search, monkeypatch):
    """In what is found, in what is compared, and in what is pruned by."""
    curves = {"1": [30, 12, 40, 50], "2": [20, 19, 18, 17], "3": [25, 14, 15, 16]}

    def trains(self, run):
        p = run.options[run.options.index("--kernel-params") + 1].removeprefix("log.p=")
        lines = [f"now | INFO | valid | ppl {ppl} | num_updates {2 * n}" for n, ppl in enumerate(curves[p], 1)]
        write = f"print({chr(10).join(lines)!r}, file=open({str(run.log)!r}, 'a'))"
        return [sys.executable, "-c", write]

    monkeypatch.setattr(Search, "command", trains)
    entry = search("1,2,3", "--jobs", 1)
    assert entry["kernel_params"] == "log.p=1" and entry["origin"]["valid_ppl"] == 12
    assert {trial.value for trial in search.joined("1,2,3").study.trials} == {12, 14, 17}


def test_two_hyperparameters_make_a_product(search, monkeypatch):
    points = []
    monkeypatch.setattr(Search, "watch", lambda self, trial, run: points.append(run.options[3]) or len(points))
    entry = search("1,2 log.gamma=0.1,1,learned", "--jobs", 1)
    assert sorted(points) == sorted(f"log.p={p},log.gamma={gamma}" for p in (1, 2) for gamma in ("0.1", "1", "learned"))
    assert entry["kernel_params"] == points[0]


def test_hopeless_trials_are_stopped_from_half_time_on(search):
    entry = search("1,2,3,4,5,6,7,8", "--jobs", 1)
    assert sorted(map(int, search.points())) == list(range(1, 9)) and entry["kernel_params"] == "log.p=1"
    trials = entry["origin"]["trials"]
    assert trials["pruned"] > 0 and trials["complete"] >= 3 and sum(trials.values()) == 8
    lengths = [log.read_text().count("valid") for log in search.folder.glob("runs/**/train.log")]
    assert all(length == 4 or 2 <= length for length in lengths)
    assert not list(search.folder.glob("runs/**/checkpoint*"))


def test_trials_that_fail_or_diverge_are_counted_and_tried_again(search, capsys):
    entry = search("1,13,17")
    assert entry["kernel_params"] == "log.p=1"
    assert entry["origin"]["trials"] == {"complete": 1, "pruned": 0, "failed": 2}
    out = capsys.readouterr().out
    assert "log.p=13: failed: no space left" in out and "log.p=17: failed: diverged: perplexity nan" in out
    search("1,13,17")
    assert search.points().count("13") > 1 and search.points().count("1") == 1


def test_an_earlier_attempt_s_log_counts_no_more(search):
    run = search.joined("1,2").training({"log.p": "1"})
    run.folder.mkdir(parents=True)
    run.log.write_text("now | INFO | valid | ppl nan | num_updates 2\nnow | INFO | valid | ppl 1 | num_updates 8\n")
    entry = search("1,2")
    assert entry["kernel_params"] == "log.p=1" and entry["origin"]["valid_ppl"] == 10


def test_all_failed(search, capsys):
    with pytest.raises(SystemExit) as error:
        search("13")
    assert "all 1 trials failed" in last_line(error, capsys) and "no space left" in str(error.value)
    assert not search.searched.exists()


def test_a_folder_that_cannot_be_made_fails_its_point(search, capsys):
    folder = search.joined("1,2").training({"log.p": "1"}).folder
    folder.parent.mkdir(parents=True)
    folder.write_text("a file in its place")
    assert search("1,2")["origin"]["trials"] == {"complete": 1, "pruned": 0, "failed": 1}
    assert "log.p=1: failed: [Errno 17] File exists" in capsys.readouterr().out


# interruptions, several processes


def test_interrupted_search_goes_on(search):
    process = search.process("1,2,3", "--jobs", 1)
    search.until_trained(2)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 1 and len(search.points()) == 2
    entry = search("1,2,3", "--jobs", 1)
    assert entry["origin"]["trials"] == {"complete": 3, "pruned": 0, "failed": 0}
    assert search.points().count(search.points()[0]) == 1  # what was finished isn't trained again


def test_a_point_that_fails_after_an_interruption_is_not_tried_for_ever(search, monkeypatch, capsys):
    def interrupt(self, trial, run):
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted, pytest.raises(SystemExit, match="interrupted"):
        interrupted.setattr(Search, "watch", interrupt)
        search("13", "--jobs", 1)
    with pytest.raises(SystemExit) as error:
        search("13")
    assert "no space left" in last_line(error, capsys) and search.points() == ["13"]


def test_killed_search_goes_on(search, monkeypatch):
    """Its trainings end with it, and its points are taken up when it has shown no sign of life for some time."""
    process = search.process("1,2,3", "--jobs", 1)
    search.until_trained(2)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with sqlite3.connect(search.folder / "runs" / "search.db") as database:
        database.execute("update trial_heartbeats set heartbeat = '2020-01-01 00:00:00.000000'")
    entry = search("1,2,3")
    assert entry["origin"]["trials"] == {"complete": 3, "pruned": 0, "failed": 0}
    assert search.points().count(search.points()[0]) == 1


def test_processes_share_a_search(search):
    processes = [search.process("1,2,3,4", "--jobs", 1) for _ in range(2)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert sorted(search.points()) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("error", [optuna.exceptions.UpdateFinishedTrialError, ValueError])
def test_a_queued_trial_that_two_have_taken(search, monkeypatch, error):
    """SQLite locks no rows, so that the second to finish finds the trial finished."""
    optimize, calls = optuna.Study.optimize, []

    def taken_once(study, *arguments, **options):
        calls.append(study)
        if len(calls) == 1:
            raise error("Cannot tell a COMPLETE trial.")
        optimize(study, *arguments, **options)

    monkeypatch.setattr(optuna.Study, "optimize", taken_once)
    assert search("1,2")["origin"]["trials"]["complete"] == 2


def test_training_that_outlives_its_search_is_waited_for(search):
    with search.joined("1").training({"log.p": "1"}).lock():
        process = search.process("1")
        process.join(1)
        assert process.is_alive() and not search.points()
    process.join()
    assert process.exitcode == 0 and search.points() == ["1"]


def test_waiting_for_a_training_is_interrupted(search):
    with search.joined("1").training({"log.p": "1"}).lock():
        process = search.process("1")
        process.join(1)
        os.kill(process.pid, signal.SIGINT)
        process.join(10)
        assert process.exitcode == 1 and not search.points()


def test_study_of_another_grid_or_other_data_is_refused(search):
    search("1,2")
    with pytest.raises(SystemExit, match="study toy/cpu/log has other options .*log.p=1,2.*name another --study"):
        search("1,2,3")
    (search.data / "data-bin" / "dict.txt").write_text("b 2\n")
    with pytest.raises(SystemExit, match="study toy/cpu/log has other data"):
        search("1,2")


def test_lost_storage(search, monkeypatch, capsys):
    """A database that goes away ends the search in a line; the same command goes on."""

    def lose(self, trial, run):
        raise optuna.exceptions.StorageInternalError("gone") from ConnectionError("connection refused")

    with monkeypatch.context() as lost, pytest.raises(SystemExit) as error:
        lost.setattr(Search, "watch", lose)
        search("1,2")
    assert "storage failed (connection refused); the same command goes on" in last_line(error, capsys)
    assert search("1,2")["origin"]["trials"]["complete"] == 2


# grids and trainings


def test_default_grids_are_valid_and_small():
    grids = yaml.safe_load((ROOT / "configs" / "grids.yaml").read_text())
    assert set(grids) == {"log", "pow", "pol", "rbf", "ssg", "mog", "hpb", "wav"} <= set(KERNELS)
    for kernel, text in grids.items():
        assert 2 <= math.prod(len(values) for values in parse_grid(text, kernel).values()) <= 12
    assert default_grid("3xlin,log") == default_grid("log")


def test_grid_of_a_mixture():
    text = "rbf.gamma=0.1,1 log.p=2,4"
    assert parse_grid(text, "3xlin,log,rbf") == {"rbf.gamma": ["0.1", "1"], "log.p": ["2", "4"]}
    assert parse_grid("rbf2.gamma=1,10", "2xrbf") == {"rbf2.gamma": ["1", "10"]}


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
    shared = ("--kernels", "log", "--kernel-params", "log.p=1", "--max-update", "40", "--save-interval-updates", "10")
    for extra, own in ((("--warmup-updates", "3"), schedule), (("--lr-scheduler", "fixed"), ())):  # what is given wins
        other = search.joined("1", "--profile", profile, "--updates", 40, "--study", extra, "--", *extra)
        assert other.training({"log.p": "1"}).options == (*shared, *own, *extra)


# mistakes

MISTAKES = {
    "unknown kernel": (["--kernel", "gauss"], ["gauss", "lin"]),
    "unknown parameter": (["--grid", "log.q=1,2"], ["log.q", "log.p"]),
    "value outside": (["--grid", "log.p=1,-2"], ["log.p=-2", "from 1e-12 to 1e10"]),
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
    "unknown option": (["--", "--lrr", "0.1"], ["--lrr"]),
    "no kernels": (["--", "--stock"], ["--stock after --", "--kernel"]),
    "no URL": (["--storage", "secret@host"], ["--storage", "postgresql://USER@HOST/DATABASE"]),
    "no file": (["--storage", "sqlite://"], ["sqlite", "sqlite:///FILE"]),
    "no such folder": (["--storage", "sqlite:////nowhere/a.db"], ["sqlite", "/nowhere/a.db", "unable to open"]),
    "unknown database": (["--storage", "nosql://host/db"], ["nosql://host/db", "nosql"]),
    "unreachable": (["--storage", "postgresql://u:secret@127.0.0.1:1/db"], ["postgresql://127.0.0.1/db", "refused"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_one_clear_line(name, search, capsys):
    options, said = MISTAKES[name]
    arguments = [str(search.data), "--kernel", "log", "--save-dir", str(search.folder), *options]
    with pytest.raises(SystemExit) as error:
        main(arguments)
    line = last_line(error, capsys)
    assert all(part in line for part in said) and "secret" not in line, line
    assert not list(search.folder.rglob("search.db*"))


def test_defaults(tmp_path):
    args = parse([str(tmp_path), "--kernel", "log"])
    assert args.seed == 1 and args.save_dir == Path("checkpoints/search") and args.searched.parent == args.save_dir
    assert args.updates is None and args.jobs >= 1


def test_missing_data(search):
    with pytest.raises(SystemExit, match="nowhere.*data-prep"):
        main([search.folder / "nowhere", "--kernel", "log"])


def test_wrong_files_are_refused_before_the_search(search):
    search.searched.write_text("- a\n- list\n")
    with pytest.raises(SystemExit, match="searched.yaml is not a mapping"):
        search()
    search.searched.write_text("a: b: c\n")
    with pytest.raises(SystemExit, match="searched.yaml is no YAML"):
        search()
    search.searched = Path(__file__) / "searched.yaml"
    with pytest.raises(SystemExit, match="--searched .*/searched.yaml can't be written"):
        search()
    assert not search.points()


def test_a_missing_driver(search, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SystemExit, match=r"postgresql://host/db has no driver.*pip install") as error:
        search("1", "--storage", "postgres://user:secret@host/db")
    assert "secret" not in str(error.value)


# without a shortcut


def test_search_on_text(lm_data, tmp_path):
    """Two points, with the script; the corpus has no test set, which a search must not look at."""
    data = tmp_path / "text" / "data-bin"
    shutil.copytree(lm_data, data, ignore=shutil.ignore_patterns("test*"))
    command = ["bash", ROOT / "scripts" / "grid_search.sh", data.parent, "--kernel", "log", "--grid", "log.p=1,4"]
    command += ["--profile", "cpu", "--updates", "8", "--jobs", "2", "--save-dir", tmp_path / "runs"]
    command += ["--", *TINY, "--warmup-updates", "0", "--lr", "0.05"]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment())
    assert result.returncode == 0, result.stdout + result.stderr
    origin = yaml.safe_load((tmp_path / "runs" / "searched.yaml").read_text())["text/cpu/log"]["origin"]
    assert origin["trials"] == {"complete": 2, "pruned": 0, "failed": 0} and 1 < origin["valid_ppl"] < 24
    logs = list(tmp_path.glob("runs/text/cpu/*/seed1/train.log"))
    assert len(logs) == 2
    for log in logs:
        assert [f"num_updates {update}" in log.read_text() for update in (2, 4, 6, 8)] == [True] * 4
    from fairseq.data import Dictionary

    words = word_counts(data / "train", Dictionary.load(str(data / "dict.txt"))).sum()
    assert default_updates(Corpus.at(data), "paper") == 30 * words // (32 * 35) // 4 + 1
    parts = tmp_path / "parts"
    shutil.copytree(data, parts)
    for suffix in ("bin", "idx"):
        shutil.copy(parts / f"train.{suffix}", parts / f"train1.{suffix}")
    assert default_updates(Corpus.at(parts), "paper") == 30 * 2 * words // (32 * 35) // 4 + 1


@pytest.fixture
def postgres(tmp_path_factory):
    """Calls pg_ctl on a server of the test's own; skipped where PostgreSQL isn't installed."""
    if shutil.which("initdb") is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # its socket's path must be short, and another user's
    user = {}
    if os.geteuid() == 0:  # whom PostgreSQL refuses
        user = {"user": "nobody"}
        shutil.chown(folder, "nobody")

    start = f"-k {folder} -c listen_addresses=''"

    def control(*arguments):
        command = ["pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)

    options = ["-A", "trust", "-U", "test", "-D", folder / "data"]
    subprocess.run(["initdb", *options], check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)
    control("-o", start, "start")
    yield (
        lambda action: control(*(("-o", start) if action == "start" else ("-m", "immediate")), action),
        f"postgresql://test@/postgres?host={folder}",
    )
    subprocess.run(["pg_ctl", "-D", folder / "data", "-m", "immediate", "stop"], cwd=folder, check=False, **user)
    shutil.rmtree(folder)


def test_postgresql(search, postgres, monkeypatch):
    """Two workers of which one is killed; the database goes away and comes back."""
    control, url = postgres
    monkeypatch.setattr(search_storage, "BEAT", 1)
    monkeypatch.setattr(search_storage, "GRACE", 2)
    arguments = ("1,2,3,4,5,6", "--jobs", 1, "--storage", url)
    one, two = search.process(*arguments), search.process(*arguments)
    search.until_trained(2)
    os.kill(one.pid, signal.SIGKILL)
    search.until_trained(3)
    control("stop")
    two.join()
    assert two.exitcode == 1
    control("start")
    trials = search(*arguments)["origin"]["trials"]
    assert sum(trials.values()) == 6 and trials["failed"] == 0
