"""What the mixtures of Table 3 do that lin doesn't: Table 4, and where the weight of their linear components goes.

``scripts/table4.sh`` and ``scripts/linear_weight.sh`` call it; rows of Table 3 that aren't trained yet are trained.
"""

import shlex
import sys
from pathlib import Path
from typing import Dict

from ..analysis import disambiguation, linear_weight
from ..analysis.measurement import provenance
from ..errors import one_line_errors
from . import results
from .data import Corpus
from .runner import parse, run_table, say
from .tables import load_table

BASELINE = "lin"


def table4(corpus: Corpus, checkpoints: Dict[str, Path], shared: Dict, folder: Path) -> None:
    """Adds accuracy and log-likelihood in the clusters of close words to ``table4.json``, with the differences from
    lin; sentences are in ``table4.md``."""
    record = disambiguation.compare(corpus.binarised, checkpoints)
    found = []
    for name, model in record["models"].items():
        for metric in ("accuracy", "log_likelihood"):
            figure = {"name": name, "split": record["split"], "metric": f"cluster_{metric}", "value": model[metric]}
            difference = model.get("differences", {}).get(metric)
            found.append({**figure, "paper": None, "difference": difference, **shared})
    results.add(folder / "table4.json", found, list(record["models"]))
    text = disambiguation.report(record)
    (folder / "table4.md").write_text(text, encoding="utf-8")
    print(text, end="")


def weights(corpus: Corpus, checkpoints: Dict[str, Path], shared: Dict, folder: Path) -> None:
    """Adds the total weight of lin in each mixture to ``linear_weight.json``; the plot is ``linear_weight.svg``."""
    mixtures = {
        name: linear_weight.linear_weight(corpus.binarised, path)
        for name, path in checkpoints.items()
        if not name.startswith(BASELINE)
    }
    found = []
    for name, mixture in mixtures.items():
        figure = {"name": name, "split": mixture["split"], "metric": "linear_weight", "value": mixture["mean"]}
        details = {key: value for key, value in mixture.items() if key not in ("split", "mean", "checkpoint")}
        found.append({**figure, "paper": None, "details": details, **shared})
    results.add(folder / "linear_weight.json", found, list(mixtures))
    linear_weight.plot(mixtures, folder / "linear_weight.svg")
    print(linear_weight.table(mixtures))


ANALYSES = {"table4": table4, "linear_weight": weights}


def main() -> None:
    analysis, table = sys.argv[1], load_table("table3")
    with one_line_errors():
        args = parse(sys.argv[1:])
        rows = table.chosen(list(dict.fromkeys([BASELINE, *args.rows])) if args.rows else [])
        for corpus in map(Corpus.at, args.data):
            if corpus.kind != "lm":
                raise ValueError(f"{corpus.folder} is parallel text; give text of one language, for a language model")
    checkpoints: Dict[str, Dict[str, Path]] = {}
    corpora: Dict[str, Corpus] = {}
    first, *others = args.seeds
    args.seeds = [first]
    work = run_table(table, rows, args)
    if analysis == "table4" and others:  # lin models of other seeds, as a control
        args.seeds = others
        work += run_table(table, table.chosen([BASELINE]), args)
    for row, run in work:
        name = row.name if run.seed == first else f"{row.name} seed {run.seed}"
        checkpoints.setdefault(run.corpus.name, {})[name] = run.folder / "checkpoint_best.pt"
        corpora[run.corpus.name] = run.corpus
    for name, corpus in corpora.items():
        say(f"{analysis} on {name}")
        origin = {**provenance(), "data": corpus.fingerprint}
        command = shlex.join(["bash", f"scripts/{args.program}", *sys.argv[2:]])
        shared = {"corpus": name, "profile": args.profile, "seed": first, "command": command, "provenance": origin}
        ANALYSES[analysis](corpus, checkpoints[name], shared, args.results)


if __name__ == "__main__":
    main()
