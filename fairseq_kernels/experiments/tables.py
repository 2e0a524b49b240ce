"""What a table's rows are, from ``configs/tables/``."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "configs" / "tables"
RESULTS = Path("checkpoints") / "results"  # of a user; the published ones are in results/


def checkout(*parts: str) -> Path:
    """A path in the repository, which an installed wheel is without.

    Raises:
        ValueError: this is no checkout.
    """
    if not TABLES.is_dir():
        raise ValueError(f"no configs/ beside {ROOT / 'fairseq_kernels'}: call this in a clone of the repository")
    return ROOT.joinpath(*parts)


@dataclass(frozen=True)
class Row:
    """A model of a table.

    Args:
        name: in the table.
        options: of ``scripts/train_lm.sh`` and ``train_mt.sh``; those rows are the same run that have the same.
        paper: the paper's figures, by metric (``ppl``, ``bleu``).
        unigram: no model: the words' frequencies in training.
        profile_options: further options under that profile.
        searched: a kernel, whose hyper-parameters are those that a grid search on the same data has found best.
        kind: ``lm`` or ``mt`` (``data.KINDS``) if the row is for such text alone.
    """

    name: str
    options: Tuple[str, ...] = ()
    paper: Dict[str, float] = field(default_factory=dict)
    unigram: bool = False
    profile_options: Dict[str, Tuple[str, ...]] = field(default_factory=dict)
    searched: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """``name`` is the file's, ``source`` the paper's table; ``note`` is for readers of the report; ``measures``
    (``runs.MEASURES``) are taken beside perplexity and BLEU; ``split`` is the one that the report shows; ``compared``
    says whether rows are compared with a baseline."""

    name: str
    title: str
    source: str
    rows: Tuple[Row, ...]
    note: str = ""
    measures: Tuple[str, ...] = ()
    split: str = "test"
    compared: bool = True

    def chosen(self, names: Sequence[str]) -> List[Row]:
        """The rows of these names; all if none are given.

        Raises:
            ValueError: there is no such row.
        """
        by_name = {row.name: row for row in self.rows}
        for name in names:
            if name not in by_name:
                raise ValueError(f"--rows: {name!r} is not in {self.name}; choose from {' '.join(by_name)}")
        return [by_name[name] for name in names] if names else list(self.rows)


def load_table(name: str) -> Table:
    """Reads ``configs/tables/NAME.yaml``.

    Raises:
        ValueError: there is none.
    """
    path = TABLES / f"{name}.yaml"
    if name not in names():
        raise ValueError(f"table {name!r} is not known; choose from {' '.join(names())}")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    rows = []
    for row in content["rows"]:
        options = tuple(shlex.split(row.pop("options", "")))
        further = {profile: tuple(shlex.split(text)) for profile, text in row.pop("profile_options", {}).items()}
        rows.append(Row(options=options, profile_options=further, **row))
    content.update(rows=tuple(rows), measures=tuple(content.get("measures", ())))
    return Table(name, **content)


def names() -> List[str]:
    """Of all tables."""
    checkout()
    return sorted(path.stem for path in TABLES.glob("*.yaml"))
