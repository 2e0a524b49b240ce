"""Reads the log of fairseq-train (``--log-format simple``, as text)."""

import re
from pathlib import Path
from typing import Dict, Iterator, Tuple

NUMBER = r"([-+0-9.e]+|nan|inf)"
KINDS = re.compile(r" \| INFO \| (train_inner|train|valid) \| (.*)")


def read_records(path: Path) -> Iterator[Tuple[str, Dict[str, float]]]:
    """Yields ``(kind, values)`` of each line with statistics; kind is ``train_inner``, ``train`` or ``valid``.

    A run that was interrupted and resumed repeats some updates: the later record is the one that counts.
    """
    for line in Path(path).read_text(errors="replace").splitlines():
        match = KINDS.search(line)
        if match:
            pairs = re.findall(rf"(\w+)[ =]{NUMBER}(?=[ ,|]|$)", match[2])
            values = {name: float(value) for name, value in pairs}
            if "num_updates" in values:
                yield match[1], values


def read_curves(path: Path, kind: str) -> Dict[str, Dict[int, float]]:
    """``curves[statistic][update]`` of one kind of record, in the order of updates."""
    curves: Dict[str, Dict[int, float]] = {}
    for found, values in read_records(path):
        if found == kind:
            for name, value in values.items():
                curves.setdefault(name, {})[int(values["num_updates"])] = value
    return {name: dict(sorted(curve.items())) for name, curve in curves.items()}
