"""One training with its evaluation, in a folder of its own: from settings to fairseq-train to ``result.json``.

``python -m fairseq_kernels.experiments.run`` is one run of a table, as the Snakefile starts it.
"""

import datetime
import fcntl
import functools
import hashlib
import json
import logging
import math
import multiprocessing
import os
import re
import shlex
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Tuple

from ..analysis.curves import read_curves
from ..errors import PREFIX, explanation
from ..logs import log_as_fairseq
from ..whole_files import write_json, write_text
from .corpus import Corpus
from .profiles import training_settings
from .tables import Settings, settings_of, words_of

USER_DIR = str(Path(__file__).resolve().parents[1])
SECONDS = 5.0  # between two lines of progress
POINTS = 100  # at most, of a training's curves in its record
SAID = re.compile(r"\| (?:INFO \| fairseq_kernels\.\S*checkpoints?|WARNING \| fairseq_kernels\.\S+) \| (.*)")
STEP = re.compile(  # of the log: updates of an epoch, perplexity, updates a second, updates made
    r"train_inner \| epoch \d+: +\d+ / (\d+) .* ppl=([^,]+),.* ups=([\d.]+),.* num_updates=(\d+),"
)


class Failed(Exception):
    """A training or an evaluation went wrong; the message says why."""


@dataclass(frozen=True)
class Run:
    """A training, and where its files are."""

    corpus: Corpus
    row: str  # the name in a table
    profile: str  # a name in configs/lm or configs/mt
    seed: int  # of fairseq-train
    options: Settings  # the row's, and those after --
    root: Path  # the folder of all runs
    user_dir: str = USER_DIR  # the package with the kernels
    unigram: bool = False  # no training: the words' frequencies
    measures: Sequence[str] = ()  # of the trained model: top10_error, or simlex:FILE

    @property
    def label(self) -> str:
        return f"{self.row} on {self.corpus.name}, seed {self.seed}"

    def arguments(self) -> List[str]:
        """fairseq-train's without seed, places and device."""
        settings = {} if self.unigram else training_settings(self.corpus.kind, self.profile, self.options)
        return words_of({name: value for name, value in settings.items() if name != "seed"})

    @functools.cached_property
    def key(self) -> str:
        """8 hexadecimal digits that other arguments, other data or other code of the user's change."""
        own = () if self.user_dir == USER_DIR else sorted(Path(self.user_dir).rglob("*.py"))
        text = "\0".join([*self.arguments(), self.corpus.trained_on]).encode()
        return hashlib.sha256(b"".join([text, *(path.read_bytes() for path in own)])).hexdigest()[:8]

    @functools.cached_property
    def folder(self) -> Path:
        """``CORPUS/PROFILE/ROW-key/seedN``; that of another table's row where it has the same settings."""
        corpus, row = (re.sub(r"[^\w=.,+-]+", "_", name)[:100] for name in (self.corpus.name, self.row))
        rows = self.root / corpus / self.profile
        same = sorted(rows.glob(f"*-{self.key}"))
        return (same[0] if same else rows / f"{row}-{self.key}") / f"seed{self.seed}"

    @property
    def best(self) -> Path:
        return self.folder / "checkpoint_best.pt"

    def command(self) -> List[str]:
        """The command that trains the same; it doesn't tell where things are on this machine."""
        folder = Path("data", self.corpus.folder.name) if self.corpus.folder.is_absolute() else self.corpus.folder
        if self.unigram:
            return ["bash", "scripts/table.sh", "table1", str(folder), "--rows", "unigram"]
        words = [*words_of(self.options), "--seed", str(self.seed)]
        words += [] if self.user_dir == USER_DIR else ["--user-dir", Path(self.user_dir).name]
        return ["bash", f"scripts/train_{self.corpus.kind}.sh", str(folder), "--profile", self.profile, *words]

    def record(self) -> Dict:
        """The contents of ``result.json``; empty where there is none, or the test set was another."""
        path = self.folder / "result.json"
        record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return record if record and record["made"]["data"] == self.corpus.fingerprint else {}

    def is_done(self) -> bool:
        """Whether the record has all figures, those of the measures, too."""
        known = {figure["metric"] for figure in self.record().get("metrics", ())}
        return bool(known) and known.issuperset(measure.partition(":")[0] for measure in self.measures)

    def execute(self, quiet: bool = False) -> None:
        """Trains, or goes on training, evaluates and measures what the record lacks; ``quiet``: without progress."""
        from .commands import import_user_dir

        self.folder.mkdir(parents=True, exist_ok=True)
        import_user_dir(self.user_dir)
        record = self.record() or self.made(quiet)
        known = {figure["metric"] for figure in record["metrics"]}
        for name, _, path in (measure.partition(":") for measure in self.measures):
            if name not in known:
                record["metrics"] += self.measured(name, Path(path))
        write_json(self.folder / "result.json", record)

    def made(self, quiet: bool) -> Dict:
        """The record of what is trained and evaluated now."""
        from ..analysis.measurement import provenance
        from ..word_counts import unigram_perplexities
        from .commands import EVALUATIONS

        corpus, lines, trained, curves = self.corpus, {}, {}, {}
        if self.unigram:
            values = unigram_perplexities(corpus.binarised)
            metrics = [{"split": split, "metric": "ppl", "value": values[split]} for split in ("valid", "test")]
        else:
            settings = {**self.options, "seed": str(self.seed)}
            arguments = training(corpus, self.profile, settings, self.folder, self.user_dir)
            train(arguments, self.folder, f"{self.label}: ", quiet)
            metrics, evaluate = [], EVALUATIONS[corpus.kind]
            for split in ("valid", "test") if corpus.kind == "lm" else ("test",):
                figures, lines[split] = evaluate(corpus, str(self.best), split, self.folder / split)
                metrics += figures
            trained, weights, curves = self.trained()
            metrics += weights
            write_json(self.folder / "lines.json", lines)
        run = {"row": self.row, "corpus": corpus.name, "profile": self.profile, "seed": self.seed}
        made = {"argv": self.command(), "arguments": shlex.join(self.arguments()), "data": corpus.fingerprint}
        return {
            "run": {**run, "settings": self.options, "key": self.key},
            "made": {**made, **provenance(), **trained},
            "metrics": metrics,
            "parts": lines if corpus.kind == "mt" else {name: corpus.parts(name, lines[name]) for name in lines},
            "curves": curves,
        }

    def trained(self) -> Tuple[Dict, List[Dict], Dict]:
        """The record of the training: seconds, parameters, updates of the evaluated checkpoint, training perplexity
        (dropout on) of its epoch, learned hyper-parameters; figures of the mixture weights in its validation, and
        of a translation model the perplexity; curves by update."""
        from fairseq.checkpoint_utils import load_model_ensemble

        from ..checkpoint import load
        from ..output_layers import GeneralizedSoftmax

        log = self.folder / "train.log"
        inner, epochs, valid = (read_curves(log, kind) for kind in ("train_inner", "train", "valid"))
        checkpoint, last = load(self.best), load(self.folder / "checkpoint_last.pt")
        best = checkpoint["optimizer_history"][-1]["num_updates"]
        [model], _ = load_model_ensemble([str(self.best)], arg_overrides={"data": str(self.corpus.binarised)})
        layer = getattr(model, "output_layer_module", None)
        kernels = zip(layer.component_names(), layer.components()) if isinstance(layer, GeneralizedSoftmax) else ()
        learned = {f"{name}.{hyper}": float(value)
                   for name, kernel in kernels for hyper, value in kernel.learned().items()}  # fmt: skip
        trained = {
            "seconds": round(float(last["extra_state"]["previous_training_time"]), 1),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "updates": best,
            "train_ppl": next((ppl for update, ppl in epochs.get("ppl", {}).items() if update >= best), None),
            "learned": learned,
        }
        names = [name for name in valid if name.startswith("pi_") or name == "ppl" and self.corpus.kind == "mt"]
        figures = [{"split": "valid", "metric": name, "value": valid[name][best]} for name in names]
        train = inner.get("ppl", {})
        every = -(-len(train) // POINTS) or 1
        weights = {k: pairs(inner[k], every) for k in inner if k.startswith("pi_") and "variance" not in k}
        curves = {"train": pairs(train, every), "valid": pairs(valid.get("ppl", {})), "weights": weights}
        return trained, figures, curves

    def measured(self, name: str, path: Path) -> List[Dict]:
        """The figures of a measure of the trained model."""
        from ..analysis import top10_error, word_similarity

        data = self.corpus.binarised
        if name == "simlex":
            values = word_similarity.simlex(data, self.best, word_similarity.read_pairs(path))
            return [{"split": "SimLex-999", "metric": name, "value": round(values.pop("correlation"), 4), **values}]
        rate = functools.partial(top10_error.top10_error, data, self.best)
        return [{"split": split, "metric": name, "value": round(rate(split), 4)} for split in ("valid", "test")]


def pairs(curve: Dict[int, float], every: int = 1) -> List[List[float]]:
    """``[update, value]``, one of ``every`` so many; JSON has no infinity."""
    return [[update, value] for update, value in curve.items() if math.isfinite(value)][every - 1 :: every]


# training


def training(corpus: Corpus, profile: str, settings: Settings, folder: Path, user_dir: str) -> List[str]:
    """All arguments of fairseq-train."""
    from .commands import device

    places = [str(corpus.binarised), "--user-dir", user_dir, "--save-dir", str(folder)]
    return [*places, *device(), *words_of(training_settings(corpus.kind, profile, settings))]


def train(arguments: List[str], folder: Path, label: str = "", quiet: bool = False) -> None:
    """Runs fairseq-train, or continues it, in a forked process, as imports take seconds. A finished training stays as
    it is, another process' is waited for. Lines for the screen begin with ``label``; ``quiet`` leaves out progress."""
    from . import commands

    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "train.log"
    with open(folder / "lock", "a+") as lock:  # with the number of the process that has it
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            print(f"{label}waits for process {lock.read().strip()}, which trains in {folder}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        print(os.getpid(), file=lock, flush=True)
        progress = follow(log, settings_of(arguments[1:]), label)
        next(progress)
        process = multiprocessing.get_context("fork").Process(target=commands.train, args=(arguments, log, os.getpid()))
        process.start()  # it has the lock, too, which is held until both have ended
        try:
            while process.is_alive():
                process.join(SECONDS)
                quiet or next(progress)
        finally:  # nothing is left that runs
            process.kill()
            process.join()
    perplexities = list(read_curves(log, "valid").get("ppl", {}).values())
    if process.exitcode:
        last = log.read_text(errors="replace").strip().rpartition("\n")[2].removeprefix(PREFIX)
        raise Failed(f"{last} (fairseq-train ended with {process.exitcode}; log: {log})")
    if not all(map(math.isfinite, perplexities[-1:])):
        raise Failed(f"the training diverged; give a lower --lr or --clip-norm, and another --save-dir (log: {log})")


def follow(log: Path, settings: Settings, label: str = "") -> Iterator[None]:
    """Each step prints what is new in a training's log since the last one; the first one nothing."""
    place, seconds_per_update = log.stat().st_size if log.exists() else 0, []
    while True:
        yield
        text = log.read_bytes()[place:] if log.exists() else b""
        text = text[: text.rfind(b"\n") + 1]
        place += len(text)
        for line in news(text.decode(errors="replace"), settings, seconds_per_update):
            print(f"{label}{line}", flush=True)


def news(text: str, settings: Settings, seconds_per_update: List[float]) -> Iterator[str]:
    """Lines for the screen about new lines of a log. ``seconds_per_update`` gets one more figure for each of them."""
    yield from SAID.findall(text)
    steps = STEP.findall(text)
    seconds_per_update += [1 / max(float(speed), 0.01) for _, _, speed, _ in steps]
    for length, perplexity, _, update in steps[-1:]:
        total = int(settings.get("max_update", 0)) or int(settings.get("max_epoch", 0)) * int(length)
        mean = statistics.fmean(seconds_per_update[1:] or seconds_per_update)  # the first has the start of the process
        place = f"{update} of {total}" if total else update
        left = f", {datetime.timedelta(seconds=round(mean * (total - int(update))))} left" if total else ""
        yield f"update {place}, training perplexity {perplexity}{left}"


def main() -> None:
    log_as_fairseq(logging.WARNING)
    values = json.loads(sys.argv[1])
    places = {"corpus": Corpus.at(Path(values["corpus"]["folder"])), "root": Path(values["root"])}
    run = Run(**{**values, **places})
    try:
        run.execute(quiet=True)
    except (Exception, SystemExit) as error:  # the table's command, maybe on another machine, says it
        why = explanation(error) or str(error).removeprefix(PREFIX)
        write_text(run.folder / "failed", f"{run.label}: failed: {why}")
        raise


if __name__ == "__main__":
    main()
