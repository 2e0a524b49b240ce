"""Files with results: what makes two figures the same, whose paper's figure stands beside them, whole writes, locks."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fairseq_commands import USER_DIR
from filelock import FileLock, Timeout

from fairseq_kernels.experiments import results, runs, training
from fairseq_kernels.experiments.data import Corpus
from fairseq_kernels.experiments.files import LOCK, exclusive, read_json, write_json, write_text
from fairseq_kernels.experiments.runs import Run
from fairseq_kernels.experiments.step import Step
from fairseq_kernels.experiments.tables import Row, Table

FIGURE = {
    "name": "lin", "corpus": "toy", "profile": "cpu", "seed": 1, "split": "test", "metric": "ppl", "value": 5.0,
    "provenance": {"data": "0123", "config": "--kernels lin"},
}  # fmt: skip


@pytest.fixture
def run(tmp_path):
    (tmp_path / "toy" / "data-bin").mkdir(parents=True)
    (tmp_path / "toy" / "data-bin" / "dict.txt").write_text("a 1\n")
    return Run(Corpus.at(tmp_path / "toy"), "cpu", ("--kernels", "lin"), 1, tmp_path / "runs")


def changed(name, value):
    if name in FIGURE["provenance"]:
        return {**FIGURE, "provenance": {**FIGURE["provenance"], name: value}}
    return {**FIGURE, name: value}


@pytest.mark.parametrize("name", results.KEY)
def test_figures_that_differ_in_their_key_stay(name, tmp_path):
    path = tmp_path / "table1.json"
    other = changed(name, 2 if name == "seed" else "other")
    results.add(path, [FIGURE], ["lin"])
    results.add(path, [other], ["lin"])
    actual = results.load(path)
    assert len(actual) == 2 and FIGURE in actual and other in actual


def test_the_key_is_complete():
    """Another corpus of the same name, other options, another baseline: another figure."""
    assert set(results.KEY) == {
        *("name", "corpus", "data", "profile", "seed", "config", "split", "metric", "baseline")
    }  # fmt: skip


def test_a_newer_figure_takes_the_older_s_place(tmp_path):
    path = tmp_path / "table1.json"
    for value in (5.0, 4.0):
        results.add(path, [changed("value", value)], ["lin"])
    assert [figure["value"] for figure in results.load(path)] == [4.0]


def test_nothing_of_an_earlier_training_stays(tmp_path):
    """Another measurement of the same training does, though made at a later commit."""
    path, origin = tmp_path / "table1.json", {**FIGURE["provenance"], "commit": "old", "analysis_commit": "old"}
    old = [{**FIGURE, "metric": metric, "provenance": origin} for metric in ("ppl", "simlex")]
    later = {**old[0], "metric": "top10_error", "provenance": {**origin, "analysis_commit": "new"}}
    results.add(path, old, ["lin"])
    results.add(path, [later], ["lin"])
    assert len(results.load(path)) == 3
    anew = {**FIGURE, "provenance": {**origin, "commit": "new"}}
    results.add(path, [anew, changed("seed", 2)], ["lin"])
    assert results.load(path) == [anew, changed("seed", 2)]


def test_figures_stand_in_the_table_s_order(tmp_path):
    path = tmp_path / "table1.json"
    for name in ("other", "pow", "lin", "log"):
        results.add(path, [changed("name", name)], ["lin", "log", "pow"])
    assert [figure["name"] for figure in results.load(path)] == ["lin", "log", "pow", "other"]


def test_the_paper_s_figure_stands_beside_that_of_the_test_text(run):
    """Beside validation's only where nothing was measured on the test text."""
    row = Row("lin", paper={"ppl": 46.8, "pi_variance_pp2": 4.74})
    metrics = [("valid", "ppl"), ("test", "ppl"), ("valid", "pi_variance_pp2"), ("test", "top10_error")]
    record = {
        "metrics": [{"split": split, "metric": metric, "value": 1.0} for split, metric in metrics],
        "command": "all", "provenance": {"data": "0123"},
    }  # fmt: skip
    record["metrics"][1]["command"] = "own"
    shown = results.figures(row, run, record)
    assert [figure["paper"] for figure in shown] == [None, 46.8, 4.74, None]
    assert [figure["command"] for figure in shown] == ["all", "own", "all", "all"]
    assert all(figure["provenance"] == {"data": "0123", "config": "--kernels lin"} for figure in shown)


def test_details_have_the_run_s_key(run, tmp_path):
    path = tmp_path / "curves.json"
    for data in ("0123", "4567"):
        record = {"curves": {"valid": {}}, "provenance": {"data": data}}
        results.add_details(path, "lin", run, record, **record["curves"])
    assert [entry["data"] for entry in results.load(path)] == ["0123", "4567"]
    for split, number in (("valid", "1"), ("test", "2"), ("valid", "3")):
        results.add_details(tmp_path / "more.json", "lin", run, record, split=split, sentences=[number])
    by_split = {entry["split"]: entry["sentences"] for entry in results.load(tmp_path / "more.json")}
    assert by_split == {"valid": ["3"], "test": ["2"]}


def test_what_each_translation_adds_to_bleu_is_with_the_results(run, tmp_path):
    """So that the report's comparisons can be made without the translations, which may be gone later."""
    metrics = [{"split": split, "metric": metric, "value": 50.0} for split in ("valid", "test")
               for metric in ("bleu", "sacrebleu")]  # fmt: skip
    record = {
        "metrics": metrics, "command": "all", "curves": {}, "provenance": {"data": run.corpus.fingerprint},
    }  # fmt: skip
    run.folder.mkdir(parents=True)
    run.result.write_text(json.dumps(record))
    (run.folder / "test.out").write_text(
        "T-1\ta b c d e\nH-1\t-1\ta b x d\nH-1\t-2\ta\nT-0\tone two\nH-0\t-1\tone two\nBLEU4\n"
    )
    step = Step(Table("toy", "Toy", "nowhere", (Row("lin"),)), Row("lin"), run, {}, tmp_path / "results")
    for _ in range(2):
        assert step.collect()
        [sentences] = results.load(tmp_path / "results" / "sentences" / "toy.json")
        assert sentences["sentences"] == ["2 2 2 1 0 0", "4 5 3 1 0 0"]
        assert (sentences["name"], sentences["split"], sentences["seed"]) == ("lin", "test", 1)
        (run.folder / "test.out").unlink(missing_ok=True)


def test_a_corpus_is_known_by_its_content(run):
    fingerprints = {run.corpus.fingerprint}
    for name, text in (("dict.txt", "b 1\n"), ("train.idx", "x"), ("train.bin", "x")):
        (run.corpus.binarised / name).write_text(text)
        fingerprints.add(Corpus.at(run.corpus.folder).fingerprint)
    (run.corpus.binarised / "preprocess.log").write_text("x")
    fingerprints.add(Corpus.at(run.corpus.folder).fingerprint)
    assert len(fingerprints) == 4


def test_a_folder_is_of_one_corpus_and_one_command(run, monkeypatch):
    run.folder.mkdir(parents=True)
    monkeypatch.setattr(runs, "commit", iter(("first", "second", "third")).__next__)
    assert [run.begin()["commit"] for _ in range(2)] == ["first", "second"]
    (run.folder / "checkpoint_last.pt").touch()
    assert run.begin() == run.begin() == read_json(run.folder / "start.json") and run.begin()["commit"] == "second"
    other = replace(run, options=("--kernels", "log"))
    with pytest.raises(ValueError, match="was begun on --kernels lin in the place of log; name another --save-dir"):
        other.check(read_json(run.folder / "start.json"), "was begun on")
    (run.corpus.binarised / "dict.txt").write_text("b 1\n")
    with pytest.raises(ValueError, match="was begun on data .*; name another --save-dir"):
        replace(run, corpus=Corpus.at(run.corpus.folder)).begin()


# files


def test_files_are_utf_8_in_any_locale(tmp_path):
    program = """
from pathlib import Path
from fairseq_kernels.experiments.files import read_json, write_json
write_json(Path("a.json"), ["W \\u2212 h"])
assert read_json(Path("a.json")) == ["W \\u2212 h"]
"""
    environment = {**os.environ, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "LC_ALL": "C"}
    environment["PYTHONPATH"] = str(USER_DIR.parent)
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=tmp_path, env=environment, check=True)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == ["W \u2212 h"]


def test_an_interrupted_write_leaves_the_older_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_json(path, {"value": 1})

    def killed(*_, **__):
        raise KeyboardInterrupt

    for where in ("write_bytes", "replace"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Path, where, killed)
            write_text(path, "half")
        assert read_json(path) == {"value": 1} and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", ["[]", "null", "3", '{"words": 1}', '{"data": 1', ""])
def test_a_file_without_what_is_wanted_is_damaged(tmp_path, content):
    path = tmp_path / "data.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="data.json is damaged .*; move it away"):
        read_json(path, "data")
    path.write_text('{"data": "a", "words": 1}')
    assert read_json(path, "data", "words")["data"] == "a"


def test_a_reader_sees_the_older_file_or_the_whole_new_one(tmp_path, monkeypatch):
    """The file gets its content under another name."""
    path, seen = tmp_path / "a.json", []
    write_text(path, "old")
    original = Path.write_bytes

    def watched(self, content):
        seen.append((self, path.read_text()))
        return original(self, content)

    monkeypatch.setattr(Path, "write_bytes", watched)
    write_text(path, "new")
    [(part, content)] = seen
    assert part != path and part.parent == tmp_path and content == "old" and path.read_text() == "new"


def free(path) -> bool:
    """Whether another process could take the lock."""
    try:
        with FileLock(path, timeout=0):
            return True
    except Timeout:
        return False


def test_one_process_at_a_time_writes(tmp_path):
    folder = tmp_path / "results"
    with exclusive(folder):
        assert not free(folder / LOCK)
    assert free(folder / LOCK)


def test_results_are_read_and_written_under_the_lock(tmp_path, monkeypatch):
    """Else two processes that add figures at once would lose one's."""
    seen = []
    for name in ("load", "write_json"):
        original = getattr(results, name)
        monkeypatch.setattr(
            results, name, lambda *args, original=original: seen.append(free(tmp_path / LOCK)) or original(*args)
        )
    results.add(tmp_path / "table1.json", [FIGURE], [])
    results.append(tmp_path / "speed.json", {"a": 1})
    assert seen == [False] * 4


def test_a_run_has_one_process(run):
    with run.lock():
        with pytest.raises(Timeout):
            run.lock().acquire()
        assert not free(run.folder / training.LOCK)


def test_training_holds_its_folder(run, tmp_path, monkeypatch, capsys):
    """And what another process says that would train there."""
    folder, seen = tmp_path / "saved", []

    def train(arguments, where):
        seen.append(free(where / training.LOCK))
        (where / "train.log").touch()

    monkeypatch.setattr(training, "train", train)
    argv = ["training", "lm", str(run.corpus.folder), "--profile", "cpu", "--save-dir", str(folder)]
    monkeypatch.setattr(sys, "argv", argv)
    training.main()
    assert seen == [False] and free(folder / training.LOCK)
    with FileLock(folder / training.LOCK), pytest.raises(SystemExit, match="another process trains in .*saved"):
        training.main()


def test_numbers_that_are_not_finite_come_back(tmp_path):
    path = tmp_path / "a.json"
    entries = [{"value": float("-inf")}, {"value": 2.5, "difference": {"mean": float("inf")}}, {"name": "nan"}]
    write_json(path, entries)
    assert read_json(path) == entries
    assert json.loads(path.read_text())[0] == {"value": "-inf"}
    path.write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        read_json(path)


def test_each_process_has_a_part_file_of_its_own(tmp_path, monkeypatch):
    names = []
    original = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, target: names.append(self.name) or original(self, target))
    for number in (7, 8):
        monkeypatch.setattr(os, "getpid", lambda number=number: number)
        write_text(tmp_path / "a", "text")
    assert len(set(names)) == 2
