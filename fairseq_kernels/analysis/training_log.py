"""Reads the log of fairseq-train (``--log-format simple``, as text)."""

import math
import re
from pathlib import Path
from typing import Dict, List, Tuple

NUMBER = r"([-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf))"  # a cut-off exponent doesn't match
KINDS = re.compile(r" \| INFO \| (train_inner|train|valid) \| (.*)")


def read_curves(path: Path, kind: str) -> Dict[str, Dict[int, float]]:
    """``curves[statistic][update]``, in the order of updates, of one kind of lines: ``train_inner``, ``train`` or
    ``valid``.

    A resumed or restarted training goes back to an earlier update. Later updates logged before that are dropped.
    """
    records: List[Tuple[str, Dict[str, float]]] = []
    for line_kind, line in KINDS.findall(Path(path).read_text(errors="replace")):
        values = {name: float(value) for name, value in re.findall(rf"(\w+)[ =]{NUMBER}(?=[ ,|]|$)", line)}
        if math.isfinite(values.get("num_updates", math.nan)):
            while records and records[-1][1]["num_updates"] > values["num_updates"]:
                records.pop()
            records.append((line_kind, values))
    curves: Dict[str, Dict[int, float]] = {}
    for values in (values for line_kind, values in records if line_kind == kind):
        for name, value in values.items():
            curves.setdefault(name, {})[int(values["num_updates"])] = value
    return curves
