"""Text and tables in Markdown."""

import re
from typing import Sequence

ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "~": "&#126;"}


def escaped(text: str) -> str:
    """Markdown that GitHub and MkDocs show as ``text``. Entities stand for characters that MkDocs cannot escape."""
    return re.sub(r"[\\`*_|<>\[\]~]|&(?=#?\w+;)", lambda found: ENTITIES.get(found[0], f"\\{found[0]}"), text)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    return "".join(f"| {' | '.join(row)} |\n" for row in [header, ["---"] * len(header), *rows])
