"""Files that are written whole or not at all, and JSON in them."""

import json
import os
from pathlib import Path
from typing import Dict, List


def write_text(path: Path, text: str) -> None:
    """Writes a file beside its place, then renames it. An OSError has the file's name, also where the disk is full."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(text.encode())  # line ends stay as they are
        part.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, content) -> None:
    write_text(path, json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")


def write_records(path: Path, records: List[Dict]) -> None:
    """A list of objects, one a line."""
    how = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    lines = (json.dumps(record, **how) for record in records)
    write_text(path, "[\n" + ",\n".join(lines) + "\n]\n")


def read_json(path: Path):
    """A file's content.

    Raises:
        ValueError: the file is no JSON; the message has its name.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); move it away") from None


def read_records(path: Path) -> List[Dict]:
    """The objects of a results file; none if there is no file.

    Raises:
        ValueError: the file is damaged, or no list of objects.
    """
    content = read_json(path) if path.is_file() else []
    if not (isinstance(content, list) and all(isinstance(entry, dict) for entry in content)):
        raise ValueError(f"{path} holds no list of objects; move it away")
    return content
