"""A grid is a table: its points are rows, and the best of them on the development set goes to ``searched.yaml``."""

import itertools
import math
import statistics
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

import yaml
from filelock import FileLock

from ..whole_files import write_text
from .profiles import Settings, settings_of, training_settings
from .run import Run
from .tables import ROOT, Row

SEARCHED = ROOT / "configs" / "searched.yaml"
HEAD = "# The best points of scripts/grid_search.sh, which writes this file, by CORPUS/PROFILE/KERNELS.\n"
SHARE = 4  # a search's trainings make a quarter of the profile's updates
WARM_UP = 0.3  # of the updates at most


def rows_of(grid: Mapping[str, Sequence[Any]], options: str) -> List[Row]:
    """A row for each combination of the grid's values. An option with a dot is a kernel's hyper-parameter:
    ``{"log.p": [2, 4], "lr": [0.004]}`` gives ``--kernel-params log.p=2 --lr 0.004`` and another."""
    rows = []
    for values in itertools.product(*grid.values()) if grid else ():
        point = [f"{name}={value}" for name, value in zip(grid, values)]
        hyper = ",".join(part for part in point if "." in part.partition("=")[0])
        own = [f"--{part}" for part in point if "." not in part.partition("=")[0]]
        rows.append(Row(",".join(point), " ".join([options, *([f"--kernel-params {hyper}"] if hyper else []), *own])))
    return rows


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
        run, made = points[best][0]["run"], points[best][0]["made"]
        origin = {"valid_ppl": round(perplexities[best], 2), "points": len(points), "seeds": len(points[best])}
        origin.update({name: made[name] for name in ("data", "commit", "date")})
        entry = {"kernel_params": run["settings"]["kernel_params"], "origin": origin}
        name = key(corpus.name, run["profile"], run["settings"]["kernels"])
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.parent / ".lock"):
            entries = dict(sorted({**load_searched(path), name: entry}.items()))
            write_text(path, HEAD + yaml.safe_dump(entries, sort_keys=False, width=110, allow_unicode=True))
        print(f"{name}: {entry['kernel_params']} is the best; tables take it by --searched {path}")


def key(corpus: str, profile: str, kernels: str) -> str:
    """The name of an entry in ``searched.yaml``."""
    return f"{corpus}/{profile}/{''.join(kernels.split())}"


def load_searched(path: Path) -> Dict[str, Dict]:
    """The entries of a ``searched.yaml``; none if there is no file.

    Raises:
        ValueError: the file isn't one.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
        return {name: {**entry, "kernel_params": str(entry["kernel_params"])} for name, entry in content.items()}
    except (yaml.YAMLError, AttributeError, TypeError, LookupError) as error:
        raise ValueError(f"{path} is not what grid_search.sh writes ({' '.join(str(error).split())})") from None


def row_options(row: Row, searched: Path, corpus: str, profile: str) -> Settings:
    """The options of a row on a corpus under a profile.

    Raises:
        LookupError: the row is of a search that hasn't been made.
    """
    options = settings_of(row.words(profile))
    if row.searched:
        found = load_searched(searched)[key(corpus, profile, row.searched)]
        options.update(kernels=row.searched, kernel_params=found["kernel_params"])
    return options
