"""What a user sees of a mistake: one line that names it, not a traceback."""

import contextlib
import os
import pickle
import sys
from typing import Optional


@contextlib.contextmanager
def one_line_errors():
    """Turns a ValueError of the layers into the end of the program with its message, as argparse does."""
    try:
        yield
    except ValueError as error:
        raise SystemExit(f"fairseq_kernels: error: {error}") from error


def explanation(error: BaseException) -> Optional[str]:
    """One line for a data folder or checkpoint that isn't what it should be; None for anything else."""
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error.filename} not found; check the path of data and checkpoint"
    if isinstance(error, OSError) and "not found" in str(error):
        return f"{error}; check the path of data and checkpoint"
    if isinstance(error, pickle.UnpicklingError):
        return "the checkpoint is refused: it is damaged, no checkpoint, or carries code; give another --path"
    if "Could not infer language pair" in str(error):
        return "the data has no language pair; give a parallel corpus' data-bin folder, or --task language_modeling"
    return None


def explain_wrong_files() -> None:
    """Under fairseq's commands, reports wrong paths and files in one line; in other programs changes nothing.

    fairseq lets the exceptions of its helpers through.
    """
    program = sys.argv[0] if sys.argv else ""
    if not (os.path.basename(program).startswith("fairseq-") or "fairseq_cli" in program):
        return
    previous = sys.excepthook

    def hook(kind, error, trace):
        line = explanation(error)
        if line is None:
            previous(kind, error, trace)
        else:
            print(f"fairseq_kernels: error: {' '.join(line.split())}", file=sys.stderr)

    sys.excepthook = hook
