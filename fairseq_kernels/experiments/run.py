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
import os
import re
import shlex
import statistics
import subprocess
import sys
from argparse import ArgumentParser
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import torch
from fairseq import options
from fairseq.checkpoint_utils import load_model_ensemble
from fairseq.data import data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.sequence_scorer import SequenceScorer
from fairseq_cli import eval_lm, generate

from ..analysis import top10_error, word_similarity
from ..analysis.bleu import sacrebleu_of, sentence_counts
from ..analysis.measurement import provenance
from ..analysis.training_log import read_curves
from ..checkpoint import load, task_settings
from ..errors import PREFIX, explanation
from ..logs import log_as_fairseq
from ..output_layers import GeneralizedSoftmax
from ..whole_files import write_json
from ..word_counts import unigram_perplexities
from .corpus import Corpus
from .profiles import import_user_dir, training_settings
from .tables import Settings, settings_of, words_of

USER_DIR = str(Path(__file__).resolve().parents[1])
SECONDS = 5.0  # between two lines of progress
SAID = re.compile(r"\| (?:INFO \| fairseq_kernels\.\S*checkpoints?|WARNING \| fairseq_kernels\.\S+) \| (.*)")
STEP = re.compile(  # of the log: updates of an epoch, perplexity, updates a second, updates made
    r"train_inner \| epoch \d+: +\d+ / (\d+) .* ppl=([^,]+),.* ups=([\d.]+),.* num_updates=(\d+),"
)
# fairseq-generate and eval-lm share a text out among the GPUs that they see: one has it all. A process for the data
# would be waited for, five seconds, when Python frees fairseq's reference cycles.
SHARED = ("--required-batch-size-multiple", "1", "--distributed-world-size", "1", "--num-workers", "0")

Figures = Tuple[List[Dict], List[List[float]]]  # metrics, and what each line adds to them


class Failed(Exception):
    """A training or an evaluation went wrong; the message says why."""


@dataclass(frozen=True)
class Run:
    """A training, and where its files are.

    Args:
        corpus: the data.
        row: the name in a table.
        profile: a name in ``configs/lm`` or ``configs/mt``.
        seed: of fairseq-train.
        options: the row's, and those after ``--``.
        root: the folder of all runs.
        user_dir: the package with the kernels.
        unigram: no training: the words' frequencies.
        measures: what is measured of the trained model, ``top10_error``, or ``simlex:FILE``.
    """

    corpus: Corpus
    row: str
    profile: str
    seed: int
    options: Settings
    root: Path
    user_dir: str = USER_DIR
    unigram: bool = False
    measures: Sequence[str] = ()

    @property
    def label(self) -> str:
        return f"{self.row} on {self.corpus.name}, seed {self.seed}"

    def arguments(self) -> List[str]:
        """fairseq-train's without seed, places and device."""
        settings = {} if self.unigram else training_settings(self.corpus.kind, self.profile, self.options)
        return words_of({name: value for name, value in settings.items() if name != "seed"})

    @functools.cached_property
    def key(self) -> str:
        """8 hexadecimal digits that other arguments or other data change."""
        text = "\0".join([*self.arguments(), self.corpus.trained_on])
        return hashlib.sha256(text.encode()).hexdigest()[:8]

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
        """The command that trains the same."""
        folder = self.corpus.folder
        folder = Path("data", folder.name) if folder.is_absolute() else folder  # it would tell of the machine
        if self.unigram:
            return ["bash", "scripts/table.sh", "table1", str(folder), "--rows", "unigram"]
        words = [*words_of(self.options), "--seed", str(self.seed)]
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

    def execute(self) -> None:
        """Trains, or goes on training, evaluates and measures what the record lacks.

        Raises:
            Failed: the training did.
        """
        record = self.record() or self.made()
        known = {figure["metric"] for figure in record["metrics"]}
        for name, _, path in (measure.partition(":") for measure in self.measures):
            if name not in known:
                record["metrics"] += self.measured(name, Path(path))
        write_json(self.folder / "result.json", record)

    def made(self) -> Dict:
        """The record of what is trained and evaluated now."""
        corpus, lines, trained, curves = self.corpus, {}, {}, {}
        if self.unigram:
            values = unigram_perplexities(corpus.binarised)
            metrics = [{"split": split, "metric": "ppl", "value": values[split]} for split in ("valid", "test")]
        else:
            settings = {**self.options, "seed": str(self.seed)}
            train(training(corpus, self.profile, settings, self.folder, self.user_dir), self.folder, f"{self.label}: ")
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
        weights = {name: pairs(inner[name]) for name in inner if name.startswith("pi_") and "variance" not in name}
        curves = {"train": pairs(inner.get("ppl", {})), "valid": pairs(valid.get("ppl", {})), "weights": weights}
        return trained, figures, curves

    def measured(self, name: str, path: Path) -> List[Dict]:
        """The figures of a measure of the trained model."""
        data = self.corpus.binarised
        if name == "simlex":
            values = word_similarity.simlex(data, self.best, word_similarity.read_pairs(path))
            return [{"split": "SimLex-999", "metric": name, "value": round(values.pop("correlation"), 4), **values}]
        values = {split: top10_error.top10_error(data, self.best, split) for split in ("valid", "test")}
        return [{"split": split, "metric": name, "value": round(value, 4)} for split, value in values.items()]


def pairs(curve: Dict[int, float]) -> List[List[float]]:
    """``[update, value]``; JSON has no infinity."""
    return [[update, value] for update, value in curve.items() if math.isfinite(value)]


# fairseq's commands


def device() -> List[str]:
    # a process for the data would be waited for, five seconds at the end of an epoch or validation
    return [] if torch.cuda.is_available() else ["--cpu", "--num-workers", "0"]


def training(corpus: Corpus, profile: str, settings: Settings, folder: Path, user_dir: str) -> List[str]:
    """All arguments of fairseq-train."""
    places = [str(corpus.binarised), "--user-dir", user_dir, "--save-dir", str(folder)]
    return [*places, *device(), *words_of(training_settings(corpus.kind, profile, settings))]


def train(arguments: List[str], folder: Path, label: str = "") -> None:
    """Runs fairseq-train, or continues it; a finished training stays as it is, another process' is waited for. Lines of
    progress begin with ``label``.

    Raises:
        Failed: it ended with an error, or diverged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log, code, seconds_per_update = folder / "train.log", None, []
    with open(folder / "lock", "w") as lock, open(log, "a") as output, open(log, errors="replace") as new:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the training has it, too: it is held until both have ended
        new.seek(0, os.SEEK_END)
        command = [sys.executable, "-W", "ignore", "-m", "fairseq_cli.train", *arguments]
        process = subprocess.Popen(command, stdout=output, stderr=output, pass_fds=[lock.fileno()])
        try:
            while code is None:
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(SECONDS)
                for line in news(new.read(), settings_of(arguments[1:]), seconds_per_update):
                    print(f"{label}{line}", flush=True)
        finally:  # nothing is left that runs
            process.kill()
            process.wait()
    perplexities = list(read_curves(log, "valid").get("ppl", {}).values())
    if code:
        last = log.read_text(errors="replace").strip().rpartition("\n")[2].removeprefix(PREFIX)
        raise Failed(f"{last} (fairseq-train ended with {code}; log: {log})")
    if not all(map(math.isfinite, perplexities[-1:])):
        raise Failed(f"the training diverged; give a lower --lr or --clip-norm, and another --save-dir (log: {log})")


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


# evaluation


def call(command: Callable[..., Any], parser: ArgumentParser, arguments: List[str], log: Path, *further: Any) -> Any:
    """Calls a command of fairseq's with the configuration of these arguments and returns what it does; its output goes
    to ``log``."""
    try:
        with open(log, "w") as output, redirect_stdout(output), redirect_stderr(output):
            log_as_fairseq(logging.INFO)
            configuration = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))
            return command(configuration, *further)
    finally:
        log_as_fairseq(logging.WARNING)


def perplexity(corpus: Corpus, checkpoint: str, split: str, place: Path, further: Sequence[str] = ()) -> Figures:
    """Perplexity of a language model by fairseq-eval-lm, ``</s>`` and ``<unk>`` counted, in blocks of as many words as
    in the model's training; and tokens and nats of each line. The output goes to ``PLACE.log``.

    Raises:
        Failed: words were left out.
    """
    length = task_settings(load(Path(checkpoint))).get("tokens_per_sample") or 35
    arguments = [
        *(str(corpus.binarised), "--task", "language_modeling", "--path", checkpoint, "--gen-subset", split),
        *("--sample-break-mode", "none", "--tokens-per-sample", str(length), "--batch-size", str(1120 // length or 1)),
        *(*SHARED, *device(), *further),
    ]
    blocks: Dict[int, Tuple] = {}

    class Scorer(SequenceScorer):
        """Keeps what eval_lm adds up."""

        def generate(self, models, sample, **kwargs):
            hypotheses = super().generate(models, sample, **kwargs)
            for block, [best] in zip(sample["id"].tolist(), hypotheses):
                blocks[block] = best["tokens"].cpu() == self.eos, best["positional_scores"].cpu().double()
            return hypotheses

    eval_lm.SequenceScorer = Scorer
    result = call(eval_lm.main, options.get_eval_lm_parser(), arguments, Path(f"{place}.log"))
    ends, log_p = (torch.cat(parts) for parts in zip(*(blocks[block] for block in sorted(blocks))))
    lines = log_p.tensor_split(ends.nonzero().flatten() + 1)
    text = data_utils.load_indexed_dataset(str(corpus.binarised / split))
    if len(log_p) != text.sizes.sum():  # fairseq leaves out blocks that are too long
        seen = f"{len(log_p):,} of {text.sizes.sum():,} words of {split}"
        raise Failed(f"only {seen} were evaluated; leave out the options that exclude words")
    figure = {"split": split, "metric": "ppl", "value": round(float(result["perplexity"]), 4), "tokens": len(log_p)}
    return [figure], [[len(line), round(-float(line.sum()), 3)] for line in lines if len(line)]


def bleu(corpus: Corpus, checkpoints: str, split: str, place: Path, further: Sequence[str] = ()) -> Figures:
    """BLEU of one decoding with beam 5 by a translation model, or by an ensemble separated by ``:``. It is fairseq's
    tokenised BLEU4, comparable with the papers', detokenised sacreBLEU with its signature, and tokenised BLEU-1 and -2;
    and the BLEU counts of each sentence. The decoding goes to ``PLACE.gen``.
    """
    reference, generated = corpus.reference(split), Path(f"{place}.gen")
    text = corpus.folder / f"{split}.{corpus.target}"
    words = text.read_text(encoding="utf-8", errors="replace").split("\n") if text.is_file() else []
    pieces = any(words) and all(line.startswith("▁") for line in words if line)  # sentencepiece's
    arguments = [
        *(str(corpus.binarised), "--task", "translation", "--path", checkpoints),
        *("--gen-subset", split, f"--remove-bpe={'sentencepiece' if pieces else 'subword_nmt'}", "--beam", "5"),
        *("--max-tokens", "8000", *SHARED, *device(), *further),
    ]

    parser, log = options.get_generation_parser(), Path(f"{place}.log")
    with open(generated, "w", encoding="utf-8") as output:
        scorer = call(generate._main, parser, arguments, log, output)
    score, signature = sacrebleu_of(generated, reference, corpus.target)
    return [
        {"split": split, "metric": "bleu", "value": round(scorer.score(), 2)},
        {"split": split, "metric": "sacrebleu", "value": round(score, 2), "signature": signature},
        *({"split": split, "metric": f"bleu{order}", "value": round(scorer.score(order), 2)} for order in (1, 2)),
    ], sentence_counts(generated)


EVALUATIONS = {"lm": perplexity, "mt": bleu}


def main() -> None:
    log_as_fairseq(logging.WARNING)
    values = json.loads(sys.argv[1])
    places = {"corpus": Corpus.at(Path(values["corpus"]["folder"])), "root": Path(values["root"])}
    run = Run(**{**values, **places})
    try:
        import_user_dir(run.user_dir)
        run.folder.mkdir(parents=True, exist_ok=True)
        run.execute()
    except (Exception, SystemExit) as error:
        why = explanation(error) or str(error).removeprefix(PREFIX)
        print(f"{run.label}: failed: {why}", flush=True)
        raise


if __name__ == "__main__":
    main()
