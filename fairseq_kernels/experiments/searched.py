"""``configs/searched.yaml``: the best hyper-parameters that grid searches have found, each with its origin."""

from pathlib import Path
from typing import Dict, Optional, Tuple

import yaml

from .files import exclusive, write_text
from .tables import ROOT, Row

SEARCHED = ROOT / "configs" / "searched.yaml"
HEAD = "# The best points that scripts/grid_search.sh has found, which writes this file: CORPUS/PROFILE/KERNEL.\n"


def key(corpus: str, profile: str, kernels: str) -> str:
    """Of an entry in ``searched.yaml``."""
    return f"{corpus}/{profile}/{''.join(kernels.split())}"


def load_searched(path: Path) -> Dict[str, Dict]:
    """The entries of a ``searched.yaml``; none if there is no file.

    Raises:
        ValueError: it isn't one.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no file; name another")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.is_file() else {}
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())}; mend or move it") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a mapping from CORPUS/PROFILE/KERNEL; name another file or move it away")
    return content


def searched_entry(path: Path, corpus: str, profile: str, kernels: str) -> Optional[Dict]:
    """What a search has found: ``kernel_params`` and its ``origin``; None if there was no search.

    Raises:
        ValueError: the file isn't what a search writes.
    """
    name = key(corpus, profile, kernels)
    entry = load_searched(path).get(name)
    if entry is not None and not (isinstance(entry, dict) and isinstance(entry.get("kernel_params"), str)):
        raise ValueError(f"{path}: {name} has no kernel_params; mend it, or search again")
    return entry


def row_options(path: Path, corpus: str, profile: str, row: Row) -> Optional[Tuple[str, ...]]:
    """Those of the training script, or None for a searched row without a search."""
    if not row.searched:
        return (*row.options, *row.profile_options.get(profile, ()))
    entry = searched_entry(path, corpus, profile, row.searched)
    return entry and (*row.options, "--kernels", row.searched, "--kernel-params", entry["kernel_params"])


def add_searched(path: Path, name: str, entry: Dict) -> None:
    """Puts an entry into ``searched.yaml`` beside the others, in the place of an older one."""
    with exclusive(path.parent):
        entries = dict(sorted({**load_searched(path), name: entry}.items()))
        write_text(path, HEAD + yaml.safe_dump(entries, sort_keys=False, width=110, allow_unicode=True))
