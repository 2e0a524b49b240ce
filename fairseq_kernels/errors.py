"""What a user sees of a mistake: one line that names it, not a traceback."""

import contextlib
import os
import sys


@contextlib.contextmanager
def one_line_errors():
    """Turns a ValueError of the layers into the end of the program with its message, as argparse does."""
    try:
        yield
    except ValueError as error:
        raise SystemExit(f"fairseq_kernels: error: {error}") from error


def explain_missing_files() -> None:
    """Under fairseq's commands, reports a missing file (a wrong DATA or --path) in one line.

    fairseq lets open()'s exception through; in other programs nothing is changed.
    """
    program = sys.argv[0] if sys.argv else ""
    if not (os.path.basename(program).startswith("fairseq-") or "fairseq_cli" in program):
        return
    previous = sys.excepthook

    def hook(kind, error, trace):
        if issubclass(kind, FileNotFoundError):
            missing = error.filename or error
            print(
                f"fairseq_kernels: error: {missing} not found; check the path of data and checkpoint", file=sys.stderr
            )
        else:
            previous(kind, error, trace)

    sys.excepthook = hook
