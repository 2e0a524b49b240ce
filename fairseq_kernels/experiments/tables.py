"""A table's rows, from ``configs/tables/``, and the file that has a table's records."""

import dataclasses
import itertools
import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Sequence, Union

from omegaconf import MISSING, OmegaConf

from ..whole_files import read_records, write_text

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "configs" / "tables"
RESULTS = Path("checkpoints") / "results"  # of a user; the published ones are in results/

Settings = Dict[str, Union[str, bool, List[str]]]  # a flag is True


def settings_of(words: Sequence[str]) -> Settings:
    """Options as they are typed, ``--lr 0.1 --stock``, as settings, ``{"lr": "0.1", "stock": True}``; the last of an
    option counts."""
    settings: Dict[str, List[str]] = {}
    name = None
    for word in words:
        if re.match(r"--?[a-zA-Z]", word):
            option, equals, value = word.partition("=")
            name = option.removeprefix("--").replace("-", "_") if option.startswith("--") else option
            settings.pop(name, None)  # the last one stands where it was given
            settings[name] = [value] if equals else []
        elif name is None:
            raise ValueError(f"{word!r} is no option; options begin with --")
        else:
            settings[name].append(word)
    return {name: values[0] if len(values) == 1 else values or True for name, values in settings.items()}


def words_of(settings: Settings) -> List[str]:
    """The options of a command line."""
    words = []
    for name, value in settings.items():
        words.append(name if name.startswith("-") else "--" + name.replace("_", "-"))
        words += [] if value is True else value if isinstance(value, list) else [str(value)]
    return words


def in_present_words(settings: Settings) -> Settings:
    """Settings as version 0.4 says them: before, a step s with the start a was a scale s of lin, or an alpha s of pol,
    and a factor a/s of the initial values."""
    given = re.fullmatch(r"(lin)\.scale=([\d.]+)|(pol)\.alpha=([\d.]+)", str(settings.get("kernel_params", "")))
    step = given[2] or given[4] if given else "1"
    alone = re.fullmatch(r"(\d+x)?(lin|pol)", str(settings.get("kernels")))
    if not alone or given and alone[2] not in given.groups() or "kernel_params" in settings and not given:
        return settings
    present: Settings = {}
    for name, value in settings.items():
        if name in ("kernel_params", "output_init") and "output_step" not in present:
            start = float(step) * float(str(settings.get("output_init", 1)))
            present.update({"output_start": f"{start:g}"} if start != 1 else {}, output_step=step)
        elif name not in ("kernel_params", "output_init"):
            present[name] = value
    return {name: value for name, value in present.items() if (name, value) != ("output_step", "1")}


@dataclass
class Row:
    """A model of a table."""

    name: str = MISSING
    options: str = ""  # of scripts/train_lm.sh and train_mt.sh
    paper: Dict[str, float] = field(default_factory=dict)  # the paper's figures, by metric (ppl, bleu)
    unigram: bool = False  # no model: the words' frequencies in training
    profile_options: Dict[str, str] = field(default_factory=dict)  # by profile; if there are any, for these alone
    searched: str = ""  # a kernel, whose hyper-parameters are those that a search on the same corpus has found best
    kind: str = ""  # "lm" or "mt" if the row is for such text alone

    def settings(self, profile: str = "") -> Settings:
        """Its options under a profile."""
        return settings_of(shlex.split(f"{self.options} {self.profile_options.get(profile, '')}"))


@dataclass
class Table:
    """A table, ``configs/tables/NAME.yaml``."""

    title: str = MISSING
    source: str = ""  # in a paper
    rows: List[Row] = field(default_factory=list)
    grid: Dict[str, List[Any]] = field(default_factory=dict)  # in place of rows: values by option; one for each choice
    options: str = ""  # those that all rows of a grid share
    note: str = ""  # for readers of the report
    measures: List[str] = field(default_factory=list)  # of language models beside perplexity, as top10_error
    split: str = "test"  # the one that the report shows; rows are compared with a baseline on "test"
    reference: str = ""  # a row that others are compared with, too
    margin: float = 0.0  # of the equivalence test with the reference, in percent of perplexity
    factors: List[str] = field(default_factory=list)  # two, of a variance analysis over rows as lin,start=1,rate=4
    of: str = ""  # another table, whose trained models are measured: its rows are this one's
    heads: Dict[str, str] = field(default_factory=dict)  # of such measures, a column's head by metric
    command: str = ""  # what makes the records, where scripts/table.sh doesn't
    name: str = ""  # the file's

    def chosen(self, names: Sequence[str]) -> List[Row]:
        """The rows of these names; all if none are given."""
        by_name = {row.name: row for row in self.rows}
        for name in [name for name in names if name not in by_name]:
            raise ValueError(f"row {name!r} is not in {self.name}; choose from {' '.join(by_name)}")
        return [by_name[name] for name in names] if names else list(self.rows)


def names() -> List[str]:
    """The names of all tables."""
    return sorted(path.stem for path in TABLES.glob("*.yaml"))


def rows_of(grid: Dict[str, List[Any]], options: str) -> List[Row]:
    """A row for each combination of the grid's values. An option with a dot is a kernel's hyper-parameter:
    ``{"log.p": [2, 4], "lr": [0.004]}`` gives ``--kernel-params log.p=2 --lr 0.004`` and another."""
    rows = []
    for values in itertools.product(*grid.values()) if grid else ():
        point = [f"{name}={value}" for name, value in zip(grid, values)]
        hyper = ",".join(part for part in point if "." in part.partition("=")[0])
        own = [f"--{part}" for part in point if "." not in part.partition("=")[0]]
        rows.append(Row(",".join(point), " ".join([options, *([f"--kernel-params {hyper}"] if hyper else []), *own])))
    return rows


def load_table(name: str) -> Table:
    """Reads ``configs/tables/NAME.yaml``; an OmegaConfBaseException names a wrong key in it."""
    if name not in names():
        raise ValueError(f"table {name!r} is not known; choose from {' '.join(names())}")
    table = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Table), OmegaConf.load(TABLES / f"{name}.yaml")))
    rows = load_table(table.of).rows if table.of else table.rows or rows_of(table.grid, table.options)
    table = dataclasses.replace(table, name=name, rows=rows)
    table.chosen([table.reference] if table.reference else [])
    return table


IDENTITY = ("row", "corpus", "profile", "seed", "settings", "baseline")  # the last in table4.json


def publish(path: Path, new: List[Dict], order: Sequence[str]) -> None:
    """Puts records into ``TABLE.json``, in the place of those of the same run; in the order of the table's rows."""

    def identity(record: Dict) -> List:
        return [record["run"].get(name) for name in IDENTITY]

    def place(record: Dict):
        row, corpus, profile, seed, settings, baseline = identity(record)
        where = order.index(row) if row in order else len(order)
        return where, corpus, profile, sorted(map(str, settings.items())), str(baseline), seed

    path.parent.mkdir(parents=True, exist_ok=True)
    replaced = [identity(record) for record in new]
    kept = [record for record in read_records(path) if identity(record) not in replaced]
    records = sorted([*kept, *new], key=place)
    lines = (json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in records)
    write_text(path, "[\n" + ",\n".join(lines) + "\n]\n")
