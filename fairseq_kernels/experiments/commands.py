"""fairseq's commands, called in this process: their options, training, and perplexity or BLEU of what it gave."""

import atexit
import logging
import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

from . import slim  # noqa: F401  (before fairseq)

# isort: split
import torch
from fairseq import options, utils
from fairseq.data import data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.sequence_scorer import SequenceScorer
from fairseq_cli import eval_lm, generate
from fairseq_cli import train as fairseq_train
from torch.multiprocessing import _prctl_pr_set_pdeathsig

from .. import fairseq_plugin  # noqa: F401  (--user-dir leaves alone what is imported already)
from ..analysis.bleu import sacrebleu_of, sentence_counts
from ..checkpoint import load, task_settings
from ..errors import explanation, mistake
from ..logs import log_as_fairseq
from .corpus import Corpus
from .run import Failed

# fairseq-generate and eval-lm share a text out among the GPUs that they see: one has it all. A process for the data
# would be waited for, five seconds, when Python frees fairseq's reference cycles.
SHARED = ("--required-batch-size-multiple", "1", "--distributed-world-size", "1", "--num-workers", "0")

Figures = Tuple[List[Dict], List[List[float]]]  # metrics, and what each line adds to them


def device() -> List[str]:
    # a process for the data would be waited for, five seconds at the end of an epoch or validation
    return [] if torch.cuda.is_available() else ["--cpu", "--num-workers", "0"]


def import_user_dir(folder: object) -> None:
    """Has fairseq import what ``--user-dir`` names."""
    utils.import_user_module(Namespace(user_dir=str(folder)))


def check_options(arguments: Sequence[str]) -> None:
    """Has fairseq-train read its arguments, and import the ``--user-dir`` among them; it ends the program by a line."""
    sys.argv = ["fairseq-train", *arguments]
    options.parse_args_and_arch(options.get_training_parser())


def die_with(parent: int) -> None:
    """For a forked process: it ends with its parent, and by signals as other programs do."""
    _prctl_pr_set_pdeathsig(signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if os.getppid() != parent:
        os._exit(1)


def train(arguments: Sequence[str], log: Path, parent: int) -> None:
    """fairseq-train, in a process forked for it. The output goes to the end of the log."""
    die_with(parent)
    with open(log, "a") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    sys.argv = ["fairseq-train", *arguments]
    log_as_fairseq(logging.INFO)
    atexit._clear()
    try:
        fairseq_train.cli_main()
    except Exception as error:
        if line := explanation(error):
            raise mistake(line) from error
        raise
    finally:
        atexit._run_exitfuncs()  # which a forked process leaves out: TensorBoard's last figures


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
    in the model's training; and tokens and nats of each line. The output goes to ``PLACE.log``."""
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
    if len(log_p) != text.sizes.sum():  # of one shard of several, for instance
        seen = f"{len(log_p):,} of {text.sizes.sum():,} words of {split}"
        raise Failed(f"only {seen} were evaluated; leave out the options that exclude words")
    figure = {"split": split, "metric": "ppl", "value": round(float(result["perplexity"]), 4), "tokens": len(log_p)}
    return [figure], [[len(line), round(-float(line.sum()), 3)] for line in lines if len(line)]


def bleu(corpus: Corpus, checkpoints: str, split: str, place: Path, further: Sequence[str] = ()) -> Figures:
    """BLEU of one decoding with beam 5 by a translation model, or by an ensemble separated by ``:``. It is fairseq's
    tokenised BLEU4, comparable with the papers', detokenised sacreBLEU with its signature, and tokenised BLEU-1 and -2;
    and the BLEU counts of each sentence. The decoding goes to ``PLACE.gen``."""
    reference, generated = corpus.reference(split), Path(f"{place}.gen")
    text = corpus.folder / f"{split}.{corpus.target}"
    words = text.read_text(encoding="utf-8", errors="replace").split("\n") if text.is_file() else []
    pieces = any(words) and all(line.startswith("▁") for line in words if line)  # sentencepiece's
    arguments = [
        *(str(corpus.binarised), "--task", "translation", "--path", checkpoints),
        *("--gen-subset", split, f"--remove-bpe={'sentencepiece' if pieces else 'subword_nmt'}", "--beam", "5"),
        *("--max-tokens", "8000", *SHARED, *device(), *further),
    ]
    with open(generated, "w", encoding="utf-8") as output:
        scorer = call(generate._main, options.get_generation_parser(), arguments, Path(f"{place}.log"), output)
    score, signature = sacrebleu_of(generated, reference, corpus.target)
    return [
        {"split": split, "metric": "bleu", "value": round(scorer.score(), 2)},
        {"split": split, "metric": "sacrebleu", "value": round(score, 2), "signature": signature},
        *({"split": split, "metric": f"bleu{order}", "value": round(scorer.score(order), 2)} for order in (1, 2)),
    ], sentence_counts(generated)


EVALUATIONS = {"lm": perplexity, "mt": bleu}
