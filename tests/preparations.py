"""What the tests of data-prep/ share: its modules, runs of them in this process, killed runs."""

import multiprocessing
import os
import shutil
import signal
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest

DATA_PREP = Path(__file__).resolve().parents[1] / "data-prep"
sys.path.insert(0, str(DATA_PREP))

import common  # noqa: E402, F401
import moses  # noqa: E402, F401
import prepare_bitext as bitext  # noqa: E402, F401
import prepare_iwslt14 as iwslt14  # noqa: E402, F401
import prepare_multi30k as multi30k  # noqa: E402, F401
import prepare_ptb as ptb  # noqa: E402, F401
import prepare_swb as swb  # noqa: E402, F401
import prepare_text as text  # noqa: E402, F401
import prepare_wikitext as wikitext  # noqa: E402, F401
import toy_german as toy  # noqa: E402, F401


def once(arguments):
    """Command line words in which a later option takes the place of an earlier one."""
    first, options = [], {}
    values = first
    for word in map(str, arguments):
        if word.startswith("--"):
            options[word] = values = []
        else:
            values.append(word)
    return first + [word for option, values in options.items() for word in (option, *values)]


def call(monkeypatch, module, *arguments):
    """Run a preparation in this process."""
    monkeypatch.setattr(sys, "argv", [module.__name__, *once(arguments)])
    module.main()


def error_of(monkeypatch, module, *arguments):
    """The message with which a preparation ends."""
    with pytest.raises((common.InputError, OSError, SystemExit)) as ended, redirect_stderr(StringIO()) as printed:
        call(monkeypatch, module, *arguments)
    return printed.getvalue() or str(ended.value)


def write(path, content):
    """A text file, with its folders; ``content`` may be bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def lines_of(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def tree(folder):
    """``{name: content}`` of all files of an output directory, without the lock."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def killed_at(step, module, *arguments):
    """Run a preparation in a child process that kills itself before its ``step``-th change of a file name.

    Returns:
        Whether it was killed; False where there are fewer steps.
    """
    child = multiprocessing.get_context("fork").Process(target=run_until, args=(step, module, arguments))
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


def run_until(step, module, arguments):
    steps = iter(range(step, -1, -1))

    def counted(function):
        def call_or_die(*positional, **named):
            if next(steps, None) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*positional, **named)

        return call_or_die

    os.replace, os.rename, shutil.rmtree = map(counted, (os.replace, os.rename, shutil.rmtree))
    sys.argv = [module.__name__, *map(str, arguments)]
    module.main()


def check_kills(module, arguments, older, expected, out):
    """SIGKILL before every single step, over an older output directory: the next run makes the expected files."""
    step = 0
    while True:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(older, out)
        killed = killed_at(step, module, *arguments, "--out", out)
        assert not killed_at(10_000, module, *arguments, "--out", out)
        assert tree(out) == expected, f"killed before step {step}"
        if not killed:
            return step
        step += 1
