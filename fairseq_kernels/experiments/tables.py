"""What a table's rows are, from ``configs/tables/``."""

import shlex
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Collection, Dict, List, Optional, Sequence, Tuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "configs" / "tables"
RESULTS = Path("checkpoints") / "results"  # of a user; the published ones are in results/
KINDS = {"lm": "text of one language", "mt": "parallel text"}
# beside perplexity and BLEU: modules that print what they measured of a language model as a list of objects
MEASURES = {
    "top10_error": ["fairseq_kernels.analysis.top10_error"],
    "simlex": ["fairseq_kernels.analysis.word_similarity", "--json"],
}
# types of a table's values that are no text
TYPES = {"rows": list, "measures": list, "paper": dict, "profile_options": dict, "unigram": bool, "compared": bool}
TYPES.update(margin=(int, float), factors=list)
NOUNS = {str: "a text", list: "a list", dict: "a mapping", bool: "true or false", (int, float): "a number"}


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
        profile_options: further options under each of these profiles; the row is for them alone. None: for all.
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
    (``MEASURES``) are taken beside perplexity and BLEU; ``split`` is the one that the report shows; ``compared``
    says whether rows are compared with a baseline. ``reference`` is a row that they are compared with, too, and
    ``margin`` how many percent of perplexity may lie between it and a row that is as good; ``factors`` are two names
    for an analysis of variance over rows named ``lin,FIRST=1,SECOND=4``."""

    name: str
    title: str
    source: str
    rows: Tuple[Row, ...]
    note: str = ""
    measures: Tuple[str, ...] = ()
    split: str = "test"
    compared: bool = True
    reference: str = ""
    margin: float = 0.0
    factors: Tuple[str, ...] = ()

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
        ValueError: there is none, or it isn't one.
    """
    path = TABLES / f"{name}.yaml"
    if name not in names():
        raise ValueError(f"table {name!r} is not known; choose from {' '.join(names())}")
    try:
        content = checked(yaml.safe_load(path.read_text(encoding="utf-8")), Table, "the table", {"name"})
        rows = []
        for number, row in enumerate(content["rows"], 1):
            row = checked(row, Row, f"row {number}")
            own = row["name"]
            if own in [other.name for other in rows] or own.split() != [own]:
                raise ValueError(f"row {number} has the name {own!r}; give each its own, without spaces")
            wrong = [value for value in row.get("paper", {}).values() if not isinstance(value, (int, float))]
            if wrong:
                raise ValueError(f"row {number} has {wrong[0]!r} under paper, where a number is wanted")
            if row.get("kind") not in (None, *KINDS):
                raise ValueError(f"row {number} has kind: {row['kind']!r}; choose from {', '.join(KINDS)}")
            further = {profile: words(text) for profile, text in row.pop("profile_options", {}).items()}
            rows.append(Row(options=words(row.pop("options", "")), profile_options=further, **row))
        measures = content.get("measures", ())
        if not set(measures) <= set(MEASURES):
            raise ValueError(f"measures is {measures!r}; choose from {', '.join(MEASURES)}")
        content.update(rows=tuple(rows), measures=tuple(measures))
        return Table(name, **content)
    except (yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no table: {' '.join(str(error).split())}; mend it") from None


def words(options: Optional[str]) -> Tuple[str, ...]:
    return tuple(shlex.split(options or ""))


def checked(content: Dict, kind: type, what: str, given: Collection[str] = ()) -> Dict:
    """
    Raises:
        ValueError: it isn't what a dataclass takes beside what is ``given``.
    """
    if not isinstance(content, dict):
        raise ValueError(f"{what} is {content!r}, no mapping")
    allowed = [field_ for field_ in fields(kind) if field_.name not in given]
    known = [field_.name for field_ in allowed]
    for key, value in content.items():
        if key not in known:
            raise ValueError(f"{what} has {key!r}, which is none of {', '.join(known)}")
        wanted = TYPES.get(key, str)
        if value is not None and not isinstance(value, wanted):
            raise ValueError(f"{what} has {key}: {value!r}, where {NOUNS[wanted]} is wanted")
    for field_ in allowed:
        if field_.name not in content and field_.default is MISSING and field_.default_factory is MISSING:
            raise ValueError(f"{what} has no {field_.name!r}")
    return content


def names() -> List[str]:
    """Of all tables."""
    checkout()
    return sorted(path.stem for path in TABLES.glob("*.yaml"))
