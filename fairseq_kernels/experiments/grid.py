"""A grid is a table: its points are rows, and the best of them on the development set goes to ``searched.yaml``."""

import statistics
from pathlib import Path
from typing import Dict, List, Sequence

import yaml

from ..whole_files import write_text
from .corpus import Corpus
from .run import Run
from .tables import ROOT, Row, Settings

SEARCHED = ROOT / "configs" / "searched.yaml"
HEAD = "# The best points of scripts/grid_search.sh, which writes this file, by CORPUS/PROFILE/KERNELS.\n"


def score(records: Sequence[Dict]) -> float:
    """The lowest perplexity on the development set of each training, the mean over seeds."""
    return statistics.fmean(min(ppl for _, ppl in record["curves"]["valid"]) for record in records)


def add_best(runs: Sequence[Run], path: Path) -> None:
    """Puts the best point on each corpus into ``searched.yaml``."""
    for corpus in dict.fromkeys(run.corpus for run in runs):
        points: Dict[str, List[Dict]] = {}
        for run in runs:
            if run.corpus == corpus:
                points.setdefault(run.row, []).append(run.record())
        best = min(points.values(), key=score)
        run = best[0]["run"]
        origin = {"valid_ppl": round(score(best), 2), "points": len(points), "seeds": len(best)}
        entry = {"kernel_params": run["settings"].get("kernel_params", ""), "origin": origin}
        name = f"{corpus.name}/{run['profile']}/{run['settings']['kernels']}"
        write_text(path, HEAD + yaml.safe_dump({**load_searched(path), name: entry}, width=110, allow_unicode=True))
        best = f"{name}: {run['row']} is the best on the development set"
        print(f"{best}; to use its hyper-parameters in a table, give --searched {path}")


def load_searched(path: Path) -> Dict[str, Dict]:
    """The entries of a ``searched.yaml``; none if there is no file."""
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


def row_options(row: Row, corpus: Corpus, profile: str, searched: Path) -> Settings:
    """The options of a row on a corpus under a profile; a LookupError says why it isn't for these."""
    if row.kind not in ("", corpus.kind):
        raise LookupError(f"it is only for {dict(lm='language models', mt='translation')[row.kind]}")
    if row.profile_options and profile not in row.profile_options:
        raise LookupError(f"it has no size for --profile {profile}")
    options = row.settings(profile)
    if row.searched:
        name, found = f"{corpus.name}/{profile}/{row.searched}", load_searched(searched)
        if name not in found:
            raise LookupError(f"{searched} has no {name}; run scripts/grid_search.sh --kernel {row.searched}")
        options.update(kernels=row.searched, kernel_params=found[name]["kernel_params"])
    return options
