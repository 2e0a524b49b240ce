"""The tests' own Python, forked from one that has imported torch and fairseq, does what Python does."""

import os
import signal
import subprocess
import sys

import pytest
from forked_python import forked_python

TOLD = "import os, sys; print(sys.argv, os.getcwd(), os.environ['A'], sys.stdin.read())"
COMMANDS = {
    "-c": ["-W", "ignore", "-c", TOLD, "-x", "y"],
    "-m": ["-m", "told", "-x"],
    "script": ["folder/told.py", "-x"],
    "standard input": ["-", "x"],
    "words": ["-c", "import sys; sys.exit('no')"],
    "number": ["-c", "import atexit; atexit.register(print, 'last'); raise SystemExit(3)"],
    "killed": ["-c", "import os; os.kill(os.getpid(), 9)"],
    "no module": ["-m", "nowhere"],
    "version": ["-V"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_as_python_does(name, tmp_path):
    (tmp_path / "folder").mkdir()
    for folder in (tmp_path, tmp_path / "folder"):
        (folder / "told.py").write_text(TOLD)
    text = "import sys; print(sys.argv)" if name == "standard input" else "given"
    how = dict(cwd=tmp_path, env={**os.environ, "A": "b"}, input=text, capture_output=True, text=True)
    actual, expected = (
        subprocess.run([python, *COMMANDS[name]], **how) for python in (forked_python(), sys.executable)
    )
    assert (actual.returncode, actual.stdout) == (expected.returncode, expected.stdout)
    assert actual.stderr == expected.stderr.replace(sys.executable, forked_python())


def test_a_traceback():
    done = subprocess.run([forked_python(), "-c", "1/0"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_it_ends_with_its_caller():
    program = "import time; print('begun', flush=True); time.sleep(600)"
    caller = subprocess.Popen([forked_python(), "-c", program], stdout=subprocess.PIPE)
    assert caller.stdout.readline() == b"begun\n"
    caller.send_signal(signal.SIGKILL)
    assert caller.stdout.read() == b""  # nothing holds the other end any more
    assert caller.wait() == -signal.SIGKILL


def test_it_has_imported_torch_but_not_the_package():
    """So that these imports are tested."""
    program = "import sys; print(sorted({'fairseq', 'fairseq_kernels', 'torch'}.intersection(sys.modules)))"
    assert subprocess.check_output([forked_python(), "-c", program], text=True) == "['fairseq', 'torch']\n"


SPAWNING = """import multiprocessing, sys

def imported(name):
    return name in sys.modules

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(imported, ["torch", "fairseq_kernels"]))
"""


def test_what_it_spawns_is_forked_too(tmp_path):
    """With the pipes that the two talk through."""
    (tmp_path / "spawning.py").write_text(SPAWNING)
    done = subprocess.run([forked_python(), tmp_path / "spawning.py"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[True, False]\n", "")
