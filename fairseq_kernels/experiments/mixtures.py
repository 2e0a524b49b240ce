"""What the mixtures of Table 3 do that lin doesn't: Table 4, and where the weight of their linear components goes.

``scripts/table4.sh`` and ``scripts/linear_weight.sh`` call it; rows of Table 3 that aren't trained yet are trained.
"""

import argparse
import shlex
import sys
import zipfile
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional

from fairseq.data import Dictionary

from ..analysis import disambiguation, linear_weight
from ..analysis.disambiguation import SIZE
from ..analysis.measurement import commit
from ..errors import one_line_errors
from . import results
from .data import KINDS, Corpus
from .summaries import data_frame
from .tables import load_table
from .workflow import Work, Workflow, end, interruptible, parse, run_table, say

BASELINE = "lin"
Models = Dict[str, Work]  # by what they are called: the row's name, and the seed if it isn't the first


def table4(corpus: Corpus, models: Models, figure: Callable[..., Dict], folder: Path) -> List[Dict]:
    """Accuracy and log-likelihood in the clusters of close words, with the differences from lin; a mixture's sentences
    are in ``table4/``, under the name of its run's folder."""
    record = disambiguation.compare(corpus.binarised, {name: checkpoint(work) for name, work in models.items()})
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
            path.write_text(disambiguation.report({**record, "models": pair}), encoding="utf-8")
    print(disambiguation.report(record), end="")
    return figures


def weights(corpus: Corpus, models: Models, figure: Callable[..., Dict], folder: Path) -> List[Dict]:
    """The total weight of lin in each mixture; the plot ``linear_weight-CORPUS-PROFILE.svg`` has earlier ones too."""
    mixtures, figures = {}, []
    for name, work in models.items():
        mixture = linear_weight.linear_weight(corpus.binarised, checkpoint(work))
        details = {key: value for key, value in mixture.items() if key not in ("split", "mean", "checkpoint")}
        value = {"metric": "linear_weight", "value": mixture["mean"], "details": details}
        figures.append(figure(work, split=mixture["split"], **value))
        mixtures[name] = mixture
    print(linear_weight.table(mixtures))
    return figures


def check_clusters(corpus: Corpus) -> None:
    """
    Raises:
        ValueError: it has too few words for clusters.
    """
    words = len(disambiguation.frequent_words(Dictionary.load(str(corpus.binarised / "dict.txt")), 2 * SIZE))
    if words < SIZE:
        raise ValueError(f"{corpus.folder} has {words} words to make clusters of {SIZE} of; give a larger text")


def plot_weights(corpus: Corpus, profile: str, folder: Path) -> None:
    """Of all mixtures in ``linear_weight.json`` on this corpus."""
    this = (corpus.name, corpus.fingerprint, profile)
    figures = results.load(folder / "linear_weight.json")
    figures = [f for f in figures if (f["corpus"], f["provenance"]["data"], f["profile"]) == this]
    several = len({f["seed"] for f in figures}) > 1
    shown = data_frame(figures, load_table("table3"))
    names = shown.name + (" seed " + shown.seed.astype(str) if several else "")
    named = dict(zip(names, shown.details))
    linear_weight.plot(named, folder / f"linear_weight-{corpus.name}-{profile}.svg")


class Analysis(NamedTuple):
    """What is made of trained models.

    Args:
        make: it.
        plot: of all that was made on a corpus, now and before.
        check: of a corpus; raises ValueError where it can't be made.
        against_lin: whether it compares with lin, of which further seeds are the control; else mixtures alone matter.
    """

    make: Callable
    plot: Optional[Callable]
    check: Optional[Callable]
    against_lin: bool


ANALYSES = {
    "table4": Analysis(table4, None, check_clusters, against_lin=True),
    "linear_weight": Analysis(weights, plot_weights, None, against_lin=False),
}


def checkpoint(work: Work) -> Path:
    return work.run.folder / "checkpoint_best.pt"


def usable(work: Work) -> bool:
    """Whether its checkpoint is there and whole; if not, that is said."""
    whole = zipfile.is_zipfile(checkpoint(work))
    if not whole:
        advice = f"move {work.run.folder} away to train it again"
        say(f"{work.label}: left out, as {checkpoint(work)} is missing or damaged; {advice}")
    return whole


def train(analysis: Analysis, table, rows, args) -> List[Workflow]:
    """The models, as one table; those of other seeds as another where lin alone is needed of them."""
    first, *others = args.seeds
    if not (analysis.against_lin and others):
        return [run_table(table, rows, args)]
    args.seeds = [first]
    workflows = [run_table(table, rows, args)]
    args.seeds = others
    return [*workflows, run_table(table, table.chosen([BASELINE]), args)]


def main() -> None:
    name, table = sys.argv[1], load_table("table3")
    analysis = ANALYSES[name]
    with one_line_errors():
        args = parse(sys.argv[1:])
        mixtures = [row for row in table.chosen(args.rows) if row.name != BASELINE]
        rows = [*table.chosen([BASELINE]), *mixtures] if analysis.against_lin else mixtures
        if not rows:
            choice = " ".join(row.name for row in table.rows if row.name != BASELINE)
            raise ValueError(f"--rows {' '.join(args.rows)} has no mixture; choose from {choice}")
        for corpus in map(Corpus.at, args.data):
            if corpus.kind != "lm":
                raise ValueError(f"{corpus.folder} is {KINDS[corpus.kind]}; give {KINDS['lm']}, for a language model")
            if analysis.check is not None:
                analysis.check(corpus)
        path = args.results / f"{name}.json"
        results.load(path)
    first = args.seeds[0]
    with interruptible(args.program):
        with one_line_errors():
            workflows = train(analysis, table, rows, args)
        failed = [label for workflow in workflows for label in workflow.failed]
        trained = [work for workflow in workflows for work in workflow.done]
        models = [work for work in trained if usable(work)]
        failed += [work.label for work in trained if work not in models]
        for corpus in {work.run.corpus.name: work.run.corpus for work in trained}.values():
            here = {
                work.row.name + ("" if work.run.seed == first else f" seed {work.run.seed}"): work
                for work in models
                if work.run.corpus.name == corpus.name
            }
            try:
                analyse(analysis, corpus, here, path, args)
            except (SystemExit, ValueError, OSError) as error:  # it must not end the other corpora's
                say(f"{name} on {corpus.name}: failed: {error}")
                failed.append(f"{name} on {corpus.name}")
    end(args.program, failed)


def analyse(analysis: Analysis, corpus: Corpus, models: Models, path: Path, args: argparse.Namespace) -> None:
    """Puts what is made of one corpus' models into the results file."""
    if not models or (analysis.against_lin and BASELINE not in models):
        say(f"{path.stem} on {corpus.name}: left out, as the models that it needs failed")
        return
    command, analysed = shlex.join(["bash", f"scripts/{args.program}", *sys.argv[2:]]), {"analysis_commit": commit()}

    def figure(work: Work, **values) -> Dict:
        origin = {**work.run.finished()["provenance"], **analysed}
        return results.figure(work.row, work.run, origin, command, **values, paper=None)

    say(f"{path.stem} on {corpus.name}")
    models = dict(sorted(models.items(), key=lambda item: item[0] != BASELINE))  # lin is the first
    figures = analysis.make(corpus, models, figure, args.results)
    results.add(path, figures, [row.name for row in load_table("table3").rows])
    if analysis.plot is not None:
        analysis.plot(corpus, args.profile, args.results)


if __name__ == "__main__":
    main()
