"""A grid is a table: its points are rows, and the best of them on the development set goes to ``searched.yaml``."""

import math
import statistics
from pathlib import Path
from typing import Dict, List, Sequence

import yaml

from ..whole_files import write_text
from .corpus import Corpus
from .profiles import Settings, settings_of, training_settings
from .run import Run
from .tables import ROOT, Row

SEARCHED = ROOT / "configs" / "searched.yaml"
HEAD = "# The best points of scripts/grid_search.sh, which writes this file, by CORPUS/PROFILE/KERNELS.\n"
SHARE = 4  # a search's trainings make a quarter of the profile's updates
WARM_UP = 0.3  # of the updates at most


def shortened(kind: str, profile: str, options: Settings) -> Settings:
    """The options with a quarter of the profile's schedule, where they don't give another."""
    whole = training_settings(kind, profile, options)
    own: Settings = {}
    for name in ("max_update", "total_num_update", "max_epoch", "save_interval_updates"):
        if name in whole:
            own[name] = str(max(1, int(str(whole[name])) // SHARE))
    updates = options.get("max_update", own.get("max_update"))
    if updates and "warmup_updates" in whole:
        own["warmup_updates"] = str(min(math.ceil(WARM_UP * int(str(updates))), int(str(whole["warmup_updates"]))))
    return {**own, **options}


def add_best(runs: Sequence[Run], path: Path) -> None:
    """Puts the best point on each corpus into ``searched.yaml``: the lowest perplexity on the development set of each
    training, the mean over seeds."""
    for corpus in dict.fromkeys(run.corpus for run in runs):
        points: Dict[str, List[Dict]] = {}
        for run in runs:
            if run.corpus == corpus:
                points.setdefault(run.row, []).append(run.record())
        perplexities = {
            row: statistics.fmean(min(ppl for _, ppl in record["curves"]["valid"]) for record in same)
            for row, same in points.items()
        }
        best = min(perplexities, key=lambda row: perplexities[row])
        run = points[best][0]["run"]
        origin = {"valid_ppl": round(perplexities[best], 2), "points": len(points), "seeds": len(points[best])}
        entry = {"kernel_params": run["settings"]["kernel_params"], "origin": origin}
        name = f"{corpus.name}/{run['profile']}/{run['settings']['kernels']}"
        entries = {**load_searched(path), name: entry}
        write_text(path, HEAD + yaml.safe_dump(entries, width=110, allow_unicode=True))
        print(f"{name}: {entry['kernel_params']} is the best; tables take it by --searched {path}")


def load_searched(path: Path) -> Dict[str, Dict]:
    """The entries of a ``searched.yaml``; none if there is no file."""
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


def row_options(row: Row, corpus: Corpus, profile: str, searched: Path) -> Settings:
    """The options of a row on a corpus under a profile.

    Raises:
        LookupError: it isn't for these; the message says why.
    """
    if row.kind not in ("", corpus.kind):
        raise LookupError(f"it is for {row.kind} alone")
    if row.profile_options and profile not in row.profile_options:
        raise LookupError(f"it has no size for --profile {profile}")
    options = settings_of(row.words(profile))
    if row.searched:
        name, found = f"{corpus.name}/{profile}/{row.searched}", load_searched(searched)
        if name not in found:
            raise LookupError(f"{searched} has no {name}, which scripts/grid_search.sh --kernel {row.searched} finds")
        options.update(kernels=row.searched, kernel_params=found[name]["kernel_params"])
    return options
