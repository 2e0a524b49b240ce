"""Measures of Table 3's mixtures against lin: Table 4 (choosing among close words), and where the weight of their
linear components goes. ``scripts/table4.sh`` and ``linear_weight.sh`` train what is missing and call this."""

import importlib
import time
from pathlib import Path
from typing import List, Sequence

from ..whole_files import write_text
from .run import Run
from .tables import Table, publish

BASELINE = "lin"
ANALYSES = {"table4": "disambiguation", "linear_weight": "linear_weight"}


def chosen(name: str, runs: Sequence[Run]) -> List[Run]:
    """The models: mixtures, and for Table 4 lin, of which further seeds are the control."""
    runs = [run for run in runs if run.corpus.kind == "lm"]
    if name == "table4":
        return [run for run in runs if run.row == BASELINE or run.seed == runs[0].seed]
    return [run for run in runs if run.row != BASELINE]


def analyse(table: Table, runs: Sequence[Run], folder: Path) -> None:
    """Measures trained models, corpus by corpus. The records go to ``TABLE.json`` in the folder, sentences to
    ``TABLE/``, by the runs' folders."""
    from ..analysis.measurement import commit

    compare = importlib.import_module(f"fairseq_kernels.analysis.{ANALYSES[table.name]}").compare
    for corpus in dict.fromkeys(run.corpus for run in runs):
        models = {f"{run.row} of seed {run.seed}": run for run in runs if run.corpus == corpus}
        metrics, sentences = compare(corpus.binarised, {name: run.best for name, run in models.items()})
        new = []
        for name, run in models.items():
            figures = ", ".join(f"{figure['metric']} {figure['value']:.4f}" for figure in metrics[name][:3])
            print(f"{name} on {corpus.name}: {figures}")
            record = run.record()
            baseline = {"baseline": f"seed {runs[0].seed}"} if table.name == "table4" else {}
            made = {**record["made"], "analysis": {"commit": commit(), "date": time.strftime("%Y-%m-%d")}}
            new.append({"run": {**record["run"], "row": run.row, **baseline}, "made": made, "metrics": metrics[name]})
            if name in sentences:
                path = folder / table.name / run.folder.relative_to(run.root).with_suffix(".md")
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, sentences[name])
                print(path)
        publish(folder / f"{table.name}.json", new, [row.name for row in table.rows])
