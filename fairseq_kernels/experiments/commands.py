"""fairseq's commands in this process: their output in a log, their failures in one line."""

import logging
import os
import sys
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, Iterator, List, TextIO

from ..errors import PREFIX, explanation
from ..logs import log_as_fairseq

logging.getLogger("filelock").setLevel(logging.WARNING)  # what fairseq imports may have asked for more
USER_DIR = str(Path(__file__).resolve().parents[1])


class Failed(Exception):
    """A training or an evaluation ended with an error; the message says why, and where its log is."""


class Refused(Failed):
    """A mistake of the user's, such as a mistyped option: the log says no more than the message."""


@contextmanager
def output_to(path: Path, mode: str = "a") -> Iterator[TextIO]:
    """What this process and those that it starts write goes to a file; yields the stream where it went before."""
    log_as_fairseq(logging.INFO)
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
        Refused: a mistake of the user's ended it.
        Failed: another error did.
    """
    from .. import fairseq_plugin  # noqa: F401  (--user-dir leaves alone what is imported already)

    sys.argv = ["fairseq", *arguments, "--user-dir", USER_DIR]
    try:
        return command()
    except SystemExit as end:
        if not end.code:
            return None
        kind, why = Refused, end.code if isinstance(end.code, str) else last_line(log)
    except Exception as error:
        traceback.print_exc()
        known = explanation(error)
        kind, why = (Refused, known) if known else (Failed, f"{type(error).__name__}: {error}")
    why = " ".join(why.split()).removeprefix(PREFIX).removeprefix("error: ")
    raise kind(f"{why} (log: {log})")


def last_line(log: Path) -> str:
    sys.stderr.flush()
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
