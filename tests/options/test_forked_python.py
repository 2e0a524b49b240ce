"""The tests' own Python, forked from one that has imported torch and fairseq, does what Python does."""

import os
import subprocess
import sys

import pytest
from forked_python import forked_python

TOLD = "import os, sys; print(sys.argv, os.getcwd(), os.environ['A'], sys.stdin.read())"
COMMANDS = {
    "-c": ["-W", "ignore", "-c", TOLD, "-x", "y"],
    "-m": ["-m", "told", "-x"],
    "script": ["told.py", "-x"],
    "words": ["-c", "import sys; sys.exit('no')"],
    "number": ["-c", "import atexit; atexit.register(print, 'last'); raise SystemExit(3)"],
    "killed": ["-c", "import os; os.kill(os.getpid(), 9)"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_as_python_does(name, tmp_path):
    (tmp_path / "told.py").write_text(TOLD)
    how = dict(cwd=tmp_path, env={**os.environ, "A": "b"}, input="given", capture_output=True, text=True)
    actual, expected = (
        subprocess.run([python, *COMMANDS[name]], **how) for python in (forked_python(), sys.executable)
    )
    assert (actual.returncode, actual.stdout) == (expected.returncode, expected.stdout)
    assert actual.stderr == expected.stderr.replace(sys.executable, forked_python())
