"""What an SVG of matplotlib's shows."""

import re
from pathlib import Path
from typing import List, Tuple


def drawn(svg: Path) -> Tuple[List[str], List[float]]:
    """Its texts, and all coordinates of its lines, in points."""
    text = svg.read_text(encoding="utf-8")
    lines = " ".join(re.findall(r' d="(.*?)"', text, re.S))
    return re.findall(r">([^<>]*\S)</text>", text), [float(number) for number in re.findall("[-.0-9]+", lines)]
