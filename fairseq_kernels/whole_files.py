"""Files that are written whole or not at all, and JSON in them."""

import json
from pathlib import Path
from typing import Dict, List


def write_text(path: Path, text: str) -> None:
    """Writes a file beside its place, then renames it."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(text.encode())  # line ends stay as they are
    part.replace(path)


def write_json(path: Path, content) -> None:
    write_text(path, json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")


def read_records(path: Path) -> List[Dict]:
    """The objects of a results file; none if there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
