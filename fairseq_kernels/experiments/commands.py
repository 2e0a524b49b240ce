"""fairseq's commands in this process: their output in a log, their failures in one line."""

import difflib
import logging
import os
import re
import sys
import traceback
from argparse import ArgumentParser
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, Iterator, List, TextIO

from ..errors import explanation

logging.getLogger("filelock").setLevel(logging.WARNING)  # what fairseq imports may have asked for more
USER_DIR = str(Path(__file__).resolve().parents[1])


class Failed(Exception):
    """A training or an evaluation ended with an error; the message says why, and where its log is."""


@contextmanager
def output_to(path: Path, mode: str = "a") -> Iterator[TextIO]:
    """What this process and those that it starts write goes to a file; yields the stream where it went before."""
    # as fairseq's commands do, before what they import does it in another form
    logging.basicConfig(format="%(asctime)s | %(levelname)s | %(name)s | %(message)s", level=logging.INFO, force=True,
                        datefmt="%Y-%m-%d %H:%M:%S", stream=sys.stdout)  # fmt: skip
    logging.raiseExceptions = False  # a full disk ends the training at its next checkpoint, not at a line of the log
    sys.stdout.flush()
    sys.stderr.flush()
    before = os.dup(1), os.dup(2)
    with open(path, mode) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        with os.fdopen(os.dup(before[0]), "w", buffering=1) as screen:
            yield screen
    finally:
        for stream, number, saved in zip((sys.stdout, sys.stderr), (1, 2), before):
            with suppress(OSError):
                stream.flush()
            os.dup2(saved, number)
            os.close(saved)


def call(command: Callable[[], object], arguments: List[str], log: Path) -> object:
    """What ``command()`` returns, with ``arguments`` on its command line; its output goes to ``log`` already.

    Raises:
        Failed: it ended with an error.
    """
    from .. import fairseq_plugin  # noqa: F401  (--user-dir leaves alone what is imported already)

    sys.argv = ["fairseq", *arguments, "--user-dir", USER_DIR]
    try:
        return command()
    except SystemExit as end:
        if not end.code:
            return None
        why = end.code if isinstance(end.code, str) else last_line(log)
    except Exception as error:
        traceback.print_exc()
        why = explanation(error) or f"{type(error).__name__}: {error}"
    why = " ".join(str(why).split()).removeprefix("fairseq_kernels: error: ").removeprefix("error: ")
    raise Failed(f"{why} (log: {log})")


def last_line(log: Path) -> str:
    sys.stderr.flush()
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def short_errors(parser: ArgumentParser) -> None:
    """A mistyped option ends a command of fairseq's in one line with the nearest known one, without the usage."""

    def error(message: str) -> None:
        unknown = re.match(r"unrecognized arguments: (--?[^\s=]+)", message)
        choice = re.match(r"(argument .*invalid choice: '(.*?)') \(choose from (.*)\)", message, re.DOTALL)
        if unknown:
            near = difflib.get_close_matches(unknown[1], re.findall(r"(?<!\S)--[\w-]+", parser.format_help()), 1)
            message = f"unknown option {unknown[1]}"
        elif choice:
            near = difflib.get_close_matches(choice[2], re.findall(r"[\w.-]+", choice[3]), 1)
            message = choice[1]
        else:
            near = []
        raise SystemExit(message + (f"; did you mean {near[0]}?" if near else ""))

    parser.error = error
