"""scripts/setup.sh and test.sh, by a Python that tells its calls."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq_commands import USER_DIR
from preparations import lines_of, write

ROOT = USER_DIR.parent
PYTHON = """#!/bin/bash
echo "$*" >>{calls}
case "$*" in
    *version_info*) echo {version} ;;
    "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    "-m pip install"*) [ -z "${{FAIL:-}}" ] || {{ echo no network; exit 1; }} ;;
    *fairseq_cli.train*) [ -z "${{BROKEN:-}}" ] || exit 1 ;;
esac
"""


@pytest.fixture
def called(tmp_path):
    """Runs a script of a clone; returns its status, what it says, and the calls of its Python."""
    for name in ("scripts", "data-prep"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for version in ("3.9", "3.12", "3.13"):
        text = PYTHON.format(calls=tmp_path / "calls", version=version)
        write(tmp_path / version, text).chmod(0o755)

    def run(name, *arguments, **variables):
        write(tmp_path / "calls", "")
        command = ["bash", tmp_path / "scripts" / f"{name}.sh", *arguments]
        variables = {"PATH": "/usr/bin:/bin", **{name: value.format(tmp=tmp_path) for name, value in variables.items()}}
        done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr, lines_of(tmp_path / "calls")

    return run


def test_what_is_installed(called):
    """Once; again for another torch, in a new .venv for another Python; nothing where PYTHON_BIN is given."""

    def installed(*arguments, **variables):
        code, said, calls = called("setup", *arguments, **variables)
        made = [call.rpartition("constraints.txt ")[2] for call in calls if re.match("-m (venv|pip install)", call)]
        return (code, made) if code == 0 else (code, said)

    assert "no network" in installed(PYTHON="{tmp}/3.12", FAIL="1")[1]
    compiling = ["torch cython numpy setuptools<82 wheel", "--no-build-isolation torch -e .[recipes,test]"]
    uname = subprocess.check_output(["uname", "-sm"], text=True)
    usual = ["torch -e .[recipes,test]"] if uname == "Linux x86_64\n" else compiling
    assert "can't be imported" in installed(PYTHON="{tmp}/3.12", BROKEN="1")[1]
    assert installed(PYTHON="{tmp}/3.12") == (0, usual)
    assert installed() == installed(PYTHON="{tmp}/3.12") == (0, [])
    assert "no network" in installed(TORCH="torch==2", FAIL="1")[1]
    assert installed() == (0, usual)  # of the other torch there may be half
    assert installed(TORCH="torch==2") == (0, [each.replace("torch", "torch==2", 1) for each in usual])
    assert installed(PYTHON="{tmp}/3.13") == (0, ["-m venv .venv", *compiling])
    assert installed(PYTHON_BIN="{tmp}/3.12") == (0, [])
    for arguments, variables, named in (([], {"PYTHON": "{tmp}/3.9"}, "Python 3.9"), (["3.12"], {}, "'3.12'")):
        code, said = installed(*arguments, **variables)
        assert code == 2 and named in said


@pytest.mark.parametrize("arguments, variables, asked", [
    (["--fast", "-x"], {}, "2 .* tests/options tests/numerics -x"),
    (["-k", "a b"], {"WORKERS": "0"}, "0 .* -k a b"),
])  # fmt: skip
def test_which_tests_run(arguments, variables, asked, called):
    code, said, calls = called("test", *arguments, PYTHON_BIN="{tmp}/3.12", **variables)
    assert code == 0 and re.fullmatch(f".*-m pytest -q --numprocesses {asked}", calls[-1]), said


def test_workflow():
    """It is valid, and calls what .ci/run is here."""
    workflow = ROOT / ".github" / "workflows" / "tests.yml"
    commands = re.findall(r"- run: (.*)", workflow.read_text())
    assert commands == ["bash .ci/run", "bash .ci/run --package dist"]
    actionlint = shutil.which("actionlint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if not actionlint:
        pytest.skip("the extra 'workflow' fetches actionlint from another host")
    assert subprocess.run([actionlint, workflow]).returncode == 0
