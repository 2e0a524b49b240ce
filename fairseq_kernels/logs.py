"""The form of fairseq's logs, which what reads them relies on."""

import logging
import sys


def log_as_fairseq(level: int) -> None:
    """As fairseq's commands do when they are imported first; what they import does it in another form."""
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s", datefmt="%Y-%m-%d %H:%M:%S", level=level,
        stream=sys.stdout, force=True,
    )  # fmt: skip
