"""scripts/benchmark.py runs, on sizes that say nothing, and its record says what was measured."""

import json
import subprocess

import pytest
from fairseq_commands import USER_DIR
from forked_python import forked_python

SMALL = ("--rounds", "1", "--threads", "1")


def run(tmp_path, command, *options):
    """The record that is put after an earlier one."""
    out = tmp_path / "record.json"
    out.write_text('[{"command": "an earlier one"}]')
    call = [forked_python(), USER_DIR.parent / "scripts" / "benchmark.py", command, *options, *SMALL, "--out", out]
    result = subprocess.run(list(map(str, call)), capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    before, record = json.loads(out.read_text())
    assert before == {"command": "an earlier one"} and record["made"]["versions"]["torch"]
    assert record["command"].startswith(f"python scripts/benchmark.py {command} ")
    return record


def test_limit(tmp_path):
    record = run(tmp_path, "limit", "--only", "lin", "lin,mog", "--tokens", 500, "--words", 300, "--dim", 8)
    assert [row["kernels"] for row in record["rows"]] == ["lin", "lin,mog"]
    for row in record["rows"]:
        assert row["ratio"] == pytest.approx(row["seconds"] / row["products"]) and row["products"] > 0


def test_layer(tmp_path):
    """A row each with its steps, and the ratios of the pairs that were asked for."""
    names = ["lin", "stock", "2xlin", "taylor", "taylor autograd", "mos 2"]
    sizes = ("--tokens", 4096, "--words", 300, "--dim", 8, "--steps", 2, "--device", "cpu")
    record = run(tmp_path, "layer", "--only", *names, *sizes)
    rows = {row["implementation"]: row for row in record["rows"]}
    assert list(rows) == names and all(len(row["steps"]) == 2 for row in rows.values())
    ratios = {(ratio["ours"], ratio["other"]): ratio["time_ratio"] for ratio in record["comparisons"]}
    assert set(ratios) == {("lin", "stock"), ("taylor", "stock"), ("taylor", "taylor autograd")}
    assert ratios["lin", "stock"] == pytest.approx(rows["lin"]["seconds"] / rows["stock"]["seconds"], rel=1e-2)


def test_training_and_scoring(tmp_path):
    options = ("--rows", "stock", "2xlin", "--words", 100, "--batch-size", 2, "--length", 4, "--scoring", "--steps", 1)
    rows = run(tmp_path, "training", *options, "--device", "cpu")["rows"]
    kinds = ("training", "scoring")
    assert [(row["row"], row["kind"]) for row in rows] == [(name, kind) for name in ("stock", "2xlin")
                                                         for kind in kinds]  # fmt: skip
    for row in rows:
        first = next(other for other in rows if other["kind"] == row["kind"])
        assert row["words_per_second"] == pytest.approx(8 / min(row["steps"]), rel=0.05, abs=0.5)
        assert row["speed_ratio"] == pytest.approx(min(first["steps"]) / min(row["steps"]), rel=0.05)
