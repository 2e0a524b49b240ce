"""The papers' tables: their definitions, and rows that are trained once, whatever happens meanwhile."""

import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairseq_kernels.experiments import mixtures, results, runner, runs
from fairseq_kernels.experiments.data import Corpus
from fairseq_kernels.experiments.report import html, load_chapters, markdown
from fairseq_kernels.experiments.runner import (
    Runner,
    Work,
    begin_of_task,
    environments,
    interruptible,
    main,
    options_of,
    runs_of,
)
from fairseq_kernels.experiments.runs import Failed, Run, mend_checkpoints
from fairseq_kernels.experiments.searched import add_searched
from fairseq_kernels.experiments.tables import ROOT, Row, Table, load_table, names
from fairseq_kernels.kernels.spec import build_kernels, parse_kernels

SMALL = ["--decoder-embed-dim", "8", "--decoder-hidden-size", "8", "--decoder-out-embed-dim", "8"]
# checkpoints often enough for an interruption between two of them
LONG = [*SMALL, "--batch-size", "1", "--max-update", "100", "--save-interval-updates", "10"]
SHORT = [*SMALL, "--max-update", "10"]


@pytest.fixture(scope="module")
def corpus(lm_data, tmp_path_factory):
    """The tests' corpus under a name of its own."""
    folder = tmp_path_factory.mktemp("experiments") / "toy"
    shutil.copytree(lm_data, folder / "data-bin")
    return folder


def command(table, corpus, folder, *options):
    places = ["--save-dir", folder / "runs", "--results", folder / "results", "--jobs", 1, "--profile", "cpu"]
    return ["bash", ROOT / "scripts" / f"{table}.sh", *map(str, (corpus, *places, *options))]


def call(*arguments):
    return subprocess.run(command(*arguments), capture_output=True, text=True)


# definitions


@pytest.mark.parametrize("name", names())
def test_tables(name):
    """Their rows have names of their own, kernels that exist, and a script."""
    table = load_table(name)
    assert len({row.name for row in table.rows}) == len(table.rows)
    assert (ROOT / "scripts" / f"{name}.sh").is_file()
    for row in table.rows:
        options = dict(zip(row.options, row.options[1:]))
        if "--kernels" in options:
            build_kernels(parse_kernels(options["--kernels"]), 8, options.get("--kernel-params", ""))


def test_untied_mixtures_share_out_the_dimensions(corpus):
    """Two matrices of half the columns: as many parameters as one."""
    [row] = load_table("beyond_table").chosen(["2xlin-untied"])
    for profile, half in (("cpu", "64"), ("paper", "256")):
        options = options_of(row, Corpus.at(corpus), profile)
        assert "--untied-projections" in options and options[-2:] == ("--decoder-out-embed-dim", half)


def test_table1_is_the_papers():
    paper = {row.name: row.paper for row in load_table("table1").rows if row.paper}
    assert list(paper) == ["lin", "log", "pow", "pol", "rbf", "ssg", "mog", "hpb", "wav"]
    assert paper["rbf"] == {"ppl": 284.9, "bleu": 0.0} and paper["ssg"] == {"ppl": 49.9, "bleu": 34.6}


def test_mixbig_has_one_of_each_kernel():
    [row] = load_table("table3").chosen(["mixbig"])
    assert sorted(row.options[1].split(",")) == sorted(r.name for r in load_table("table1").rows if r.paper)


# one run after the other


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """Table 1's unigram and lin, then Table 3's lin."""
    folder = tmp_path_factory.mktemp("finished")
    first = call("table1", corpus, folder, "--rows", "unigram lin", "--", *SHORT)
    assert first.returncode == 0, first.stdout + first.stderr
    second = call("table3", corpus / "data-bin", folder, "--rows", "lin", "--", *SHORT)
    assert second.returncode == 0, second.stdout + second.stderr
    return folder, second


def test_figures_tell_how_they_were_made(finished, corpus):
    folder, _ = finished
    found = results.load(folder / "results" / "table1.json")
    assert [(f["name"], f["split"], f["metric"]) for f in found] == [
        (name, split, "ppl") for name in ("unigram", "lin") for split in ("test", "valid")
    ]
    figure = found[2]
    assert figure["corpus"] == "toy" and figure["profile"] == "cpu" and figure["seed"] == 1 and figure["paper"] == 46.8
    assert 5 < figure["value"] < 24
    for figure_, split in ((figure, "test"), (found[3], "valid")):
        train, evaluate = figure_["command"].split("; ")
        assert train.startswith("bash scripts/train_lm.sh") and evaluate.startswith("bash scripts/evaluate_lm.sh")
        assert evaluate.endswith(f" --gen-subset {split}")
    origin = figure["provenance"]
    assert origin["data"] == Corpus.at(corpus).fingerprint and origin["config"] == " ".join(
        ["--kernels", "lin", *SHORT]
    )
    assert "--lr 0.008" in origin["arguments"] and "--save-dir" not in origin["arguments"]
    assert origin["updates"] == 10 and origin["seconds"] > 0 and origin["versions"]["torch"] and origin["threads"]
    curves = results.load(folder / "results" / "curves" / "table1.json")
    assert [entry["name"] for entry in curves] == ["lin", "unigram"] and "10" in curves[0]["valid"]["ppl"]


def test_tables_share_runs(finished):
    """Table 3's lin is Table 1's: not trained again."""
    folder, second = finished
    assert "training" not in second.stdout
    one, three = (results.load(folder / "results" / f"{name}.json") for name in ("table1", "table3"))
    assert three == [figure for figure in one if figure["name"] == "lin"]


def test_the_unigram_is_the_preparations(finished):
    """On the toy corpus by hand: counts, one added to each word that occurs anywhere."""
    folder, _ = finished
    [figure] = [
        f for f in results.load(folder / "results" / "table1.json") if f["name"] == "unigram" and f["split"] == "test"
    ]
    assert 10 < figure["value"] < 22  # 20 words and </s>, nearly uniform


def test_another_corpus_in_the_same_place(finished, corpus, mt_data, tmp_path):
    """A folder of runs knows its data."""
    folder, _ = finished
    other = tmp_path / "toy"
    shutil.copytree(corpus, other)
    with open(other / "data-bin" / "dict.txt", "a") as dictionary:
        dictionary.write("another 1\n")
    result = call("table1", other, folder, "--rows", "lin", "--", *SHORT)
    assert result.returncode != 0 and "was trained on data" in result.stdout and "--save-dir" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


def test_another_meaning_of_a_profile(finished, corpus, monkeypatch):
    """A folder of runs knows fairseq's arguments, which another version of a profile changes."""
    folder, _ = finished
    run = Run(Corpus.at(corpus), "cpu", ("--kernels", "lin", *SHORT), 1, folder / "runs")
    assert run.finished()
    before = run.arguments()
    monkeypatch.setattr(Run, "arguments", lambda run: before.replace("--lr 0.008", "--lr 0.002"))
    with pytest.raises(ValueError, match="after --lr: 0.008 in the place of 0.002.; name another --save-dir"):
        run.finished()
    (run.folder / "result.json").rename(run.folder / "hidden")
    with run.locked() as lock, pytest.raises(ValueError, match="was begun on other settings"):
        run.execute(lock, {})
    (run.folder / "hidden").rename(run.folder / "result.json")


def test_rows_with_further_options_are_kept_apart(finished, tmp_path):
    """What follows -- makes another row of the same name: it doesn't take the place of the first."""
    folder, _ = finished
    path = shutil.copy(folder / "results" / "table1.json", tmp_path)
    figures = [figure for figure in results.load(Path(path)) if figure["name"] == "lin"]
    others = [{**figure, "value": 1.0, "provenance": {**figure["provenance"], "config": "x"}} for figure in figures]
    results.add(Path(path), others, ["unigram", "lin"])
    results.add(Path(path), others, ["unigram", "lin"])
    assert len(results.load(Path(path))) == 6
    values = {(figure["value"] == 1.0, figure["provenance"]["config"] == "x") for figure in results.load(Path(path))}
    assert values == {(True, True), (False, False)}
    results.add(Path(path), [{**figures[0], "seed": seed} for seed in (10, 2)], ["unigram", "lin"])
    seeds = [figure["seed"] for figure in results.load(Path(path)) if figure["split"] == figures[0]["split"]]
    assert seeds[-4:] == [1, 1, 2, 10]


def test_dry_run_shows_fairseq_s_command(corpus, tmp_path):
    script, save = ROOT / "scripts" / "train_lm.sh", tmp_path / "none"
    options = ["--profile", "cpu", "--kernels", "3xlin,log", "--dry-run", "--save-dir", save]
    shown = subprocess.run(["bash", script, corpus / "data-bin", *options], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith(f"fairseq-train {corpus / 'data-bin'} ") and "--kernels 3xlin" in shown.stdout
    assert shown.stdout.count("\n") == 1 and not save.exists()


# interruptions


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    process = subprocess.Popen(command("table1", corpus, folder, "--rows", "lin", "--", *LONG))
    return folder, process


def interrupt(corpus, folder, number):
    """Starts a table and sends its process a signal once there is a checkpoint; what it wrote."""
    process = subprocess.Popen(
        command("table1", corpus, folder, "--rows", "lin", "--", *LONG),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 600
    while not list(folder.glob("runs/toy/cpu/*/seed1/checkpoint_last.pt")):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.05)
    process.send_signal(number)
    if number == signal.SIGINT:  # again, as one does: it must not leave the training behind
        time.sleep(0.1)
        process.send_signal(number)
    output = process.communicate()[0]
    assert process.returncode != 0
    return output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_interrupted_and_started_again(number, corpus, uninterrupted, tmp_path):
    """The same figures as without an interruption; nothing lost, nothing twice."""
    output = interrupt(corpus, tmp_path, number)
    assert not (tmp_path / "results" / "table1.json").exists()
    if number != signal.SIGKILL:
        assert "the same command goes on" in output and "Traceback" not in output
        [lock] = tmp_path.glob("runs/toy/cpu/*/seed1/lock")
        with open(lock) as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no training has it any more
    again = call("table1", corpus, tmp_path, "--rows", "lin", "--", *LONG)
    assert again.returncode == 0, again.stdout + again.stderr
    folder, process = uninterrupted
    assert process.wait() == 0
    expected, found = (results.load(place / "results" / "table1.json") for place in (folder, tmp_path))
    assert [f["value"] for f in found] == [f["value"] for f in expected] and len(found) == 2
    assert all(f["provenance"]["seconds"] > 0 for f in found)  # fairseq's own log says 0 after an interruption
    [log] = tmp_path.glob("runs/toy/cpu/*/seed1/train.log")
    assert log.read_text().count("done training") == 1


def test_a_failing_row_stops_no_other(corpus, tmp_path):
    rows = (Row("bad", ("--kernels", "lin", "--kernel-params", "lin.p=2")), Row("good", ("--kernels", "lin")))
    table = Table("table1", "", "", rows)
    work = [Work(row, Run(Corpus.at(corpus), "cpu", (*row.options, *SHORT), 1, tmp_path / "runs")) for row in rows]
    rows_runner = Runner(table, work, tmp_path / "results", [{"OMP_NUM_THREADS": "1"}], {})
    rows_runner.run()
    assert list(rows_runner.failed) == ["bad on toy, seed 1"] and "lin.p" in rows_runner.failed["bad on toy, seed 1"]
    assert {f["name"] for f in results.load(tmp_path / "results" / "table1.json")} == {"good"}


def test_what_ended_a_command_is_told(corpus, tmp_path):
    run = Run(Corpus.at(corpus), "cpu", ("--kernels", "lin", *SHORT), 1, tmp_path)
    run.folder.mkdir(parents=True)
    with run.locked() as lock:
        for code, said in (("kill -9 $$", "ended by SIGKILL"), ("echo no memory; exit 3", "no memory .exit status 3")):
            with pytest.raises(Failed, match=said):
                run.call(["sh", "-c", code], tmp_path / "out", lock, {})


def test_a_run_of_other_settings_is_not_continued(corpus, tmp_path):
    """The folder's name says most, not all: the whole command is compared."""
    run = Run(Corpus.at(corpus), "cpu", ("--kernels", "lin", "--lr", "1e-3"), 1, tmp_path)
    run.folder.mkdir(parents=True)
    (run.folder / "start.json").write_text(
        json.dumps({"data": run.corpus.fingerprint, "arguments": "another", "commit": ""})
    )
    with run.locked() as lock, pytest.raises(ValueError, match="--save-dir"):
        run.execute(lock, {})


def test_one_process_has_a_run(corpus, tmp_path):
    run = Run(Corpus.at(corpus), "cpu", ("--kernels", "lin"), 1, tmp_path)
    with run.locked() as first, run.locked() as second:
        assert first is not None and second is None
    with run.locked() as third:
        assert third is not None


def test_mend_checkpoints(finished, tmp_path):
    """A copy that a kill has cut off is made anew from the checkpoint that it was a copy of."""
    [whole] = (finished[0]).glob("runs/toy/cpu/*/seed1/checkpoint_last.pt")
    for name in ("checkpoint_1_50.pt", "checkpoint_best.pt"):
        shutil.copy(whole, tmp_path / name)
    (tmp_path / "checkpoint_last.pt").write_bytes(whole.read_bytes()[:5000])
    mend_checkpoints(tmp_path)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == whole.read_bytes()
    assert (tmp_path / "checkpoint_best.pt").read_bytes() == whole.read_bytes()


def test_a_training_that_ended_unsaid_is_not_continued(finished, corpus, tmp_path):
    """Killed after its last checkpoint, before its log's last line: fairseq would make one update more."""
    run = Run(Corpus.at(corpus), "cpu", ("--kernels", "lin", *SHORT), 1, finished[0] / "runs")
    assert run.trained()
    other = Run(run.corpus, run.profile, run.options, run.seed, tmp_path)
    shutil.copytree(run.folder, other.folder)
    other.log.write_text("")
    assert other.trained()
    longer = Run(run.corpus, run.profile, (*run.options, "--max-update", "11"), run.seed, tmp_path)
    assert not longer.trained()
    shutil.copytree(run.folder, longer.folder)
    longer.log.write_text("")
    assert not longer.trained()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals(number):
    """All end the program; a second one, while it is ending, changes nothing."""
    before = signal.signal(number, signal.SIG_DFL)
    try:
        ended = []
        with (
            pytest.raises(SystemExit, match="table1.sh: interrupted; the same command goes on"),
            interruptible("table1.sh"),
        ):
            try:
                os.kill(os.getpid(), number)
            finally:
                for other in (number, signal.SIGINT):
                    os.kill(os.getpid(), other)
                ended.append(True)
        assert ended and signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible("table1.sh"):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


# files


def test_damaged_files_are_named(corpus, monkeypatch, tmp_path):
    """Results before anything is trained, those of a run when it is looked at."""
    run = Run(Corpus.at(corpus), "cpu", ("--kernels", "lin"), 1, tmp_path)
    run.folder.mkdir(parents=True)
    run.result.write_text("")
    with pytest.raises(ValueError, match="result.json is damaged .*; move it away"):
        run.finished()
    for name, content in (("table1.json", '[{"name"'), ("table1.json", '{"a": 1}'), ("curves/table1.json", "")):
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        places = ["--save-dir", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
        monkeypatch.setattr(sys, "argv", ["runner", "table1", str(corpus), *places, "--rows", "lin"])
        with pytest.raises(SystemExit, match=f"{name} (is damaged|holds no list of objects).*; move it away"):
            main()
        path.unlink()
    assert not (tmp_path / "runs").exists()


def test_a_diverged_model_has_a_figure(corpus, tmp_path):
    run = Run(Corpus.at(corpus), "cpu", ("--kernels", "lin"), 1, tmp_path)
    for value in ("inf", "nan", "12.5"):
        [found] = run.read_metrics("test", f"Loss (base 2): {value}, Perplexity: {value}")
        assert str(found["value"]) == value


@pytest.mark.parametrize("missing, said", [("test.idx", "no test text"), ("valid.idx", "no valid text")])
def test_splits_are_looked_for_before_a_training(missing, said, corpus, tmp_path):
    other = tmp_path / "toy"
    shutil.copytree(corpus, other)
    (other / "data-bin" / missing).unlink()
    Corpus.at(corpus).check()
    with pytest.raises(ValueError, match=f"{said}; give a folder that a data-prep script made"):
        Corpus.at(other).check()


def test_references_are_looked_for_before_a_training(mt_data, tmp_path):
    with pytest.raises(ValueError, match="has no reference test.ref.en;"):
        Corpus.at(mt_data).check()
    here = tmp_path / "toy"
    shutil.copytree(mt_data, here)  # without a data-bin in it
    (here / "test.ref.de").touch()
    with pytest.raises(ValueError, match="has no reference test.ref.en;"):
        Corpus.at(here).check()
    (here / "test.ref.en").touch()
    Corpus.at(here).check()
    for path in here.glob("*.de-en.*"):
        path.rename(here / path.name.replace("de-en", "de-pt_BR").replace(".en.", ".pt_BR."))
    with pytest.raises(ValueError, match="has no reference test.ref.pt_BR;"):
        Corpus.at(here).check()


def test_scripts_know_the_same_folders(mt_data, tmp_path):
    """The target's name and the folder of the binarised data: without a reference the error tells what is found."""
    here = tmp_path / "toy"
    shutil.copytree(mt_data, here)
    for path in here.glob("test.de-en.*"):
        path.rename(here / path.name.replace("de-en", "de-pt_BR").replace(".en.", ".pt_BR."))
    (here / "checkpoint.pt").touch()
    command = ["bash", ROOT / "scripts" / "evaluate_mt.sh", here, here / "checkpoint.pt"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2 and f"no reference '{here}/test.ref.pt_BR'" in result.stderr


def test_weights_are_those_of_the_checkpoint_that_is_evaluated(corpus, monkeypatch, tmp_path):
    """fairseq may have chosen it by another value than perplexity."""
    valid = {"loss": {10: 5.0, 20: 4.0}, "ppl": {10: 30.0, 20: 31.0}, "pi_lin": {10: 0.1, 20: 0.9}}
    monkeypatch.setattr(runs, "read_curves", lambda log, kind: valid if kind == "valid" else {})
    monkeypatch.setattr(runs, "training_seconds", lambda checkpoint: 1.0)
    monkeypatch.setattr(runs, "updates", lambda checkpoint: {"checkpoint_best.pt": 20}[checkpoint.name])
    monkeypatch.setattr(runs, "model_state", lambda checkpoint: {})
    (tmp_path / "train.log").write_text("num. shared model params: 3,540 (num. trained: 3,540)\n")
    monkeypatch.setattr(Run, "log", tmp_path / "train.log")
    run = Run(Corpus.at(corpus), "cpu", ("--kernels", "lin"), 1, tmp_path)
    record = run.record([], {}, {})
    [weight] = record["metrics"]
    assert (weight["metric"], weight["value"], weight["split"]) == ("pi_lin", 0.9, "valid")
    assert weight["command"].startswith("bash scripts/train_lm.sh") and ";" not in weight["command"]
    assert record["provenance"]["updates"] == weight["updates"] == 20
    assert weight["parameters"] == 3540 and weight["valid_curve"] == [[10, 30.0], [20, 31.0]]


def test_numbers_that_are_not_finite_are_json(tmp_path):
    path = tmp_path / "table.json"
    results.add(path, [{"name": "rbf", "value": math.inf}, {"name": "log", "value": math.nan}], ["rbf", "log"])

    def refuse(constant):
        raise AssertionError(constant)

    assert [entry["value"] for entry in json.loads(path.read_text(), parse_constant=refuse)] == ["inf", "nan"]
    rbf, log = results.load(path)
    assert rbf["value"] == math.inf and math.isnan(log["value"])


# where and how many


def test_tasks_of_an_array_begin_at_different_rows(monkeypatch):
    """Whatever their numbers, each has all the work, and what another task has begun is left to it."""
    monkeypatch.setenv("SLURM_ARRAY_TASK_MIN", "2")
    orders = []
    for task in (2, 4, 6):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(task))
        orders.append(begin_of_task(list(range(8))))
    assert [order[0] for order in orders] == [0, 2, 4] and all(sorted(order) == list(range(8)) for order in orders)
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID")
    assert begin_of_task([1, 2, 3]) == [1, 2, 3]


def test_a_task_of_an_array_waits_for_no_other(corpus, tmp_path, capsys):
    work = Work(Row("lin"), Run(Corpus.at(corpus), "cpu", ("--kernels", "lin"), 1, tmp_path / "runs"))
    task = Runner(Table("table1", "", "", (work.row,)), [work], tmp_path / "results", [{}], {}, wait=False)
    with work.run.locked():
        task.run()
    assert task.left == [work] and not task.done and not task.failed and "left to it" in capsys.readouterr().out


def test_environments(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert [settings["OMP_NUM_THREADS"] for settings in environments(2)] == ["3", "3"]
    monkeypatch.delenv("OMP_NUM_THREADS")
    cores = len(os.sched_getaffinity(0))
    assert [settings["OMP_NUM_THREADS"] for settings in environments(1)] == [str(cores)]
    assert [settings["OMP_NUM_THREADS"] for settings in environments(2 * cores)] == ["1"] * 2 * cores


def test_seeds_and_corpora(corpus, mt_data, tmp_path):
    """Each row with each seed; the unigram once, and not for translation."""

    class Arguments:
        seeds, profile, extra, save_dir = [1, 2], "cpu", (), Path("runs")

    rows = [Row("unigram", unigram=True), Row("lin", ("--kernels", "lin"))]
    work = runs_of(rows, [Corpus.at(corpus), Corpus.at(mt_data)], Arguments)
    assert [(w.row.name, w.run.corpus.kind, w.run.seed) for w in work] == [
        ("unigram", "lm", 1), ("lin", "lm", 1), ("lin", "lm", 2), ("lin", "mt", 1), ("lin", "mt", 2),
    ]  # fmt: skip
    assert len({w.run.folder for w in work}) == 5
    Arguments.seeds = [2, 3]
    assert [w.run.seed for w in runs_of(rows[:1], [Corpus.at(corpus)], Arguments)] == [1]  # the same one


def test_rows_for_one_kind_of_text(corpus, mt_data, capsys):
    [row] = load_table("beyond_table").chosen(["2xlin-untied"])
    assert options_of(row, Corpus.at(mt_data), "cpu") is None
    assert "2xlin-untied on " in capsys.readouterr().out
    assert "--untied-projections" in options_of(row, Corpus.at(corpus), "cpu")


def test_searched_rows(corpus, monkeypatch, tmp_path, capsys):
    """The best point of a search on the same data; without one they are left out, and it is said how to search."""
    monkeypatch.setattr(runner, "SEARCHED", tmp_path / "searched.yaml")
    row, here = Row("log-searched", searched="log"), Corpus.at(corpus)
    assert options_of(row, here, "cpu") is None
    assert f"bash scripts/grid_search.sh {corpus} --kernel log --profile cpu" in capsys.readouterr().out
    add_searched(tmp_path / "searched.yaml", "toy/cpu/log", {"kernel_params": "log.p=8", "origin": {}})
    assert options_of(row, here, "cpu") == ("--kernels", "log", "--kernel-params", "log.p=8")
    assert options_of(row, here, "paper") is None
    capsys.readouterr()
    other = {"kernel_params": "log.p=8", "origin": {"data": "0123456789ab"}}
    add_searched(tmp_path / "searched.yaml", "toy/cpu/log", other)
    assert options_of(row, here, "cpu") is None
    assert f"the search was on data 0123456789ab, this is {here.fingerprint}: bash" in capsys.readouterr().out
    add_searched(tmp_path / "searched.yaml", "toy/cpu/log", {"origin": {}})
    with pytest.raises(ValueError, match="searched.yaml: toy/cpu/log has no kernel_params"):
        options_of(row, here, "cpu")


@pytest.mark.parametrize(
    "options, parts",
    [
        (["--rows", "lin nil"], ["'nil'", "table1", "unigram"]),
        (["--seeds", "0"], ["--seeds 0", ">= 1"]),
        (["--seeds", ""], ["--seeds", ">= 1"]),
        (["--", "--seed", "7"], ["--seed after --", "--seeds before --"]),
        (["--", "--lr", "1", "--kernels=log"], ["--kernels after --", "choose --rows"]),
        (["--profile", "gpu"], ["gpu", "cpu"]),
        (["--jobs", "-1"], ["--jobs -1"]),
        (["--simlex", "nowhere.txt"], ["nowhere.txt", "not found"]),
        (["--simlex", __file__], ["test_experiments.py", "not in SimLex-999's format"]),
    ],
)
def test_one_clear_line(options, parts, corpus, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["runner", "table1", str(corpus), *options])
    with pytest.raises(SystemExit) as ended:
        main()
    last = capsys.readouterr().err.strip().splitlines()[-1] if ended.value.code == 2 else str(ended.value)
    assert all(part in last for part in parts) and "\n" not in last


# what is made of trained models


def test_a_failing_mixture_stops_no_analysis(corpus, tmp_path):
    """Table 4 and the weight of lin, of the models that there are; and in the report."""
    [mix5] = load_table("table3").chosen(["mix5"])
    folder = Run(Corpus.at(corpus), "cpu", (*mix5.options, *SHORT), 1, tmp_path / "runs").folder
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    for script, seeds in (("table4", "1 2"), ("linear_weight", "1")):
        result = call(script, corpus, tmp_path, "--rows", "mix2 mix5", "--seeds", seeds, "--", *SHORT)
        assert result.returncode != 0 and "failed: mix5 on toy, seed 1" in result.stderr, result.stdout + result.stderr
    found = results.load(tmp_path / "results" / "table4.json")
    assert {(f["name"], f["seed"]) for f in found} == {("lin", 1), ("lin", 2), ("mix2", 1)} and len(found) == 6
    assert all("--kernels" in f["provenance"]["config"] and f["provenance"]["seconds"] > 0 for f in found)
    weights = results.load(tmp_path / "results" / "linear_weight.json")
    assert [(f["name"], f["seed"]) for f in weights] == [("mix2", 1)]
    assert all(f["baseline"].startswith("seed 1, commit ") and f["details"]["lines"] > 1 for f in found)
    sentences = {path.relative_to(tmp_path / "results").parts[:3] for path in tmp_path.glob("results/table4/**/*.md")}
    assert sentences == {("table4", "toy", "cpu")}
    [text] = [path.read_text() for path in tmp_path.glob("results/table4/toy/cpu/3xlin*/seed1.md")]
    assert "mix2 right, lin wrong" in text and "seed 2" not in text
    assert (tmp_path / "results" / "linear_weight-toy-cpu.svg").is_file()
    chapters = load_chapters(tmp_path / "results")
    for text in (markdown(chapters), html(chapters)):
        assert "Choosing among close words" in text and "Where the weight of lin goes" in text
        assert f"{100 * found[0]['value']:.1f}" in text and f"{weights[0]['value']:.3f}" in text

    # another lin to compare with makes figures of their own
    result = call("table4", corpus, tmp_path, "--rows", "mix2", "--seeds", "2 1", "--", *SHORT)
    assert result.returncode == 0, result.stdout + result.stderr
    again = results.load(tmp_path / "results" / "table4.json")
    assert len(again) == 12 and [f for f in again if f["baseline"].startswith("seed 1")] == found
    [checkpoint] = tmp_path.glob("runs/toy/cpu/3xlin*/seed1/checkpoint_best.pt")
    checkpoint.write_bytes(checkpoint.read_bytes()[:5000])
    [lin] = (tmp_path / "runs" / "toy" / "cpu").glob("lin_*")
    shutil.rmtree(lin)
    result = call("linear_weight", corpus, tmp_path, "--rows", "mix2", "--", *SHORT)  # needs no lin
    assert "training" not in result.stdout
    assert f"{checkpoint.name} is missing or damaged; move" in result.stdout and result.returncode != 0
    assert "failed: mix2 on toy, seed 1" in result.stderr and "Traceback" not in result.stderr


def test_clusters_need_words(corpus, monkeypatch):
    mixtures.check_clusters(Corpus.at(corpus))
    monkeypatch.setattr(mixtures, "SIZE", 1000)
    with pytest.raises(ValueError, match="words to make clusters of 1000 of; give a larger text"):
        mixtures.check_clusters(Corpus.at(corpus))


def test_lin_alone_has_no_linear_weight(corpus, tmp_path):
    result = call("linear_weight", corpus, tmp_path, "--rows", "lin")
    assert result.returncode != 0 and "Traceback" not in result.stderr
    assert "--rows lin has no mixture; choose from mos" in result.stderr
