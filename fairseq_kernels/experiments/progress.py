"""A training's progress in lines, from its log."""

import math
import os
import re
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator, List, Sequence, TextIO

from tqdm import tqdm

from ..analysis.training_log import read_record
from .profiles import option_value

SECONDS = 5.0  # between two lines
OURS = re.compile(r"\| (?:INFO \| fairseq_kernels\.checkpoints|WARNING \| fairseq_kernels\.\S+) \| (.*)")
PLACE = re.compile(r"\| train_inner \| epoch \d+: +\d+ / (\d+) ")  # updates of an epoch
FORMAT = "update {n_fmt} of {total_fmt}{postfix}, {remaining} left"  # tqdm begins postfix with ", "


class Progress:
    """Reads what a log gets from now on.

    Args:
        log: of fairseq-train, which may not be there yet.
        arguments: of fairseq-train, which say how long the training is.
    """

    def __init__(self, log: Path, arguments: Sequence[str]):
        self.log, self.place = log, log.stat().st_size if log.is_file() else 0
        limits = (option_value(arguments, name) or "" for name in ("--max-update", "--max-epoch"))
        self.updates, self.epochs = (int(limit) if limit.isdecimal() else 0 for limit in limits)
        self.bar = None

    def lines(self) -> List[str]:
        """What is to be said since the last call: of all statistics the latest alone."""
        if not self.log.is_file():
            return []
        with open(self.log, "rb") as log:
            log.seek(self.place)
            whole, end, _ = log.read().rpartition(b"\n")
        self.place += len(whole + end)
        new = whole.decode(errors="replace")
        said, latest = OURS.findall(new), None
        for line in new.splitlines():
            record, place = read_record(line), PLACE.search(line)
            if record and record[0] == "train_inner":
                latest = record[1], int(place[1]) if place else 0
        return [*said, self.line(*latest)] if latest else said

    def line(self, values, epoch: int) -> str:
        update, total = int(values["num_updates"]), self.updates or self.epochs * epoch
        if self.bar is None:  # the speed is measured from here
            self.bar = tqdm(total=total, initial=update, file=open(os.devnull, "w"), bar_format=FORMAT)
        self.bar.n = update
        name, value = ("perplexity", values["ppl"]) if "ppl" in values else ("loss", values.get("loss", math.nan))
        self.bar.set_postfix_str(f"training {name} {value:.1f}", refresh=False)
        return str(self.bar)


@contextmanager
def shown(progress: Progress, screen: TextIO, label: str) -> Iterator[None]:
    """Prints the progress of a training in this process every few seconds, the time and a label before it."""
    done = threading.Event()

    def show() -> None:
        ended = False
        with suppress(OSError, ValueError):  # the screen is closed: the training goes on
            while not ended:
                ended = done.wait(SECONDS)
                for line in progress.lines():
                    print(f"{time.strftime('%H:%M:%S')} {label}: {line}" if label else line, file=screen)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
