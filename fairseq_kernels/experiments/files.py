"""Files that interruptions leave whole, and that several processes write."""

import errno
import json
import math
import os
from argparse import ArgumentTypeError
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator

from filelock import FileLock

LOCK = ".lock"
NOT_FINITE = ("inf", "-inf", "nan")  # numbers that JSON hasn't, as they are written


def read_json(path: Path, *names: str):
    """What :func:`write_json` wrote, fields of objects that aren't finite numbers again.

    Raises:
        ValueError: the file is damaged, or no object with these ``names``.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_hook=with_number)
        if names and not (isinstance(content, dict) and content.keys() >= {*names}):
            raise ValueError(f"it has no {' and no '.join(names)}")
        return content
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); move it away, and what it had is made again") from None


def write_json(path: Path, content) -> None:
    """Whole or not at all; numbers that aren't finite become strings."""
    write_text(path, json.dumps(finite(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def with_number(entry: Dict) -> Dict:
    return {key: float(value) if value in NOT_FINITE and key != "name" else value for key, value in entry.items()}


def finite(content):
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [finite(value) for value in content]
    return str(content) if isinstance(content, float) and not math.isfinite(content) else content


def write_text(path: Path, text: str) -> None:
    """Whole or not at all.

    Raises:
        OSError: with the file's name, which Python leaves out where the disk is full.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        if path.exists() and not path.is_file():  # a device, which would become a file
            raise OSError(errno.EINVAL, "is no file")
        part.write_bytes(text.encode())  # its line ends as they are
        part.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """One process at a time writes in the folder, on all machines that share it."""
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / LOCK):  # NFS locks files, not folders
        yield


def to_folder(name: str) -> Path:
    """An option's value, as ``type=`` of argparse.

    Raises:
        ArgumentTypeError: it is empty, as a shell variable that isn't set, or fairseq would read it as something else.
    """
    if not name:
        raise ArgumentTypeError("is empty; give a folder")
    try:
        check_name(Path(name))
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    return Path(name)


def check_name(path: Path) -> None:
    """
    Raises:
        ValueError: fairseq would read the path as something else.
    """
    for part, meaning in ((":", "several paths"), ("${", "a setting's value")):
        if part in str(path):
            raise ValueError(f"{str(path)!r} has {part}, which fairseq takes for {meaning}; name a folder without it")


def check_folder(what: str, folder: Path) -> None:
    """
    Raises:
        ValueError: ``what``, such as an option and its value, can't be written, as nothing can in its folder.
    """
    try:
        with exclusive(folder):
            pass
    except OSError as error:
        raise ValueError(f"{what} can't be written ({error.strerror}); name another") from None
