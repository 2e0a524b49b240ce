"""The form of fairseq's logs, which what reads them relies on."""

import logging
import sys


def log_as_fairseq(level: int) -> None:
    """Sets up logging in the format of fairseq's commands. Modules that they import may set another."""
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s", datefmt="%Y-%m-%d %H:%M:%S", level=level,
        stream=sys.stdout, force=True,
    )  # fmt: skip
