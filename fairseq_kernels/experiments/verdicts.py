"""``verdicts.yaml``, written by hand: each claim of the papers, our evidence, and whether the claim holds."""

from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import pandas
import yaml

from .chapters import LEVEL, Chapter, Part, cell, difference, label
from .summaries import Results

VERDICTS = "verdicts"
CHOICES = ("holds", "doesn't", "can't be told here")
FIELDS = ("claim", "source", "paper", "evidence", "verdict", "reason")


def load_verdicts(folder: Path, results: Sequence[Results]) -> List[Chapter]:
    """The chapter, or none if the folder has no such file.

    Args:
        results: of all tables; figures of a claim's ``rows`` (TABLE/PROFILE/CORPUS/METRIC/ROW) are taken from there.

    Raises:
        ValueError: the file isn't a list of claims, each with ``FIELDS``, or names rows that have no figures.
    """
    path = folder / f"{VERDICTS}.yaml"
    try:
        claims = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else []
        if not (isinstance(claims, list) and all(isinstance(claim, dict) for claim in claims)):
            raise ValueError("no list of claims")
        lines = [verdict(claim, results) for claim in claims]
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error
    if not lines:
        return []
    table = pandas.DataFrame(lines, columns=["claim", "verdict", "reason", "here", "the paper"])
    note = (
        "Signed figures are differences from lin (spherical family: from log-softmax; KerBS: from softmax; Table 2: "
        "from rho=0.001), in square brackets their 95 % intervals; the tables have the rest. Where no row has two "
        "seeds, BLEU alone is tested, by a bootstrap over sentences where the translations are there."
    )
    return [Chapter(VERDICTS, "What holds of the papers' claims", "", note, [Part("", [table])])]


def verdict(claim: dict, results: Sequence[Results]) -> List[str]:
    missing = [name for name in FIELDS if not isinstance(claim.get(name), str)]
    if missing:
        raise ValueError(f"{claim.get('claim', 'a claim')!r} has no text for {', '.join(missing)}")
    if claim["verdict"] not in CHOICES:
        raise ValueError(f"verdict {claim['verdict']!r} is not known; choose from {', '.join(CHOICES)}")
    figures: Dict[str, List[str]] = {}
    for place, figure in (evidence(row, results) for row in claim.get("rows", [])):
        figures.setdefault(place, []).append(figure)
    here = " ".join([claim["evidence"], *(f"{place}: {'; '.join(those)}." for place, those in figures.items())])
    return [claim["claim"], claim["verdict"], claim["reason"], here, f"{claim['paper']} ({claim['source']})"]


def evidence(row: str, results: Sequence[Results]) -> Tuple[str, str]:
    """Which table a row's figures are in, and for what; and the figures, as that has them."""
    for result in results:
        names = result.rows[["profile", "corpus", "metric", "name"]].agg("/".join, axis=1)
        entries = result.rows[result.table.name + "/" + names == row]
        if len(entries):
            summary = entries.loc[(entries.split == result.table.split).idxmax()]  # the table's split, or the first
            compared = difference(summary)
            if not compared or summary.adjusted < LEVEL:
                shown = ""
            else:
                shown = ", not tested" if pandas.isna(summary.adjusted) else ", not significant"
            measure = label(entries[entries.split == summary.split])
            place = f"{result.table.name} ({summary.corpus}, {summary.profile}, {measure})"
            return place, f"{summary['name']} {compared or cell(summary)}{shown}"
    raise ValueError(f"row {row!r} has no figures; give TABLE/PROFILE/CORPUS/METRIC/ROW of results that are there")
