"""One training with its evaluation, in a folder of its own: from settings to fairseq-train to ``result.json``.

``python -m fairseq_kernels.experiments.run`` is one run of a table, as the Snakefile starts it.
"""

import argparse
import datetime
import functools
import hashlib
import logging
import math
import os
import re
import shlex
import signal
import statistics
import sys
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Sequence, TextIO, Tuple

import torch
from filelock import FileLock, Timeout

from ..analysis.measurement import commit, provenance
from ..analysis.training_log import read_curves, read_record
from ..checkpoint import load, task_settings
from ..errors import PREFIX, explanation
from ..logs import log_as_fairseq
from ..output_layers import GeneralizedSoftmax
from ..whole_files import read_json, write_json, write_text
from ..word_counts import unigram_perplexities
from .corpus import Corpus
from .profiles import Settings, import_user_dir, settings_of, training_settings, words_of
from .tables import ROOT

USER_DIR = str(Path(__file__).resolve().parents[1])
SECONDS = 5.0  # between two lines of progress
SAID = re.compile(r"\| (?:INFO \| fairseq_kernels\.\S*checkpoints?|WARNING \| fairseq_kernels\.\S+) \| (.*)")
PLACE = re.compile(r"\| train_inner \| epoch \d+: +\d+ / (\d+) ")  # updates of an epoch
STARTED = re.compile(r"^started at commit (\S+)$", re.MULTILINE)
# fairseq-generate and eval-lm share a text out among the GPUs that they see: one has it all. A process for the data
# would be waited for, five seconds, when Python frees fairseq's reference cycles.
SHARED = ("--required-batch-size-multiple", "1", "--distributed-world-size", "1", "--num-workers", "0")

Figures = Tuple[List[Dict], List[List[float]]]  # metrics, and what each line adds to them


class Failed(Exception):
    """A training or an evaluation ended with an error; the message says why, and where its log is."""


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
        unigram: no training: the words' frequencies.
    """

    corpus: Corpus
    row: str
    profile: str
    seed: int
    options: Settings
    root: Path
    unigram: bool = False

    @property
    def label(self) -> str:
        return f"{self.row} on {self.corpus.name}, seed {self.seed}"

    def arguments(self) -> List[str]:
        """fairseq-train's, but for seed, places and device."""
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
        own = rows / f"{row}-{self.key}"
        same = sorted(rows.glob(f"*-{self.key}"))
        return (same[0] if same and not own.exists() else own) / f"seed{self.seed}"

    @property
    def best(self) -> Path:
        return self.folder / "checkpoint_best.pt"

    def command(self) -> List[str]:
        """The command that trains the same."""
        folder = self.corpus.folder
        if folder.is_absolute():  # which tells of the machine
            folder = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else Path("data", folder.name)
        options = [*words_of(self.options), "--seed", str(self.seed)]
        if self.unigram:
            return ["bash", "scripts/table.sh", "table1", str(folder), "--rows", "unigram"]
        return ["bash", f"scripts/train_{self.corpus.kind}.sh", str(folder), "--profile", self.profile, *options]

    def record(self) -> Dict:
        """The contents of ``result.json``; empty where there is none, it is damaged, or the test set was another."""
        with suppress(OSError, ValueError, LookupError, TypeError):
            record = read_json(self.folder / "result.json")
            return record if record["made"]["data"] == self.corpus.fingerprint else {}
        return {}

    def execute(self, user_dir: str) -> None:
        """Trains, or goes on training, and evaluates in this process, which must hold the folder's lock.

        Raises:
            Failed: a command did.
        """
        corpus, lines = self.corpus, {}
        trained, curves = {}, {}
        if self.unigram:
            values = unigram_perplexities(corpus.binarised)
            metrics = [{"split": split, "metric": "ppl", "value": values[split]} for split in ("valid", "test")]
        else:
            corpus.check()
            settings = {**self.options, "seed": str(self.seed)}
            train(training(corpus, self.profile, settings, self.folder), self.folder, user_dir, self.label)
            metrics, evaluate = [], EVALUATIONS[corpus.kind]
            for split in ("valid", "test") if corpus.kind == "lm" else ("test",):
                figures, lines[split] = evaluate(corpus, [self.best], split, self.folder / split, user_dir)
                metrics += figures
            trained, weights, curves = self.trained()
            metrics += weights
            write_json(self.folder / "lines.json", lines)
        run = {"row": self.row, "corpus": corpus.name, "profile": self.profile, "seed": self.seed}
        made = {"argv": self.command(), "arguments": shlex.join(self.arguments()), "data": corpus.fingerprint}
        content = {
            "run": {**run, "settings": self.options, "key": self.key},
            "made": {**made, **provenance(), **trained},
            "metrics": metrics,
            "parts": lines if corpus.kind == "mt" else {name: corpus.parts(name, lines[name]) for name in lines},
            "curves": curves,
        }
        write_json(self.folder / "result.json", content)

    def trained(self) -> Tuple[Dict, List[Dict], Dict]:
        """The record of the training: commits, seconds, parameters, updates, training perplexity (dropout on) of the
        epoch of the evaluated checkpoint, words per second, learned hyper-parameters; figures of the mixture weights
        in its validation; curves by update.

        Raises:
            Failed: the log is not of this training.
        """
        from fairseq.checkpoint_utils import load_model_ensemble

        log = self.folder / "train.log"
        inner, epochs, valid = (read_curves(log, kind) for kind in ("train_inner", "train", "valid"))
        checkpoint, last = load(self.best), load(self.folder / "checkpoint_last.pt")
        best = checkpoint["optimizer_history"][-1]["num_updates"]
        if best not in valid.get("loss", ()):
            raise Failed(f"{log} has no validation of {self.best}; move {self.folder} away to train it anew")
        [model], _ = load_model_ensemble([str(self.best)], arg_overrides={"data": str(self.corpus.binarised)})
        layer = getattr(model, "output_layer_module", None)
        kernels = zip(layer.component_names(), layer.components()) if isinstance(layer, GeneralizedSoftmax) else ()
        learned = {f"{name}.{hyper}": float(value)
                   for name, kernel in kernels for hyper, value in kernel.learned().items()}  # fmt: skip
        perplexities = epochs.get("ppl") or inner.get("ppl", {})
        speeds = list((inner.get("wps") or epochs.get("wps", {})).values())
        started = STARTED.findall(log.read_text(errors="replace"))
        trained = {
            "commit": ", ".join(dict.fromkeys(started)),
            "seconds": round(float(last["extra_state"]["previous_training_time"]), 1),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "updates": best,
            "train_ppl": next((ppl for update, ppl in perplexities.items() if update >= best), None),
            "words_per_second": statistics.median(speeds) if speeds else None,
            "learned": learned,
        }
        names = [name for name in valid if name.startswith("pi_")]
        figures = [{"split": "valid", "metric": name, "value": valid[name][best]} for name in names]
        weights = {name: pairs(inner[name]) for name in inner if name.startswith("pi_") and "variance" not in name}
        curves = {"train": pairs(inner.get("ppl", {})), "valid": pairs(valid.get("ppl", {})), "weights": weights}
        return trained, figures, curves

    def measure(self, name: str, simlex: str) -> None:
        """Adds a measure of the trained model to ``result.json``."""
        from ..analysis import top10_error, word_similarity

        data = self.corpus.binarised
        if name == "simlex":
            values = word_similarity.simlex(data, self.best, word_similarity.read_pairs(Path(simlex)))
            figure = {"split": "SimLex-999", "metric": name, "value": round(values["correlation"], 4)}
            figures = [{**figure, "covered": values["covered"], "pairs": values["pairs"]}]
        else:
            values = {split: top10_error.top10_error(data, self.best, split) for split in ("valid", "test")}
            figures = [{"split": split, "metric": name, "value": round(value, 4)} for split, value in values.items()]
        record = self.record()
        record["metrics"] = [metric for metric in record["metrics"] if metric["metric"] != name] + figures
        write_json(self.folder / "result.json", record)


def pairs(curve: Dict[int, float]) -> List[List[float]]:
    """``[update, value]``; JSON has no infinity."""
    return [[update, value] for update, value in curve.items() if math.isfinite(value)]


# fairseq's commands


def device() -> List[str]:
    return [] if torch.cuda.is_available() else ["--cpu"]


def training(corpus: Corpus, profile: str, options: Settings, folder: Path) -> List[str]:
    """All arguments of fairseq-train."""
    # a process for the data would be waited for, five seconds at the end of an epoch or validation
    workers = [] if torch.cuda.is_available() else ["--num-workers", "0"]
    settings = training_settings(corpus.kind, profile, options)
    return [str(corpus.binarised), "--save-dir", str(folder), *device(), *workers, *words_of(settings)]


def train(arguments: List[str], folder: Path, user_dir: str, label: str = "") -> None:
    """Runs fairseq-train, or continues it; a finished training stays as it is. ``label`` begins the lines of progress,
    after the time of day.

    Raises:
        Failed: it ended with an error, or diverged.
    """
    log = folder / "train.log"
    with output_to(log, "a") as screen, progress(log, settings_of(arguments[1:]), screen, label):
        from fairseq_cli.train import cli_main

        print(f"started at commit {commit()}", flush=True)
        call(cli_main, arguments, log, user_dir)
    for update, value in list(read_curves(log, "valid").get("ppl", {}).items())[-1:]:
        if not math.isfinite(value):
            raise Failed(
                f"the training diverged: valid perplexity {value} after {update:,} updates; start anew elsewhere with "
                f"a lower --lr or --clip-norm, or less extreme --kernel-params (log: {log})"
            )


@contextmanager
def output_to(path: Path, mode: str) -> Iterator[TextIO]:
    """Sends the output of this process and of those that it starts to a file; yields the stream it went to before."""
    log_as_fairseq(logging.INFO)
    sys.stdout.flush()
    sys.stderr.flush()
    before = os.dup(1), os.dup(2)
    with open(path, mode) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        with os.fdopen(os.dup(before[0]), "w", buffering=1) as screen:
            yield screen
    finally:
        for stream, number, saved in zip((sys.stdout, sys.stderr), (1, 2), before):
            with suppress(OSError):  # a full disk
                stream.flush()
            os.dup2(saved, number)
            os.close(saved)
        log_as_fairseq(logging.WARNING)


def call(command: Callable[[], object], arguments: List[str], log: Path, user_dir: str) -> object:
    """Returns what ``command()`` does, with ``arguments`` on its command line; its output goes to ``log`` already.

    Raises:
        Failed: it ended with an error.
    """
    from .. import fairseq_plugin  # noqa: F401  (--user-dir leaves alone what is imported already)

    sys.argv = ["fairseq", *arguments, "--user-dir", str(user_dir)]
    try:
        return command()
    except SystemExit as end:
        if not end.code:
            return None
        why = end.code if isinstance(end.code, str) else log.read_text(errors="replace").strip().rpartition("\n")[2]
    except Exception as error:
        traceback.print_exc()
        why = explanation(error) or f"{type(error).__name__}: {error}"
    raise Failed(f"{' '.join(why.split()).removeprefix(PREFIX)} (log: {log})")


@contextmanager
def progress(log: Path, settings: Settings, screen: TextIO, label: str) -> Iterator[None]:
    """Every few seconds prints what the log has got: of all statistics the latest alone."""
    limits = (str(settings.get(name, "")) for name in ("max_update", "max_epoch"))
    updates, epochs = (int(limit) if limit.isdecimal() else 0 for limit in limits)
    done, place, first = threading.Event(), log.stat().st_size, None

    def lines() -> Iterator[str]:
        nonlocal place, first
        with open(log, "rb") as content:
            content.seek(place)
            whole, end, _ = content.read().rpartition(b"\n")
        place += len(whole + end)
        yield from SAID.findall(whole.decode(errors="replace"))
        for line in whole.decode(errors="replace").splitlines()[::-1]:
            (kind, values), epoch = read_record(line) or ("", {}), PLACE.search(line)
            if kind == "train_inner" and epoch:
                update, total = int(values["num_updates"]), updates or epochs * int(epoch[1])
                first = first or (update, time.monotonic())  # the speed is measured from here
                seconds = (time.monotonic() - first[1]) / max(1, update - first[0]) * max(0, total - update)
                left = f", {datetime.timedelta(seconds=round(seconds))} left" if update > first[0] and total else ""
                name = "ppl" if "ppl" in values else "loss"
                shown = f"training {'perplexity' if name == 'ppl' else name} {values.get(name, math.nan):.1f}"
                yield f"update {update} of {total or '?'}, {shown}{left}"
                break

    def show() -> None:
        ended = False
        with suppress(OSError, ValueError):  # the screen is closed: the training goes on
            while not ended:
                ended = done.wait(SECONDS)
                for line in lines():
                    print(f"{time.strftime('%H:%M:%S')} {label}: {line}" if label else line, file=screen)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


# evaluation


def evaluated(main: Callable, parser: Callable, arguments: List[str], log: Path, user_dir: str):
    """Calls a command of fairseq's with its configuration and returns what it does; its output goes to ``log``."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    def command():
        return main(convert_namespace_to_omegaconf(options.parse_args_and_arch(parser())))

    with output_to(log, "w"):
        return call(command, arguments, log, user_dir)


def perplexity(
    corpus: Corpus, checkpoints: Sequence[Path], split: str, place: Path, user_dir: str, options: Sequence[str] = ()
) -> Figures:
    """Perplexity of a language model by fairseq-eval-lm, ``</s>`` and ``<unk>`` counted, in blocks of 35 words at most,
    as the profiles train, or of the model's own length if that is less; and tokens and nats of each line. The output
    goes to ``PLACE.log``.

    Raises:
        Failed: fairseq-eval-lm did, words were left out, or the model gives no number.
    """
    from fairseq import options as fairseq_options
    from fairseq_cli import eval_lm

    [checkpoint] = checkpoints
    length = min(35, task_settings(load(checkpoint)).get("tokens_per_sample") or 35)
    arguments = [
        *(str(corpus.binarised), "--task", "language_modeling", "--path", str(checkpoint), "--gen-subset", split),
        *("--sample-break-mode", "none", "--tokens-per-sample", str(length), "--batch-size", "32"),
        *(*SHARED, *device(), *options),
    ]
    blocks: Dict[int, List] = {}

    class Scorer(eval_lm.SequenceScorer):
        """Keeps what eval_lm adds up."""

        def generate(self, models, sample, **kwargs):
            hypotheses = super().generate(models, sample, **kwargs)
            for block, [best] in zip(sample["id"].tolist(), hypotheses):
                ends = (best["tokens"] == self.eos).tolist()
                blocks[block] = list(zip(ends, best["positional_scores"].double().tolist()))
            return hypotheses

    log, stock, eval_lm.SequenceScorer = Path(f"{place}.log"), eval_lm.SequenceScorer, Scorer
    try:
        result = evaluated(eval_lm.main, fairseq_options.get_eval_lm_parser, arguments, log, user_dir)
    finally:
        eval_lm.SequenceScorer = stock
    lines, tokens, nats = [], 0, 0.0
    for end, log_p in (word for block in sorted(blocks) for word in blocks[block]):
        tokens, nats = tokens + 1, nats - log_p
        if end:
            lines.append([tokens, round(nats, 3)])
            tokens, nats = 0, 0.0
    lines += [[tokens, round(nats, 3)]] * bool(tokens)
    read, there = sum(tokens for tokens, _ in lines), corpus.tokens(split)
    if read != there:
        raise Failed(f"{read:,} of {there:,} words of {split} were evaluated; leave out options that choose among them")
    value = float(result["perplexity"])
    if not math.isfinite(value + sum(nats for _, nats in lines)):
        raise Failed(f"perplexity {value} on {split}: the model is broken, its training diverged (log: {log})")
    return [{"split": split, "metric": "ppl", "value": round(value, 4), "tokens": read}], lines


def bleu(
    corpus: Corpus, checkpoints: Sequence[Path], split: str, place: Path, user_dir: str, options: Sequence[str] = ()
) -> Figures:
    """BLEU of a translation model's one decoding with beam 5: fairseq's tokenised BLEU4, comparable with the papers',
    and detokenised sacreBLEU with its signature; and the BLEU counts of each sentence. The decoding goes to
    ``PLACE.gen``.

    Raises:
        Failed: fairseq-generate did.
        ValueError: there is no reference.
    """
    from fairseq import options as fairseq_options
    from fairseq_cli import generate

    from ..analysis.bleu import sacrebleu_of, sentence_counts

    target, reference = corpus.target(split), corpus.reference(split)
    if not target or not reference.is_file():
        known = " ".join(sorted(path.name for path in corpus.folder.glob("*.ref.*")))
        raise ValueError(f"no reference {reference}; subsets with one: {known or 'none'}")
    text = corpus.folder / f"{split}.{target}"
    words = text.read_text(encoding="utf-8", errors="replace").split("\n") if text.is_file() else []
    pieces = any(words) and all(line.startswith("▁") for line in words if line)  # sentencepiece's
    arguments = [
        *(str(corpus.binarised), "--task", "translation", "--path", ":".join(map(str, checkpoints))),
        *("--gen-subset", split, f"--remove-bpe={'sentencepiece' if pieces else 'subword_nmt'}", "--beam", "5"),
        *("--max-tokens", "8000", *SHARED, *device(), *options),
    ]
    generated = Path(f"{place}.gen")

    def decode(cfg):
        with open(generated, "w", encoding="utf-8") as output:
            return generate._main(cfg, output)

    scorer = evaluated(decode, fairseq_options.get_generation_parser, arguments, Path(f"{place}.log"), user_dir)
    score, signature = sacrebleu_of(generated, reference, target)
    return [
        {"split": split, "metric": "bleu", "value": round(scorer.score(), 2)},
        {"split": split, "metric": "sacrebleu", "value": round(score, 2), "signature": signature},
    ], sentence_counts(generated)


EVALUATIONS = {"lm": perplexity, "mt": bleu}


# a run of a table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    for name in ("row", "profile", "save-dir", "user-dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--unigram", action="store_true")
    parser.add_argument("--measure", help="of the trained model, which --simlex FILE may belong to")
    parser.add_argument("--simlex", default="")
    end = sys.argv.index("--")
    args, options = parser.parse_args(sys.argv[1:end]), settings_of(sys.argv[end + 1 :])
    log_as_fairseq(logging.WARNING)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    import_user_dir(args.user_dir)
    run = Run(Corpus.at(args.data), args.row, args.profile, args.seed, options, Path(args.save_dir), args.unigram)
    run.folder.mkdir(parents=True, exist_ok=True)
    failure, lock = run.folder / "failed", FileLock(run.folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"{time.strftime('%H:%M:%S')} {run.label}: another process trains it; it is waited for", flush=True)
        lock.acquire()
    failure.unlink(missing_ok=True)
    try:
        if args.measure:
            run.measure(args.measure, args.simlex)
        elif not run.record():
            run.execute(args.user_dir)
    except KeyboardInterrupt:
        os._exit(1)  # else triton lists what an interrupted training didn't give back
    except (Exception, SystemExit) as error:  # whatever it is, the table tells it
        known = isinstance(error, (Failed, ValueError, OSError, SystemExit))
        if not known:
            traceback.print_exc()
        write_text(failure, (str(error) if known else repr(error)).removeprefix(PREFIX))
        sys.exit(1)


if __name__ == "__main__":
    main()
