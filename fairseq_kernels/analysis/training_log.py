"""Reads the log of fairseq-train (``--log-format simple``, as text)."""

import math
import re
from pathlib import Path
from typing import Dict, Optional, Tuple

NUMBER = r"([-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf))"  # what a cut line has of one is none
KINDS = re.compile(r" \| INFO \| (train_inner|train|valid) \| (.*)")


def read_record(line: str) -> Optional[Tuple[str, Dict[str, float]]]:
    """``(kind, values)`` of a line with statistics, None of others; kind is ``train_inner``, ``train`` or ``valid``."""
    match = KINDS.search(line)
    if not match:
        return None
    values = {name: float(value) for name, value in re.findall(rf"(\w+)[ =]{NUMBER}(?=[ ,|]|$)", match[2])}
    return (match[1], values) if math.isfinite(values.get("num_updates", math.nan)) else None


def read_curves(path: Path, kind: str) -> Dict[str, Dict[int, float]]:
    """``curves[statistic][update]`` of one kind of record in a log, in the order of updates.

    A run that was interrupted and resumed repeats some updates: the later record is the one that counts.
    """
    curves: Dict[str, Dict[int, float]] = {}
    for record in map(read_record, Path(path).read_text(errors="replace").splitlines()):
        if record and record[0] == kind:
            for name, value in record[1].items():
                curves.setdefault(name, {})[int(record[1]["num_updates"])] = value
    return {name: dict(sorted(curve.items())) for name, curve in curves.items()}
