"""Measures of Table 3's mixtures against lin: Table 4 (choosing among close words), and where the weight of their
linear components goes. ``scripts/table4.sh`` and ``linear_weight.sh`` train what is missing and call this."""

import argparse
import time
from pathlib import Path
from typing import Callable, Dict, List, Sequence

from ..analysis import disambiguation, linear_weight
from ..analysis.measurement import commit
from ..whole_files import write_text
from .run import Run
from .tables import publish

BASELINE = "lin"


def chosen(name: str, runs: Sequence[Run]) -> List[Run]:
    """The models: mixtures, and for Table 4 lin, of which further seeds are the control."""
    first, own = runs[0].seed, [run for run in runs if run.row != BASELINE]
    if name == "table4":
        own = [run for run in runs if run.row == BASELINE] + [run for run in own if run.seed == first]
    return [run for run in own if run.corpus.kind == "lm"]


def table4(corpus, models: Dict[str, Run], folder: Path) -> Dict[str, List[Dict]]:
    """Metrics by model, with the differences from lin; sentences go to ``table4/``, by the runs' folders."""
    best = {name: run.best for name, run in models.items()}
    metrics, sentences, details = disambiguation.compare(corpus.binarised, best)
    for name, text in sentences.items():
        path = folder / "table4" / models[name].folder.relative_to(models[name].root).with_suffix(".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
        print(path)
    for name, own in metrics.items():
        print(f"{name} on {corpus.name}:", ", ".join(f"{metric['metric']} {metric['value']:.4f}" for metric in own))
    return {name: [{"split": "test", **metric, "details": details} for metric in own] for name, own in metrics.items()}


def weights(corpus, models: Dict[str, Run], folder: Path) -> Dict[str, List[Dict]]:
    """The total weight of lin in each mixture, by model."""
    metrics = {}
    for name, run in models.items():
        mixture = linear_weight.linear_weight(corpus.binarised, run.best)
        metrics[name] = [{"split": "test", "metric": metric, "value": value} for metric, value in mixture.items()]
        print(f"{name} on {corpus.name}: the weight of lin is {mixture['mean']:.3f} on average")
    return metrics


ANALYSES: Dict[str, Callable] = {"table4": table4, "linear_weight": weights}


def analyse(name: str, runs: Sequence[Run], order: Sequence[str], args: argparse.Namespace) -> None:
    """Puts what is made of trained models, corpus by corpus, into the results file."""
    path = args.results / f"{name}.json"
    for corpus in dict.fromkeys(run.corpus for run in runs):
        here = [run for run in runs if run.corpus == corpus]
        first = here[0].seed
        models = {run.row + ("" if run.seed == first else f" seed {run.seed}"): run for run in here}
        if name == "table4" and BASELINE not in models:
            raise ValueError(f"{BASELINE} isn't trained on {corpus.name}, which Table 4 compares with")
        new = []
        for model, metrics in ANALYSES[name](corpus, models, args.results).items():
            record = models[model].record()
            made = {**record["made"], "analysis": {"commit": commit(), "date": time.strftime("%Y-%m-%d")}}
            run = {**record["run"], "row": models[model].row}
            if name == "table4":
                run["baseline"] = f"seed {first}"
            new.append({"run": run, "made": made, "metrics": metrics})
        publish(path, new, order)
