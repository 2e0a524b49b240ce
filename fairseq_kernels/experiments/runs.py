"""One training with its evaluation, in a folder of its own: begun once, continued after an interruption, done once."""

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..analysis.measurement import commit, provenance
from ..analysis.model_state import learned_values, model_state, training_seconds, updates
from ..analysis.training_log import read_curves
from .data import Corpus
from .files import read_json, write_json
from .tables import ROOT

TRAINED = "| done training in "  # in fairseq-train's log
POLL = 0.5  # seconds between two looks at a training
GRACE = 30  # seconds that a training has to end in, when it is stopped
PERPLEXITY = re.compile(r"Loss \(base 2\): \S+, Perplexity: ([\d.]+|inf|nan)")
PARAMETERS = re.compile(r"num\. (?:shared )?model params: ([\d,]+)")
BLEU = re.compile(r"tokenised \(fairseq\): .*BLEU4 = ([\d.]+)")
SACREBLEU = re.compile(r"detokenised \(sacreBLEU\): ([\d.]+)\s+(\S+)")


# modules that print what they measured of a language model as a list of objects
MEASURES = {
    "top10_error": ["fairseq_kernels.analysis.top10_error"],
    "simlex": ["fairseq_kernels.analysis.word_similarity", "--json"],
}

# arguments of fairseq-train that don't tell one run from another, and the words they take
UNTOLD = {
    **dict.fromkeys(("--save-dir", "--user-dir", "--log-format", "--log-interval", "--keep-interval-updates"), 2),
    **dict.fromkeys(("--cpu", "--no-epoch-checkpoints"), 1),
}

Curves = Dict[str, Dict[int, float]]  # by statistic and update


class Failed(Exception):
    """A training or an evaluation ended with an error; the message tells where its log is."""


class Pruned(Exception):
    """A training was stopped because it is hopeless."""


@dataclass(frozen=True)
class Run:
    """What is trained, and where.

    Args:
        corpus: the data.
        profile: ``cpu`` or ``paper``.
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
        told = " ".join(self.options).replace("--kernels ", "").replace("--", "")
        name = re.sub(r"[^\w=.,*-]+", "_", told).strip("_")
        if len(name) > 200:  # a file's name has 255 bytes at most
            name = f"{name[:190]}-{hashlib.sha256(told.encode()).hexdigest()[:9]}"
        return self.root / self.corpus.name / self.profile / name / f"seed{self.seed}"

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    @property
    def log(self) -> Path:
        return self.folder / "train.log"

    def training(self) -> List[str]:
        """The command that trains."""
        script = f"scripts/train_{self.corpus.kind}.sh"
        data = str(self.corpus.binarised)
        settings = ["--profile", self.profile, *self.options, "--seed", str(self.seed)]
        return ["bash", script, data, *settings, "--save-dir", str(self.folder)]

    def arguments(self) -> str:
        """fairseq-train's, but for places and what changes no training: what a profile stands for.

        Raises:
            Failed: the script refuses its options.
        """
        program, script, *options = [*self.training(), "--dry-run"]
        # what the scripts would look for, which takes seconds; the device isn't told apart
        found = {"PYTHON_BIN": sys.executable, "FOUND_PYTHON": sys.executable, "FOUND_DEVICE": "cpu"}
        command = [program, str(ROOT / script), *options]
        shown = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **found})
        if shown.returncode:
            raise Failed(shown.stderr.strip().splitlines()[-1])
        _, _, *words = shlex.split(shown.stdout)
        kept, position = [], 0
        while position < len(words):
            if words[position] in UNTOLD:
                position += UNTOLD[words[position]]
            else:
                kept.append(words[position])
                position += 1
        return shlex.join(kept)

    def check(self, known: Mapping, what: str) -> None:
        """
        Raises:
            ValueError: what is in the folder is of other data, options or settings of the profile.
        """
        data, arguments = self.corpus.fingerprint, self.arguments()
        told = None
        if known["data"] != data:
            told = f"data {known['data']}, {self.corpus.folder} is {data}"
        elif known.get("arguments", arguments) != arguments:  # older folders don't say
            told = f"other settings ({first_difference(known['arguments'], arguments)})"
        if told is not None:
            raise ValueError(f"{self.folder} {what} {told}; name another --save-dir, or move that folder away")

    def evaluation(self, split: str) -> List[str]:
        """The command that evaluates the best checkpoint."""
        data = self.corpus.binarised if self.corpus.kind == "lm" else self.corpus.folder
        script = f"scripts/evaluate_{self.corpus.kind}.sh"
        return ["bash", script, str(data), str(self.folder / "checkpoint_best.pt"), "--gen-subset", split]

    def command(self, *measurement: Sequence[str]) -> str:
        """What makes a figure: the training, and what is measured of it."""
        return "; ".join(map(shlex.join, (self.training(), *measurement)))

    def finished(self) -> Optional[Dict]:
        """What :meth:`execute` has found, or None.

        Raises:
            ValueError: the folder is of other data or settings.
        """
        if not self.result.is_file():
            return None
        found = read_json(self.result)
        self.check(found["provenance"], "was trained on")
        return found

    @contextmanager
    def locked(self) -> Iterator[Optional[int]]:
        """The lock's file descriptor while no other process has the folder; None where one has.

        Commands inherit it: a training that outlives its table keeps the folder until it ends.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
            else:
                yield lock
        finally:
            os.close(lock)

    def measured(self, name: str, options: Sequence[str], lock: int, environment: Dict[str, str], look) -> List[Dict]:
        """What one of ``MEASURES`` says of the trained model; measured once with the same files."""
        files = [path for path in map(Path, options) if path.is_file()]
        digest = "".join("-" + hashlib.sha256(path.read_bytes()).hexdigest()[:9] for path in files)
        path = self.folder / f"{name}{digest}.json"
        module, *flags = MEASURES[name]
        arguments = ["-m", module, str(self.corpus.binarised), str(self.folder / "checkpoint_best.pt")]
        arguments += [*flags, *options]
        if not path.is_file():
            output = self.folder / f"{name}.out"
            self.call([sys.executable, "-W", "ignore", *arguments], output, lock, environment, look)
            # what libraries say at the end may come after it
            [*_, found] = [line for line in output.read_text().splitlines() if line.startswith("[{")]
            write_json(path, json.loads(found))
        return [{**found, "command": self.command(["python", *arguments])} for found in read_json(path)]

    def begin(self) -> Dict:
        """What the training was begun with: ``data``, ``arguments`` and ``commit``; written down the first time.

        Raises:
            ValueError: the folder holds a run of other data or settings.
        """
        start = self.folder / "start.json"
        if start.is_file():
            begun = read_json(start)
            self.check(begun, "was begun on")
        else:
            begun = {"data": self.corpus.fingerprint, "arguments": self.arguments(), "commit": commit()}
            write_json(start, begun)
        return begun

    def train(self, lock: int, environment: Dict[str, str], look: Optional[Callable[[], bool]] = None) -> None:
        """The first half of :meth:`execute`."""
        mend_checkpoints(self.folder)
        if not self.trained():  # fairseq, started again at the end, would make an update more
            self.call(self.training(), self.folder / "train.out", lock, environment, look)

    def trained(self) -> bool:
        """Whether the training has come to its end, said so or not."""
        if self.log.is_file() and TRAINED in self.log.read_text(errors="replace"):
            return True
        last = self.folder / "checkpoint_last.pt"
        if not last.is_file():
            return False
        words = shlex.split(self.arguments())
        most = [int(words[place + 1]) for place, word in enumerate(words) if word == "--max-update"]
        return bool(most) and updates(last) >= most[-1]

    def execute(self, lock: int, environment: Dict[str, str], look: Optional[Callable[[], bool]] = None) -> Dict:
        """Trains, or goes on training, and evaluates.

        Args:
            lock: of :meth:`locked`.
            environment: added to the commands' environment: threads, devices.
            look: called now and then; True stops the training.

        Raises:
            Failed: a command did.
            Pruned: ``look`` has stopped the training.
        """
        begun = self.begin()
        self.train(lock, environment, look)
        metrics = []
        for split in ("valid", "test") if self.corpus.kind == "lm" else ("test",):
            output = self.folder / f"{split}.out"
            self.call(self.evaluation(split), output, lock, environment, look)
            found = self.read_metrics(split, output.read_text(errors="replace"))
            metrics += [{**metric, "command": self.command(self.evaluation(split))} for metric in found]
        record = self.record(metrics, environment, begun)
        write_json(self.result, record)
        return record

    def call(self, command, output: Path, lock, environment, look=None) -> None:
        program, script, *arguments = command
        script = str(ROOT / script) if program == "bash" else script
        with open(output, "w") as out:
            process = subprocess.Popen(
                [program, script, *arguments], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env={**os.environ, **environment}, pass_fds=[lock], start_new_session=True,
            )  # fmt: skip
            try:
                while True:
                    try:
                        code = process.wait(POLL)
                        break
                    except subprocess.TimeoutExpired:
                        if look is not None and look():
                            raise Pruned() from None
            finally:
                if process.poll() is None:  # Ctrl-C, or pruned
                    os.killpg(process.pid, signal.SIGTERM)
                    try:
                        process.wait(GRACE)
                    except subprocess.TimeoutExpired:
                        os.killpg(process.pid, signal.SIGKILL)
                        process.wait()
        if code < 0:  # SIGKILL: memory ran out, say
            raise Failed(f"ended by {signal.Signals(-code).name} (its log: {output})")
        if code:
            lines = [line for line in output.read_text(errors="replace").splitlines() if line.strip()]
            raise Failed(f"{lines[-1] if lines else 'no output'} (exit status {code}, all of it in {output})")

    def read_metrics(self, split: str, text: str) -> List[Dict]:
        found = []
        for metric, pattern in (("ppl", PERPLEXITY), ("bleu", BLEU), ("sacrebleu", SACREBLEU)):
            match = pattern.search(text)
            if match:
                found.append({"split": split, "metric": metric, "value": float(match[1])})
                if metric == "sacrebleu":
                    found[-1]["signature"] = match[2]
        if not found:
            raise Failed(f"no figure in {self.folder}/{split}.out")
        return found

    def record(self, metrics: List[Dict], environment: Dict[str, str], begun: Dict) -> Dict:
        training, valid = (read_curves(self.log, kind) for kind in ("train_inner", "valid"))
        best = updates(self.folder / "checkpoint_best.pt")
        metrics = metrics + [
            {"split": "valid", "metric": name, "value": curve[best], "command": self.command()}
            for name, curve in valid.items()
            if name.startswith("pi_")
        ]
        origin = provenance(int(environment.get("OMP_NUM_THREADS", 0)) or None)
        origin.update(begun, updates=max(valid["loss"]))
        origin["seconds"] = round(training_seconds(self.folder / "checkpoint_last.pt"), 1)
        trained = self.trained_how(training, valid, best)
        metrics = [{**metric, **trained} for metric in metrics]
        return {"metrics": metrics, "provenance": origin, "curves": curves(training, valid)}

    def trained_how(self, training: Curves, valid: Curves, best: int) -> Dict:
        """What stands beside every figure of a run: parameters, updates of the evaluated checkpoint, training
        perplexity of the epoch it ended (dropout on), validation perplexities by update, words per second (median),
        learned hyper-parameters."""
        log = self.log.read_text(errors="replace")
        epochs = read_curves(self.log, "train").get("ppl", {}) or training.get("ppl", {})
        speeds = list(training.get("wps", {}).values())
        learned = learned_values(model_state(self.folder / "checkpoint_best.pt"))
        return {
            "updates": best,
            "parameters": int(PARAMETERS.search(log)[1].replace(",", "")),
            "train_ppl": next((ppl for update, ppl in epochs.items() if update >= best), None),
            "valid_curve": [list(pair) for pair in valid.get("ppl", {}).items()],
            "words_per_second": statistics.median(speeds) if speeds else None,
            **({"learned": learned} if learned else {}),
        }


def first_difference(known: str, wanted: str) -> str:
    """Of two lists of arguments, in words."""
    there, here = (shlex.split(text) for text in (known, wanted))
    place = next((i for i, pair in enumerate(zip(there, here)) if pair[0] != pair[1]), min(len(there), len(here)))
    option = next((word for word in reversed(there[:place]) if word.startswith("--")), "")
    one, other = (" ".join(words[place : place + 1]) or "nothing" for words in (there, here))
    return f"after {option}: {one} in the place of {other}"


def curves(training: Curves, valid: Curves) -> Dict[str, Curves]:
    """Perplexity in training and validation, and mixture weights in training, by update."""
    weights = {name: curve for name, curve in training.items() if name.startswith("pi_") and "variance" not in name}
    return {"train": {"ppl": training.get("ppl", {})}, "valid": {"ppl": valid.get("ppl", {})}, "weights": weights}


def mend_checkpoints(folder: Path) -> None:
    """Replaces a checkpoint that was being copied when its training was killed: fairseq writes the first of an
    update's checkpoints whole or not at all, and copies it to the others."""
    copies = [folder / f"checkpoint_{name}.pt" for name in ("best", "last")]
    whole = [path for path in folder.glob("checkpoint_*.pt") if path not in copies and zipfile.is_zipfile(path)]
    newest = max(whole, key=lambda path: path.stat().st_mtime, default=None)
    for copy in copies:
        if copy.is_file() and not zipfile.is_zipfile(copy):
            source = newest or next((other for other in copies if zipfile.is_zipfile(other)), None)
            copy.unlink() if source is None else shutil.copyfile(source, copy)
