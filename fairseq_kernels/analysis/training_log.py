"""Reads the log of fairseq-train (``--log-format simple``, as text)."""

import math
import re
from pathlib import Path
from typing import Dict, List, Optional, Tuple

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

    A training that was resumed, or begun anew, goes back in updates: what the log has beyond them counts no more.
    """
    records: List[Tuple[str, Dict[str, float]]] = []
    for record in map(read_record, Path(path).read_text(errors="replace").splitlines()):
        if record:
            while records and records[-1][1]["num_updates"] > record[1]["num_updates"]:
                records.pop()
            records.append(record)
    curves: Dict[str, Dict[int, float]] = {}
    for values in (values for record_kind, values in records if record_kind == kind):
        for name, value in values.items():
            curves.setdefault(name, {})[int(values["num_updates"])] = value
    return curves
