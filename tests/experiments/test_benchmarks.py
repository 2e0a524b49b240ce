"""The benchmark scripts run, on sizes that say nothing, and write what README describes."""

import json
import subprocess
import sys

import pytest
from fairseq_commands import USER_DIR
from forked_python import forked_python

SCRIPTS = USER_DIR.parent / "scripts"
SMALL = ("--rounds", "1", "--steps", "1", "--threads", "1", "--device", "cpu")


def run(script, *options, python=None):
    command = [python or forked_python(), SCRIPTS / script, *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_output_layers(tmp_path):
    """A table on the screen, a row each with its steps, the ratios of the pairs that were asked for."""
    names = ["lin", "stock", "2xlin", "taylor", "taylor autograd", "factored taylor", "mos 2"]
    sizes = ("--tokens", 4096, "--words", 300, "--dim", 8)
    sizes += ("--out", tmp_path)
    result = run("benchmark_output_layer.py", "--only", *names, *sizes, *SMALL, python=sys.executable)
    assert result.returncode == 0, result.stderr
    [record] = json.loads((tmp_path / "output_layer.json").read_text())
    rows = {row["implementation"]: row for row in record["rows"]}
    assert list(rows) == names
    assert all("error" not in row and row["seconds"] > 0 and len(row["steps"]) == 1 for row in rows.values())
    pairs = {(ratio["ours"], ratio["other"]): ratio for ratio in record["comparisons"]}
    assert set(pairs) == {("lin", "stock"), ("taylor", "stock"), ("taylor", "taylor autograd")}
    ratio = pairs["lin", "stock"]["time_ratio"]
    assert ratio == pytest.approx(rows["lin"]["seconds"] / rows["stock"]["seconds"], rel=1e-2)
    assert record["made"]["versions"]["torch"] and "lin" in result.stdout


def test_an_implementation_that_fails_does_not_stop_the_others(tmp_path):
    sizes = ("--tokens", 8, "--words", 30, "--dim", 8)
    result = run("benchmark_output_layer.py", "--only", "liger", "lin", *sizes, *SMALL)
    assert result.returncode == 0
    assert "liger" in result.stderr and "failed: " in result.stdout


def test_training_steps(tmp_path):
    options = ("--rows", "stock", "lin", "--words", 100, "--batch-size", 2, "--length", 4)
    (tmp_path / "speed.json").write_text('[{"command": "an earlier one"}]')
    options += ("--out", tmp_path / "speed.json")
    result = run("benchmark_training.py", *options, *SMALL, python=sys.executable)
    assert result.returncode == 0, result.stderr
    *before, record = json.loads((tmp_path / "speed.json").read_text())
    assert before == [{"command": "an earlier one"}]
    first, second = record["rows"]
    assert (first["row"], first["speed_ratio"], second["row"]) == ("stock", 1.0, "lin")
    assert second["words_per_second"] == pytest.approx(8 / min(second["steps"]), rel=0.05)


@pytest.mark.parametrize("script", ["benchmark_output_layer.py", "benchmark_training.py"])
def test_a_wrong_option_is_one_line(script):
    result = run(script, "--rounds", "few")
    assert result.returncode == 2 and "--rounds" in result.stderr and "Traceback" not in result.stderr


def test_a_file_that_cannot_be_written_is_told_before_the_measurement():
    result = run("benchmark_limit.py", "--rounds", "1", "--threads", "1", "--out", "/dev/null/limit.json")
    assert result.returncode and not result.stdout
    assert "--out /dev/null/limit.json can't be written" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("script", ["benchmark_output_layer.py", "benchmark_training.py"])
def test_a_damaged_file_is_told_before_the_measurement(script, tmp_path):
    (tmp_path / "output_layer.json").write_text("{")
    out = tmp_path if script == "benchmark_output_layer.py" else tmp_path / "output_layer.json"
    result = run(script, *SMALL, "--out", out)
    assert result.returncode and not result.stdout
    assert "output_layer.json is damaged" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "options, said",
    [
        (("--subset", "tset"), "--subset tset is not in "),
        (("--rounds", "0"), "argument --rounds: '0' is not a whole number from 1 to"),
        (("--arch", "kernel_transfomer"), "did you mean kernel_transformer?"),
    ],
)
def test_wrong_options_of_decoding(options, said, mt_data):
    result = run("benchmark_decoding.py", mt_data, *options)
    assert result.returncode == 2 and said in result.stderr and len(result.stderr.splitlines()) == 1
