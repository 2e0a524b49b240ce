"""One training with its evaluation, in a folder of its own: begun once, continued after an interruption, done once."""

import hashlib
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from filelock import FileLock

from ..analysis.measurement import commit, provenance
from ..analysis.model_state import learned_values, load, model_state, updates
from ..analysis.training_log import read_curves
from ..word_counts import unigram_perplexities
from . import training
from .commands import Failed, last_line
from .data import Corpus
from .evaluation import EVALUATIONS
from .files import read_json, write_json
from .profiles import difference, fairseq_arguments, option_value, parsed
from .tables import MEASURES

PARAMETERS = re.compile(r"num\. (?:shared )?model params: ([\d,]+)")

Curves = Dict[str, Dict[int, float]]  # by statistic and update


@dataclass(frozen=True)
class Run:
    """What is trained, and where.

    Args:
        corpus: the data.
        profile: a name in ``configs/lm`` or ``configs/mt``.
        options: of the training script, which tell one run from another.
        seed: of fairseq-train.
        root: the folder under which all runs have theirs.
    """

    corpus: Corpus
    profile: str
    options: Tuple[str, ...]
    seed: int
    root: Path

    @property
    def folder(self) -> Path:
        options = " ".join(self.options).replace("--kernels ", "").replace("--", "")
        name = re.sub(r"[^\w=.,*-]+", "_", options).strip("_")
        if len(name) > 200:  # a file's name has 255 bytes at most
            name = f"{name[:190]}-{hashlib.sha256(options.encode()).hexdigest()[:9]}"
        return self.root / self.corpus.name / self.profile / name / f"seed{self.seed}"

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    @property
    def log(self) -> Path:
        return self.folder / "train.log"

    def lock(self) -> FileLock:
        """Held by the process that trains or evaluates; raises ``filelock.Timeout`` at once where another has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder / training.LOCK, timeout=0)

    def training(self) -> List[str]:
        """The command that trains."""
        script, data = f"scripts/train_{self.corpus.kind}.sh", str(self.corpus.binarised)
        settings = ["--profile", self.profile, *self.options, "--seed", str(self.seed)]
        return ["bash", script, data, *settings, "--save-dir", str(self.folder)]

    def evaluation(self, split: str) -> List[str]:
        """The command that evaluates the best checkpoint."""
        data = self.corpus.binarised if self.corpus.kind == "lm" else self.corpus.folder
        script = f"scripts/evaluate_{self.corpus.kind}.sh"
        return ["bash", script, str(data), str(self.folder / "checkpoint_best.pt"), "--gen-subset", split]

    def command(self, *measurement: Sequence[str]) -> str:
        """What makes a figure: the training, and what is measured of it."""
        return "; ".join(map(shlex.join, (self.training(), *measurement)))

    def arguments(self) -> str:
        """fairseq-train's, but for places and device."""
        own = (*self.options, "--seed", str(self.seed))
        return shlex.join(fairseq_arguments(self.corpus.kind, self.profile, own))

    def check(self, known: Mapping, what: str) -> None:
        """
        Raises:
            ValueError: what is in the folder is of other data, options or settings of the profile.
        """
        differs = difference(known.get("arguments", ""), self.arguments()) if "arguments" in known else ""
        if known["data"] != self.corpus.fingerprint:
            differs = f"data {known['data']}, {self.corpus.folder} is {self.corpus.fingerprint}"
        if differs:
            raise ValueError(f"{self.folder} {what} {differs}; name another --save-dir, or move that folder away")

    def finished(self) -> Optional[Dict]:
        """What :meth:`execute` has found, or None; damaged, it is moved aside.

        Raises:
            ValueError: the folder is of other data or settings.
        """
        if not self.result.is_file():
            return None
        try:
            record = read_json(self.result)
            record["provenance"]["data"], record["metrics"]
        except (ValueError, LookupError, TypeError):
            self.result.replace(self.result.with_suffix(".damaged"))
            return None
        self.check(record["provenance"], "was trained on")
        return record

    def begin(self) -> Dict:
        """What the training was begun with: ``data``, ``arguments`` and ``commit``; written down the first time, and
        again where nothing of a training is left.

        Raises:
            ValueError: the folder holds a run of other data or settings.
        """
        start = self.folder / "start.json"
        if start.is_file():
            begun = read_json(start, "data", "arguments", "commit")
            self.check(begun, "was begun on")
        if not start.is_file() or not any(self.folder.glob("checkpoint*.pt")):
            begun = {"data": self.corpus.fingerprint, "arguments": self.arguments(), "commit": commit()}
            write_json(start, begun)
        return begun

    def execute(self, label: str = "") -> None:
        """Trains, or goes on training, and evaluates in this process, which must hold the lock; ``label`` begins the
        lines of its progress.

        Raises:
            Failed: a command did.
            ValueError: as :meth:`begin`.
        """
        begun = self.begin()
        training.check_data(self.corpus, self.folder)  # which evaluations by hand compare theirs with
        # an optimizer that the profile has changed since can't read the other's state
        optimizer = option_value(shlex.split(begun["arguments"]), "--optimizer")
        own = (*self.options, "--seed", str(self.seed), "--optimizer", optimizer)
        training.train(training.command(self.corpus, self.profile, own, self.folder), self.folder, label)
        metrics = []
        for split in ("valid", "test") if self.corpus.kind == "lm" else ("test",):
            made = {"command": self.command(self.evaluation(split))}
            checkpoint, log = str(self.folder / "checkpoint_best.pt"), self.folder / f"{split}.out"
            for metric in EVALUATIONS[self.corpus.kind](self.corpus, checkpoint, split, log):
                metric.pop("words", None)
                metrics.append({**metric, **made})
        write_json(self.result, self.record(metrics, begun))

    def measurement(self, name: str, options: Sequence[str]) -> Tuple[List[str], Path]:
        """The command of one of ``MEASURES``, and the file for what it measures with these files."""
        files = [path for path in map(Path, options) if path.is_file()]
        digest = "".join("-" + hashlib.sha256(path.read_bytes()).hexdigest()[:9] for path in files)
        module, *flags = MEASURES[name]
        data, checkpoint = str(self.corpus.binarised), str(self.folder / "checkpoint_best.pt")
        return ["-m", module, data, checkpoint, *flags, *options], self.folder / f"{name}{digest}.json"

    def measure(self, name: str, options: Sequence[str]) -> None:
        """Measures the trained model, once.

        Raises:
            Failed: the measurement did.
        """
        arguments, path = self.measurement(name, options)
        if path.is_file():
            return
        log = self.folder / f"{name}.out"
        with open(log, "w") as out:
            code = subprocess.call([sys.executable, "-W", "ignore", *arguments], stdout=out, stderr=out)
        if code:
            raise Failed(f"{last_line(log)} (exit status {code}, log: {log})")
        # what libraries say at the end may come after it
        *_, measured = (line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("[{"))
        write_json(path, json.loads(measured))

    def measured(self, name: str, options: Sequence[str]) -> List[Dict]:
        """What :meth:`measure` has found; nothing if it has not been called."""
        arguments, path = self.measurement(name, options)
        metrics = read_json(path) if path.is_file() else []
        return [{**metric, "command": self.command(["python", *arguments])} for metric in metrics]

    def record(self, metrics: List[Dict], begun: Dict) -> Dict:
        self.log.touch()  # if it is lost
        training, valid = (read_curves(self.log, kind) for kind in ("train_inner", "valid"))
        best = updates(self.folder / "checkpoint_best.pt")
        if best not in valid.get("loss", ()) or not PARAMETERS.search(self.log.read_text(errors="replace")):
            raise Failed(f"{self.log}, which figures come from, is damaged; move {self.folder} away to train it anew")
        metrics = metrics + [
            {"split": "valid", "metric": name, "value": curve[best], "command": self.command()}
            for name, curve in valid.items()
            if name.startswith("pi_")
        ]
        threads = os.environ.get("OMP_NUM_THREADS", "")
        origin = provenance(int(threads) if threads.isdecimal() else None)
        if origin["commit"] != begun["commit"]:  # it was trained on, or evaluated, by other code
            origin["analysis_commit"] = origin["commit"]
        origin.update(begun, updates=max(valid["loss"]))
        last = load(self.folder / "checkpoint_last.pt")  # knows how long it took in all, interruptions left out
        origin["seconds"] = round(float(last["extra_state"]["previous_training_time"]), 1)
        trained = self.trained_how(training, valid, best)
        return {"metrics": metrics, "trained": trained, "provenance": origin, "curves": curves(training, valid)}

    def trained_how(self, training: Curves, valid: Curves, best: int) -> Dict:
        """What stands beside every figure of a run: parameters, updates of the evaluated checkpoint, training
        perplexity of the epoch it ended (dropout on), validation perplexities by update, words per second (median),
        learned hyper-parameters."""
        log = self.log.read_text(errors="replace")
        epochs = read_curves(self.log, "train")
        perplexities = epochs.get("ppl") or training.get("ppl", {})
        speeds = list((training.get("wps") or epochs.get("wps", {})).values())
        learned = learned_values(model_state(self.folder / "checkpoint_best.pt"))
        return {
            "updates": best,
            "parameters": int(PARAMETERS.search(log)[1].replace(",", "")),
            "train_ppl": next((ppl for update, ppl in perplexities.items() if update >= best), None),
            "valid_curve": [list(pair) for pair in valid.get("ppl", {}).items()],
            "words_per_second": statistics.median(speeds) if speeds else None,
            **({"learned": learned} if learned else {}),
        }


class UnigramRun(Run):
    """The perplexity of words drawn by their frequency in training, as a run without a training."""

    def arguments(self) -> str:
        return ""

    def execute(self, label: str = "") -> None:
        perplexities = unigram_perplexities(self.corpus.binarised)
        command = f"fairseq_kernels.word_counts.unigram_perplexities({str(self.corpus.binarised)!r})"
        shared = {"metric": "ppl", "command": command}
        metrics = [{"split": s, **shared, "value": perplexities[s]} for s in ("valid", "test") if s in perplexities]
        origin = {**provenance(), "data": self.corpus.fingerprint}
        write_json(self.result, {"metrics": metrics, "provenance": origin, "curves": {}})


def curves(training: Curves, valid: Curves) -> Dict[str, Curves]:
    """Perplexity in training and validation, and mixture weights in training, by update."""
    weights = {name: curve for name, curve in training.items() if name.startswith("pi_") and "variance" not in name}
    return {"train": {"ppl": training.get("ppl", {})}, "valid": {"ppl": valid.get("ppl", {})}, "weights": weights}


def check_extra(extra: Sequence[str], runs: Sequence[Run]) -> None:
    """Asks fairseq before the first training, where there are options after ``--``.

    Raises:
        SystemExit: one line: fairseq-train refuses them.
    """
    for run in runs if extra else ():
        if not isinstance(run, UnigramRun):
            parsed(["DATA", *shlex.split(run.arguments())])
