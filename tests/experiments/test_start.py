"""What a command starts: processes of Python, each of which imports torch once. What is left of it when it is ended in
the background of a script, where Ctrl-C's signal is ignored: nothing."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from fairseq_commands import USER_DIR
from fairseq_commands import script as call
from forked_python import forked_python
from preparations import write
from table_commands import SMALL, wait_until

from fairseq_kernels.whole_files import read_records

ROOT = USER_DIR.parent
LITTLE = [*SMALL, "--max-update", "2"]
ENDLESS = [*SMALL, "--max-update", "1000000"]
TABLE = ROOT / "configs" / "tables" / "quickstart.yaml"
# on text that is made already
QUICKSTART = """
import pathlib, shutil, sys
from fairseq_kernels.experiments import cli, quickstart, tables
data, tables.TABLES = sys.argv[1], pathlib.Path(sys.argv[2])

def prepare(script, *others):
    kind, out = ("lm", others[0][2]) if others else ("mt", script[1])
    if not pathlib.Path(out).exists():
        shutil.copytree(f"{data}/{kind}", out)

quickstart.prepare = prepare
sys.argv = ["quickstart.sh", "quickstart", sys.argv[3]]
cli.main()
"""


@pytest.fixture
def quickstart(lm_data, mt_text, mt_data, tmp_path):
    """The command of a quickstart on tiny data, with so many updates of each model."""
    for kind, data in ("lm", lm_data), ("mt", mt_data):
        shutil.copytree(data, tmp_path / "data" / kind / "data-bin")
    shutil.copy(mt_text / "test.en", tmp_path / "data" / "mt" / "test.ref.en")
    splits = '{"result": {"splits": {"valid": {"perplexity": 33.25}, "test": {"perplexity": 45.67}}}}'
    write(tmp_path / "data" / "lm" / "prepare.json", splits)
    write(tmp_path / "data" / "mt" / "prepare.json", '{"result": {"valid": 1.6543}}')

    def command(python, updates):
        rows = re.sub("--(max|total-num)-update [0-9]+|--log-interval [0-9]+", "", TABLE.read_text())
        rows = rows.replace("128", "8").replace("256", "8").replace("heads 4", "heads 2")
        rows = rows.replace("--lr", f"--log-interval 1 --max-update {updates} --total-num-update {updates} --lr", 1)
        rows = rows.replace("--lr 0.003", f"--log-interval 1 --max-update {updates} --lr 0.003")
        write(tmp_path / "tables" / "quickstart.yaml", rows)
        return [python, "-c", QUICKSTART, tmp_path / "data", tmp_path / "tables", tmp_path / "out"]

    return command


def test_quickstart(quickstart, tmp_path):
    """Figures, sentences and curves are those of the runs; a second call trains nothing."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    runs = [subprocess.run(quickstart(forked_python(), 2), env=environment, capture_output=True, text=True)
            for _ in range(2)]  # fmt: skip
    first, second = (run.stdout.split("\nLanguage models\n") for run in runs)
    assert runs[0].returncode == 0 and "lin on lm, seed 1: update 2 of 2, training perplexity" in first[0], runs[0]
    assert first[1] == second[1] and "update" not in second[0]
    out = tmp_path / "out"
    records = [read_records(path) for path in out.glob("runs/*/cpu/*/seed1/result.json")]
    records = {record["run"]["row"]: record for record in records}
    value = {name: {(m["split"], m["metric"]): m["value"] for m in each["metrics"]} for name, each in records.items()}
    names = ["stock", "lin", "lin-tuned", "3xlin,log"]
    rows = re.findall(r"^(unigram|stock|\S*lin\S*) +([\d.]+)$", first[1], re.M)
    assert rows == [("unigram", "45.7"), *((name, f"{value[name]['test', 'ppl']:.1f}") for name in names)]
    assert (out / "curves.png").stat().st_size
    [text] = [path.read_text() for path in out.glob("runs/mt/cpu/*/seed1/test.gen")]
    for kind, label in ("S", "German"), ("T", "reference"), ("H", "model"):
        [said] = re.findall(rf"^{kind}-0\t(?:-\S+\t)?(.*)", text, re.M)
        assert re.search(rf"^  {label} +{re.escape(said)}$", first[1], re.M)
    best = f"1.654; the model, on validation text: {value['translation']['valid', 'ppl']:.3f}\n"
    assert best + f"test BLEU4 {value['translation']['test', 'bleu']:.1f} (" in first[1]


def test_a_process_for_each_command(corpus, quickstart, tmp_path):
    """A row of a table has one; Snakemake imports no torch, nor does what looks for modules."""
    calls, python = tmp_path / "calls", tmp_path / "python"
    python.write_text(Path(forked_python()).read_text().replace("exec", f'echo "$*" >>{calls}\nexec', 1))
    python.chmod(0o755)

    def started(command):
        calls.write_text("")
        environment = {**os.environ, "PYTHON_BIN": str(python), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return [name.rpartition(".")[2] for name in re.findall(r"-m (\S+) |^from fairseq_k", calls.read_text(), re.M)]

    def bash(name, *arguments):
        return ["bash", ROOT / "scripts" / f"{name}.sh", *arguments]

    places = ["--save-dir", tmp_path / "runs", "--results", tmp_path / "results", "--profile", "cpu"]
    train = bash("train_lm", corpus, "--profile", "cpu", *LITTLE, "--save-dir", tmp_path / "one")
    assert started(train) == ["cli"]
    assert started(bash("evaluate_lm", corpus, tmp_path / "one" / "checkpoint_best.pt")) == ["cli"]
    table = bash("table3", corpus, *places, "--rows", "lin mix2", "--", *LITTLE)
    assert sorted(started(table)) == ["cli", "run", "run", "snakemake"]
    assert started(table) == ["cli"]
    assert len(started(quickstart(python, 2))) == 1


def test_who_imports_torch(corpus, tmp_path):
    """Nobody for a finished table, a report and a mistyped option of ours."""
    hook = "import os, sys\ndef hook(event, what):\n    if event == 'import' and what[0] == 'torch':\n        "
    write(tmp_path / "sitecustomize.py", hook + "open(os.environ['COUNT'], 'a').write('x')\nsys.addaudithook(hook)\n")
    count = write(tmp_path / "count", "")
    real = {"PYTHON_BIN": sys.executable, "PYTHONPATH": str(tmp_path), "COUNT": str(count)}
    table = ["table3", corpus, "--save-dir", tmp_path / "runs", "--results", tmp_path / "results", "--profile", "cpu"]
    rows = ["--rows", "lin", "--", *LITTLE]
    assert call(*table, *rows)[0] == 0
    code, said, _ = call(*table, *rows, **real)
    assert code == 0 and "lin on toy, seed 1: valid ppl" in said
    assert call("report", "--results", tmp_path / "results", **real)[0] == 0
    assert "--rwos" in call(*table, "--rwos", "lin", **real)[2] and count.read_text() == ""
    dry = ["train_lm", "data/none", "--profile", "cpu", "--save-dir", tmp_path, "--dry-run"]
    code, said, err = call(*dry, **real)
    assert code == 0 and said.startswith("fairseq-train data/none/data-bin ") and count.read_text() == "x", err


def left_of(folder):
    running = psutil.process_iter(["cmdline"])
    return [process for process in running if str(folder) in " ".join(process.info["cmdline"] or [])]


@pytest.mark.parametrize("kind", ["table", "train", "quickstart", "job"])
def test_ended_in_the_background(kind, corpus, quickstart, tmp_path):
    """By a single SIGTERM where SIGINT is ignored: no process is left, nor after a second one that comes at once."""
    runs, out = tmp_path / "runs", tmp_path / "out"
    places = [corpus, "--profile", "cpu", "--save-dir", runs]
    table = ["bash", ROOT / "scripts" / "table3.sh", *places, "--results", out, "--rows", "lin mix2", "--", *ENDLESS]
    command = {"table": table, "job": table, "quickstart": quickstart(forked_python(), 1000000),
               "train": ["bash", ROOT / "scripts" / "train_lm.sh", *places, *ENDLESS]}[kind]  # fmt: skip
    environment = {**os.environ, "PYTHON_BIN": forked_python(), "PYTHONPATH": str(ROOT)}
    background = ["bash", "-c", 'trap "" INT; exec "$@"', "script", *map(str, command)]
    process = subprocess.Popen(background, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    logs = lambda: [path.read_text() for path in tmp_path.rglob("train.log")]  # noqa: E731
    wait_until(lambda: any("begin training epoch" in log for log in logs()), process)
    jobs = [each for each in left_of(tmp_path) if any("experiments.run" in word for word in each.cmdline())]
    for victim in (jobs if kind == "job" else [process]) * 2:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGTERM)
    said = process.communicate()[0]
    assert process.returncode == 1 and left_of(tmp_path) == [], said
    assert kind == "job" or "interrupted; the same command goes on" in said
