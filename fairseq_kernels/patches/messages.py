"""Under fairseq's commands, a user's mistake and Ctrl-C end in one line."""

import os
import sys

from ..errors import explanation, mistake
from . import replaces


@replaces(None, "sys.excepthook")
def explain_mistakes() -> None:
    """fairseq's commands do not catch the exceptions of its helpers, of torch and of the system.

    Lost: the cause of the error stood at the end of a traceback of 40 lines.
    """
    program = sys.argv[0] if sys.argv else ""
    if not (os.path.basename(program).startswith("fairseq-") or "fairseq_cli" in program):
        return  # other programs keep theirs
    previous = sys.excepthook

    def hook(kind, error, trace):
        if isinstance(error, KeyboardInterrupt):
            further = "; the same command goes on from the last checkpoint" if "train" in program else ""
            print(f"interrupted{further}", file=sys.stderr)
        elif line := explanation(error):
            print(mistake(line), file=sys.stderr)
        else:
            previous(kind, error, trace)

    sys.excepthook = hook
