"""What the mixtures of Table 3 do that lin doesn't: Table 4, and where the weight of their linear components goes.

``scripts/table4.sh`` and ``scripts/linear_weight.sh`` call it; rows of Table 3 that aren't trained yet are trained.
"""

import shlex
import sys
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple

from ..analysis import disambiguation, linear_weight
from ..analysis.measurement import commit
from ..errors import one_line_errors
from . import results
from .data import Corpus
from .runner import Runner, Work, end, parse, run_table, say
from .tables import load_table

BASELINE = "lin"
Models = Dict[str, Work]  # by what they are called: the row's name, and the seed if it isn't the first


def table4(corpus: Corpus, models: Models, figure: Callable[..., Dict], folder: Path) -> List[Dict]:
    """Accuracy and log-likelihood in the clusters of close words, with the differences from lin; sentences are in
    ``table4-CORPUS.md``."""
    checkpoints = {name: work.run.folder / "checkpoint_best.pt" for name, work in models.items()}
    record = disambiguation.compare(corpus.binarised, checkpoints)
    found = []
    for name, model in record["models"].items():
        for metric in ("accuracy", "log_likelihood"):
            difference = model.get("differences", {}).get(metric)
            value = {"metric": f"cluster_{metric}", "value": model[metric], "difference": difference}
            found.append(figure(models[name], split=record["split"], **value))
    text = disambiguation.report(record)
    (folder / f"table4-{corpus.name}.md").write_text(text, encoding="utf-8")
    print(text, end="")
    return found


def weights(corpus: Corpus, models: Models, figure: Callable[..., Dict], folder: Path) -> List[Dict]:
    """The total weight of lin in each mixture; the plot is ``linear_weight-CORPUS.svg``."""
    mixtures, found = {}, []
    for name, work in models.items():
        if work.row.name != BASELINE:
            mixture = linear_weight.linear_weight(corpus.binarised, work.run.folder / "checkpoint_best.pt")
            details = {key: value for key, value in mixture.items() if key not in ("split", "mean", "checkpoint")}
            value = {"metric": "linear_weight", "value": mixture["mean"], "details": details}
            found.append(figure(work, split=mixture["split"], **value))
            mixtures[name] = mixture
    linear_weight.plot(mixtures, folder / f"linear_weight-{corpus.name}.svg")
    print(linear_weight.table(mixtures))
    return found


class Analysis(NamedTuple):
    """What is made of trained models.

    Args:
        make: it.
        baseline_seeds: whether of the further seeds lin alone is needed, as a control.
        least: models other than lin that there must be.
    """

    make: Callable
    baseline_seeds: bool
    least: int


ANALYSES = {"table4": Analysis(table4, True, 0), "linear_weight": Analysis(weights, False, 1)}


def train(analysis: Analysis, table, rows, args) -> List[Runner]:
    """The models, as one table; those of other seeds as another where lin alone is needed of them."""
    first, *others = args.seeds
    if not (analysis.baseline_seeds and others):
        return [run_table(table, rows, args)]
    args.seeds = [first]
    runners = [run_table(table, rows, args)]
    args.seeds = others
    return [*runners, run_table(table, table.chosen([BASELINE]), args)]


def main() -> None:
    name, table = sys.argv[1], load_table("table3")
    analysis = ANALYSES[name]
    with one_line_errors():
        args = parse(sys.argv[1:])
        rows = table.chosen(list(dict.fromkeys([BASELINE, *args.rows])) if args.rows else [])
        if len(rows) - 1 < analysis.least:
            mixtures = " ".join(row.name for row in table.rows if row.name != BASELINE)
            raise ValueError(f"--rows {' '.join(args.rows)} has no mixture; choose from {mixtures}")
        for corpus in map(Corpus.at, args.data):
            if corpus.kind != "lm":
                raise ValueError(f"{corpus.folder} is parallel text; give text of one language, for a language model")
    first = args.seeds[0]
    runners = train(analysis, table, rows, args)
    if any(work.run.finished() is None for runner in runners for work in runner.left):
        say(f"{name} is made by the process that ends last, or by the same command once all models are trained")
        end(args.program, *runners)
        return
    done = [work for runner in runners for work in (*runner.done, *runner.left)]
    trained = [work for runner in runners for work in runner.work if work in done]

    def figure(work: Work, **values) -> Dict:
        origin = {**work.run.finished()["provenance"], "config": results.config(work.run), "analysis_commit": commit()}
        run = {"corpus": work.run.corpus.name, "profile": work.run.profile, "seed": work.run.seed}
        command = shlex.join(["bash", f"scripts/{args.program}", *sys.argv[2:]])
        return {"name": work.row.name, **values, "paper": None, **run, "command": command, "provenance": origin}

    for corpus in {work.run.corpus.name: work.run.corpus for work in trained}.values():
        models = {
            work.row.name + ("" if work.run.seed == first else f" seed {work.run.seed}"): work
            for work in trained
            if work.run.corpus.name == corpus.name
        }
        if BASELINE not in models or len(models) - 1 < analysis.least:
            say(f"{name} on {corpus.name}: left out, as the models that it needs failed")
            continue
        models = {BASELINE: models[BASELINE], **models}
        say(f"{name} on {corpus.name}")
        found = analysis.make(corpus, models, figure, args.results)
        results.add(args.results / f"{name}.json", found, [row.name for row in table.rows])
    end(args.program, *runners)


if __name__ == "__main__":
    main()
