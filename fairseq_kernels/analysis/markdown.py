"""Text and tables in Markdown."""

import re
from typing import Sequence


def escaped(text: str) -> str:
    """As Markdown that shows just this."""
    return re.sub(r"([\\`*_|<>\[\]~]|&(?=#?\w+;))", r"\\\1", text)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Of cells that are Markdown already."""
    return "".join(f"| {' | '.join(row)} |\n" for row in [header, ["---"] * len(header), *rows])
