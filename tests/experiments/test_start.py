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
from fairseq_commands import script
from forked_python import forked_python
from preparations import write
from table_commands import SMALL, command, environment, processes, succeeded, wait_until

from fairseq_kernels.experiments.tables import ROOT, TABLES
from fairseq_kernels.whole_files import read_records

LITTLE = [*SMALL, "--max-update", "2"]
# on text that is made already
QUICKSTART = """
import pathlib, shutil, sys
from fairseq_kernels.experiments import cli, quickstart, tables
data, tables.TABLES = sys.argv[1], pathlib.Path(sys.argv[2])

def prepare(script, *others):
    kind, out = ("lm", others[0][2]) if others else ("mt", script[1])
    shutil.copytree(f"{data}/{kind}", out, dirs_exist_ok=True)

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

    def quickstart_of(updates, python):
        rows = (TABLES / "quickstart.yaml").read_text()
        rows = re.sub(r"--((max|total-num)-update|log-interval) \d+", "", rows).replace("heads 4", "heads 2")
        short = f"--log-interval 1 --max-update {updates} --lr"
        rows = re.sub("128|256", "8", rows).replace("--lr", f"--total-num-update {updates} {short}", 1)
        write(tmp_path / "tables" / "quickstart.yaml", rows.replace("--lr 0.003", f"{short} 0.003"))
        return [python, "-c", QUICKSTART, tmp_path / "data", tmp_path / "tables", tmp_path / "out"]

    return quickstart_of


def test_quickstart(quickstart, tmp_path):
    """Figures, sentences and curves are those of the runs; a second call trains nothing."""
    how = {"env": {**environment(), "PYTHONPATH": str(ROOT)}, "capture_output": True, "text": True}
    runs = [subprocess.run(quickstart(2, forked_python()), **how) for _ in range(2)]
    first, second = (run.stdout.split("\nLanguage models\n") for run in runs)
    assert runs[0].returncode == 0 and "lin on lm, seed 1: update 2 of 2, training perplexity" in first[0], runs[0]
    assert first[1] == second[1] and "update" not in second[0] and (tmp_path / "out" / "curves.png").stat().st_size
    value = {}
    for record in (read_records(path) for path in tmp_path.glob("out/runs/*/cpu/*/seed1/result.json")):
        value[record["run"]["row"]] = {(m["split"], m["metric"]): m["value"] for m in record["metrics"]}
    names = ["stock", "lin", "lin-tuned", "3xlin,log"]
    rows = re.findall(r"^(unigram|stock|\S*lin\S*) +([\d.]+)$", first[1], re.M)
    assert rows == [("unigram", "45.7"), *((name, f"{value[name]['test', 'ppl']:.1f}") for name in names)]
    [text] = [path.read_text() for path in tmp_path.glob("out/runs/mt/cpu/*/seed1/test.gen")]
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

    def started(words):
        calls.write_text("")
        variables = {**os.environ, "PYTHON_BIN": str(python), "PYTHONPATH": str(ROOT)}
        succeeded(subprocess.run(list(map(str, words)), capture_output=True, text=True, env=variables))
        return [name.rpartition(".")[2] for name in re.findall(r"-m (\S+) |^from fairseq_k", calls.read_text(), re.M)]

    train = ["bash", ROOT / "scripts" / "train_lm.sh", corpus, "--profile", "cpu", *LITTLE]
    assert started([*train, "--save-dir", tmp_path / "one"]) == ["cli"]
    evaluate = ["bash", ROOT / "scripts" / "evaluate_lm.sh", corpus, tmp_path / "one" / "checkpoint_best.pt"]
    assert started(evaluate) == ["cli"]
    table = command("table3", corpus, tmp_path, "--rows", "lin mix2", "--", *LITTLE)
    assert sorted(started(table)) == ["cli", "run", "run", "snakemake"]
    assert started(table) == ["cli"] and len(started(quickstart(2, python))) == 1


def test_who_imports_torch(corpus, tmp_path):
    """Nobody for a finished table, a report and a mistyped option of ours."""
    hook = "import os, sys\ndef hook(event, what):\n    if event == 'import' and what[0] == 'torch':\n        "
    write(tmp_path / "sitecustomize.py", hook + "open(os.environ['COUNT'], 'a').write('x')\nsys.addaudithook(hook)\n")
    count = write(tmp_path / "count", "")
    real = {"PYTHON_BIN": sys.executable, "PYTHONPATH": str(tmp_path), "COUNT": str(count)}
    table = ["table3", corpus, "--save-dir", tmp_path / "runs", "--results", tmp_path / "results", "--profile", "cpu"]
    rows = ["--rows", "lin", "--", *LITTLE]
    assert script(*table, *rows)[0] == 0
    code, said, _ = script(*table, *rows, **real)
    assert code == 0 and "lin on toy, seed 1: valid ppl" in said
    assert script("report", "--results", tmp_path / "results", **real)[0] == 0
    assert "--rwos" in script(*table, "--rwos", "lin", **real)[2] and count.read_text() == ""
    dry = ["train_lm", "data/none", "--profile", "cpu", "--save-dir", tmp_path, "--dry-run"]
    code, said, err = script(*dry, **real)
    assert code == 0 and said.startswith("fairseq-train data/none/data-bin ") and count.read_text() == "x", err


@pytest.mark.parametrize("kind", ["table", "train", "quickstart", "job", "terminal"])
def test_ended(kind, corpus, quickstart, tmp_path):
    """By a single SIGTERM where SIGINT is ignored, or by Ctrl-C: no process is left, nor after further signals that
    come at once; it is told in one line."""
    endless = [*SMALL, "--max-update", "1000000"]
    words = command("table3", corpus, tmp_path, "--jobs", 2, "--rows", "lin mix2", "--", *endless)
    if kind == "train":
        places = [corpus, "--profile", "cpu", "--save-dir", tmp_path / "runs"]
        words = ["bash", ROOT / "scripts" / "train_lm.sh", *places, *endless]
    if kind == "quickstart":
        words = quickstart(1000000, forked_python())
    background = [] if kind == "terminal" else ["bash", "-c", 'trap "" INT; exec "$@"', "script"]
    how = {"env": {**environment(), "PYTHONPATH": str(ROOT)}, "text": True}
    process = subprocess.Popen([*background, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **how)
    logs = lambda: [path.read_text() for path in tmp_path.rglob("train.log")]  # noqa: E731
    wait_until(lambda: any("begin training epoch" in log for log in logs()), process)
    jobs = [each for each in processes(tmp_path) if any("experiments.run" in word for word in each.cmdline())]
    for victim in (jobs if kind == "job" else [process]) * 9:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGINT if kind == "terminal" else signal.SIGTERM)
    said = process.communicate()[0]
    assert process.returncode == 1 and processes(tmp_path) == [] and "Traceback" not in said, said
    assert kind == "job" or "interrupted; the same command goes on" in said.splitlines()[-1]
