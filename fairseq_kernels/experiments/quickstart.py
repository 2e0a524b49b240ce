"""``scripts/quickstart.sh``: two texts, the models of ``configs/tables/quickstart.yaml``, what they have learned."""

import importlib
import json
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import List

from ..analysis import curves
from .corpus import Corpus
from .run import Run
from .tables import ROOT, load_table

END = """best possible perplexity of English given German: {:.3f}; the model, on validation text: {:.3f}
test BLEU4 {:.1f} (fairseq's, tokenised), sacreBLEU {:.1f}
Perplexity near the best possible one: the model has learned nearly all that the German tells of the English.

Next: text of your own (data-prep/prepare-text.sh --help), one model (scripts/train_lm.sh --help), a table of the paper
(scripts/table1.sh --help)"""


def prepare(*calls: List[str]) -> None:
    """Modules of ``data-prep/``, one after the other, with their arguments."""
    sys.path.insert(0, str(ROOT / "data-prep"))
    for sys.argv in calls:
        importlib.import_module(sys.argv[0]).main()


def main(folder: str) -> None:
    """Prepares, trains and evaluates in forked processes of a thread each, as many at a time as there are cores."""
    from .commands import die_with  # before the forks, as it takes seconds

    out, cores = Path(folder), len(os.sched_getaffinity(0))
    texts = [word for split in ("train", "valid", "test") for word in (f"--{split}", f"{out}/raw/{split}.txt")]
    english = ["python_topics", f"{out}/raw"], ["prepare_swb", "--out", f"{out}/lm", *texts]
    pool = ProcessPoolExecutor(cores, get_context("fork"), die_with, (os.getpid(),))  # no with: it would wait for all
    print("quickstart.sh: prepares text of Python's manual, and German and English; 20 seconds", flush=True)
    for prepared in [pool.submit(prepare, *english), pool.submit(prepare, ["toy_german", f"{out}/mt"])]:
        prepared.result()
    corpora = {kind: Corpus.at(out / kind) for kind in ("lm", "mt")}
    rows = load_table("quickstart").rows
    runs = [Run(corpora[row.kind], row.name, "cpu", 1, row.settings(), out / "runs") for row in rows]
    left = [run for run in runs if not run.is_done()]
    print(f"quickstart.sh: {len(left)} small models, {min(cores, 5)} at a time; on two cores 3 minutes", flush=True)
    list(pool.map(Run.execute, reversed(left)))  # what takes longest first
    pool.shutdown()
    show(out, runs)


def show(out: Path, runs: List[Run]) -> None:
    """Figures, sentences and curves."""
    *models, translation = runs
    value = {(run.row, m["split"], m["metric"]): m["value"] for run in runs for m in run.record()["metrics"]}
    unigram = json.loads((out / "lm" / "prepare.json").read_text(encoding="utf-8"))["result"]["splits"]
    best = json.loads((out / "mt" / "prepare.json").read_text(encoding="utf-8"))["result"]["valid"]
    print(f"\nLanguage models\n{'softmax':12} test perplexity\n{'unigram':12} {unigram['test']['perplexity']:.1f}")
    for run in models:
        print(f"{run.row:12} {value[run.row, 'test', 'ppl']:.1f}")
    print("stock and lin are the same model, so they agree. lin-tuned and 3xlin,log move the output matrix in larger\n"
          "steps (scores times 4): compare these two with each other. On so little text, a few percent mean nothing.")
    logs = {run.row: run.folder / "train.log" for run in models}
    curves.plot(logs, out / "curves.png", {"unigram": unigram["valid"]["perplexity"]})
    print(f"curves and mixture weights: {out / 'curves.png'}\n\nTranslation")
    generated = (translation.folder / "test.gen").read_text(encoding="utf-8")
    names = {"S": "  German     ", "T": "  reference  ", "H": "  model      ", "P": ""}
    for kind, text in re.findall(r"^([STHP])-[0-3]\t(?:-[^\t\n]*\t?)?(.*)", generated, re.M):
        print(f"{names[kind]}{text}")
    places = ("valid", "ppl"), ("test", "bleu"), ("test", "sacrebleu")
    print(END.format(best, *(value[translation.row, split, metric] for split, metric in places)))
