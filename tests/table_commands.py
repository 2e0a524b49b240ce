"""The tables' scripts, called as a user does, with trainings of seconds."""

import os
import subprocess
import sys
import time

from forked_python import forked_python

from fairseq_kernels.experiments.tables import ROOT

SMALL = ["--decoder-embed-dim", "8", "--decoder-hidden-size", "8", "--decoder-out-embed-dim", "8"]
# checkpoints often enough for an interruption between two of them
LONG = [*SMALL, "--batch-size", "1", "--max-update", "300", "--save-interval-updates", "50"]
SHORT = [*SMALL, "--max-update", "10"]
ENVIRONMENT = {**os.environ, "PYTHON_BIN": sys.executable}


def command(table, corpus, folder, *options):
    places = ["--save-dir", folder / "runs", "--results", folder / "results", "--jobs", 1, "--profile", "cpu"]
    return ["bash", ROOT / "scripts" / f"{table}.sh", *map(str, (corpus, *places, *options))]


def call(*arguments):
    environment = {**os.environ, "PYTHON_BIN": forked_python()}
    return subprocess.run(command(*arguments), capture_output=True, text=True, env=environment)


def start(*arguments):
    return subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
    )


def wait_until(condition, process):
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
