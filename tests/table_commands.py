"""The tables' scripts, called as a user does, with trainings of seconds."""

import os
import subprocess
import time

import psutil
from forked_python import forked_python

from fairseq_kernels.experiments.tables import ROOT

SMALL = ["--decoder-embed-dim", "8", "--decoder-hidden-size", "8", "--decoder-out-embed-dim", "8"]
# checkpoints often enough for an interruption between two of them
LONG = [*SMALL, "--batch-size", "1", "--batch-size-valid", "16", "--max-update", "120", "--save-interval-updates", "20"]
SHORT = [*SMALL, "--max-update", "10"]


def command(table, corpus, folder, *options):
    places = ["--save-dir", folder / "runs", "--results", folder / "results", "--jobs", 1, "--profile", "cpu"]
    return ["bash", ROOT / "scripts" / f"{table}.sh", *map(str, (corpus, *places, *options))]


def environment():
    return {**os.environ, "PYTHON_BIN": forked_python()}


def call(*arguments, **variables):
    return subprocess.run(command(*arguments), capture_output=True, text=True, env={**environment(), **variables})


def succeeded(result):
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def start(*arguments):
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command(*arguments), env=environment(), **how)


def processes(folder):
    """All in whose command a folder stands."""
    running = psutil.process_iter(["cmdline"])
    return [process for process in running if str(folder) in " ".join(process.info["cmdline"] or [])]


def wait_until(condition, process):
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
