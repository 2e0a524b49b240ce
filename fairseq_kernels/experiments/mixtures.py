"""What the mixtures of Table 3 do that lin doesn't: Table 4, and where the weight of their linear components goes.

``scripts/table4.sh`` and ``scripts/linear_weight.sh`` call it; rows of Table 3 that aren't trained yet are trained.
"""

import argparse
import shlex
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List

from fairseq.data import Dictionary

from ..analysis import disambiguation, linear_weight
from ..analysis.disambiguation import SIZE
from ..analysis.measurement import commit
from ..errors import PREFIX, one_line_errors
from . import old_results as results
from .data import Corpus
from .files import write_text
from .step import Step, say
from .tables import KINDS, load_table
from .workflow import end, interruptible, parse, run_steps, steps_of

BASELINE = "lin"
Models = Dict[str, Step]  # by what they are called: the row's name, and the seed if it isn't the first


def table4(corpus: Corpus, models: Models, figure: Callable[..., Dict], folder: Path) -> List[Dict]:
    """Accuracy and log-likelihood in the clusters of close words, with the differences from lin; a mixture's sentences
    are in ``table4/``, under the name of its run's folder."""
    record = disambiguation.compare(corpus.binarised, {name: checkpoint(model) for name, model in models.items()})
    details = {"clusters": len(record["clusters"]), **{key: record[key] for key in ("positions", "lines", "settings")}}
    lin = models[BASELINE].run  # its word vectors make the clusters: another training of it, others
    baseline = f"seed {lin.seed}, commit {lin.finished()['provenance']['commit']}"
    figures = []
    for name, model in record["models"].items():
        for metric in ("accuracy", "log_likelihood"):
            difference = model.get("differences", {}).get(metric)
            value = {"metric": f"cluster_{metric}", "value": model[metric], "difference": difference}
            figures.append(figure(models[name], split=record["split"], **value, baseline=baseline, details=details))
        if name != BASELINE:
            gain = model["gain_beyond_random"]
            value = {"metric": "cluster_gain_beyond_random", "value": gain["mean"], "difference": gain}
            figures.append(figure(models[name], split=record["split"], **value, baseline=baseline, details=details))
            pair = {each: record["models"][each] for each in (BASELINE, name)}
            run = models[name].run
            path = folder / "table4" / run.folder.relative_to(run.root).with_suffix(".md")
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, disambiguation.report({**record, "models": pair}))
    print(disambiguation.report(record), end="")
    return figures


def weights(corpus: Corpus, models: Models, figure: Callable[..., Dict], folder: Path) -> List[Dict]:
    """The total weight of lin in each mixture; the plot ``linear_weight-CORPUS-PROFILE.svg`` has earlier ones too."""
    figures = []
    for name, model in models.items():
        mixture = linear_weight.linear_weight(corpus.binarised, checkpoint(model))
        details = {key: value for key, value in mixture.items() if key not in ("split", "mean", "checkpoint")}
        value = {"metric": "linear_weight", "value": mixture["mean"], "details": details}
        figures.append(figure(model, split=mixture["split"], **value))
        above = f"above one half before {mixture['above_half']:.1%} of the words"
        say(f"{name}: the weight of lin is {mixture['mean']:.3f}, {above}")
    return figures


def check_clusters(corpus: Corpus) -> None:
    """
    Raises:
        ValueError: it has too few words for clusters.
    """
    words = len(disambiguation.frequent_words(Dictionary.load(str(corpus.binarised / "dict.txt")), 2 * SIZE))
    if words < SIZE:
        raise ValueError(
            f"{corpus.folder} has {words} words that are frequent enough for Table 4, whose clusters are of {SIZE}; "
            "give a larger text"
        )


def plot_weights(corpus: Corpus, profile: str, folder: Path) -> None:
    """Of all mixtures in ``linear_weight.json`` on this corpus."""
    this = (corpus.name, corpus.fingerprint, profile)
    figures = results.load(folder / "linear_weight.json")
    figures = [f for f in figures if (f["corpus"], f["provenance"]["data"], f["profile"]) == this]
    named = {f"{f['name']} seed {f['seed']}": f["details"] for f in figures}
    linear_weight.plot(named, folder / f"linear_weight-{corpus.name}-{profile}.svg")


ANALYSES = {"table4": table4, "linear_weight": weights}


def checkpoint(model: Step) -> Path:
    return model.run.folder / "checkpoint_best.pt"


def usable(model: Step) -> bool:
    """Whether its checkpoint is there and whole; if not, that is said."""
    whole = zipfile.is_zipfile(checkpoint(model))
    if not whole:
        advice = f"move {model.run.folder} away to train it again"
        say(f"{model.label}: left out, as {checkpoint(model)} is missing or damaged; {advice}")
    return whole


def chosen(name: str, args: argparse.Namespace) -> List[Step]:
    """The models: mixtures, and for Table 4 lin, of which further seeds are the control.

    Raises:
        ValueError: no mixture is chosen, or the data aren't for it.
    """
    table = load_table("table3")
    mixtures = [row for row in table.chosen(args.rows) if row.name != BASELINE]
    rows = [*table.chosen([BASELINE]), *mixtures] if name == "table4" else mixtures
    if not rows:
        choice = " ".join(row.name for row in table.rows if row.name != BASELINE)
        raise ValueError(f"--rows {' '.join(args.rows)} has no mixture; choose from {choice}")
    for corpus in map(Corpus.at, args.data):
        if corpus.kind != "lm":
            raise ValueError(f"{corpus.folder} is {KINDS[corpus.kind]}; give {KINDS['lm']}, for a language model")
        if name == "table4":
            check_clusters(corpus)
    results.load(args.results / f"{name}.json")
    return [
        step for step in steps_of(table, rows, args)
        if name != "table4" or step.row.name == BASELINE or step.run.seed == args.seeds[0]
    ]  # fmt: skip


def main() -> None:
    name = sys.argv[1]
    with one_line_errors():
        args = parse(sys.argv[1:])
    with interruptible(args.program), one_line_errors():
        steps = chosen(name, args)
        failed = list(run_steps(steps, args.jobs, args.workflow_profile))
        trained = [step for step in steps if step.label not in failed]
        models = [step for step in trained if usable(step)]
        failed += [step.label for step in trained if step not in models]
        for corpus in dict.fromkeys(step.run.corpus for step in trained):
            here = {}
            for step in models:
                if step.run.corpus == corpus:
                    seed = "" if step.run.seed == args.seeds[0] else f" seed {step.run.seed}"
                    here[step.row.name + seed] = step
            try:
                analyse(name, corpus, here, args)
            except (SystemExit, ValueError, OSError) as error:  # it must not end the other corpora's
                say(f"{name} on {corpus.name}: failed: {str(error).removeprefix(PREFIX)}")
                failed.append(f"{name} on {corpus.name}")
    end(args.program, failed)


def analyse(name: str, corpus: Corpus, models: Models, args: argparse.Namespace) -> None:
    """Puts what is made of one corpus' models into the results file."""
    if not models or (name == "table4" and BASELINE not in models):
        say(f"{name} on {corpus.name}: left out, as the models that it needs failed")
        return
    say(f"{name} on {corpus.name}")
    command = shlex.join(["bash", f"scripts/{args.program}", *sys.argv[2:]])
    models = dict(sorted(models.items(), key=lambda item: item[0] != BASELINE))  # lin is the first
    figures = ANALYSES[name](corpus, models, partial(figure, command, commit()), args.results)
    results.add(args.results / f"{name}.json", figures, [row.name for row in load_table("table3").rows])
    if name == "linear_weight":
        plot_weights(corpus, args.profile, args.results)


def figure(command: str, analysed: str, model: Step, **values) -> Dict:
    """The object of one figure; ``analysed`` is the commit that it was made at."""
    record = model.run.finished()
    record["provenance"]["analysis_commit"] = analysed
    return results.figure(model.row, model.run, record, command, **values, paper=None)


if __name__ == "__main__":
    main()
