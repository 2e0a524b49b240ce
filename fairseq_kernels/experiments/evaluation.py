"""Perplexity by fairseq-eval-lm and BLEU by fairseq-generate, in this process; their output goes to a log.

``scripts/evaluate_lm.sh`` and ``evaluate_mt.sh`` call it.
"""

import fcntl
import math
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Sequence

import torch

from ..analysis.bleu import sacrebleu_of
from ..analysis.model_state import load, task_settings
from ..errors import CommandParser, explanation, one_line_errors
from .commands import Failed, Refused, call, output_to
from .data import Corpus
from .files import write_json
from .profiles import option_value
from .tables import KINDS
from .training import check_words, parse_before_fairseq

WORDS = re.compile(r"Evaluated ([\d,]+) tokens")
PERPLEXITY = re.compile(r"Perplexity: (\S+)")
LEFT_OUT = re.compile(r"([\d,]+) samples have invalid sizes and will be skipped, max_positions=(\d+)")
BLEU = re.compile(r"^Generate .*BLEU4 = ([\d.]+)", re.MULTILINE)
# with these a figure would be of other words, or of words that were given to the model
REFUSED = ("--distributed-world-size", "--num-shards", "--shard-id", "--add-bos-token", "--shorten-method")
REFUSED += ("--prefix-size", "--score-reference")
# fairseq-generate and eval-lm share a text out among the GPUs that they see: one has it all
SHARED = ("--required-batch-size-multiple", "1", "--distributed-world-size", "1")
# a process for the data would be waited for, five seconds, when Python frees fairseq's reference cycles
SHARED += ("--num-workers", "0")


def perplexity(corpus: Corpus, checkpoint: str, split: str, log: Path, options: Sequence[str] = ()) -> List[Dict]:
    """Of a language model, ``</s>`` and ``<unk>`` counted, in blocks of 35 words at most, as the profiles train, or of
    the model's own length if that is less: ``metric``, ``split``, ``value``, and ``words``, how many were read.

    Raises:
        Failed: fairseq-eval-lm did, or the model gives no number.
    """
    from fairseq import options as fairseq_options
    from fairseq_cli import eval_lm

    arguments = [
        *(str(corpus.binarised), "--task", "language_modeling", "--path", checkpoint, "--gen-subset", split),
        *("--sample-break-mode", "none", "--tokens-per-sample", str(min(35, *map(longest, checkpoint.split(":"))))),
        *("--batch-size", "32", *SHARED, *device(), *options),
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

    def evaluate(cfg) -> None:
        stock, eval_lm.SequenceScorer = eval_lm.SequenceScorer, Scorer
        try:
            eval_lm.main(cfg)
        finally:
            eval_lm.SequenceScorer = stock

    with run(evaluate, fairseq_options.get_eval_lm_parser, arguments, log) as text:
        if left_out := LEFT_OUT.search(text):
            raise Failed(
                f"{left_out[1]} blocks of {split} are longer than the {left_out[2]} words that the model takes; leave "
                f"out --sample-break-mode, and give --tokens-per-sample {left_out[2]} or less"
            )
        if not PERPLEXITY.search(text):
            raise Failed(f"fairseq-eval-lm printed no perplexity; is there room for {log}?")
        value, words = float(PERPLEXITY.findall(text)[-1]), int(WORDS.findall(text)[-1].replace(",", ""))
        if not words:
            raise Failed(f"no words of {split} were read; leave out options that choose among them")
        if not math.isfinite(value):
            raise Failed(f"perplexity {value} on {split}: the model is broken, its training diverged (log: {log}.part)")
    write_json(log.with_name(f"{log.name}.lines.json"), lines(blocks))
    return [{"split": split, "metric": "ppl", "value": value, "words": words}]


def lines(blocks: Dict[int, List]) -> List[List[float]]:
    """Tokens and nats of each line, its end counted, from (is it a line's end, log p) of each word of each block."""
    result, words, nats = [], 0, 0.0
    for block in sorted(blocks):
        for end, log_p in blocks[block]:
            words, nats = words + 1, nats - log_p
            if end:
                result.append([words, round(nats, 3)])
                words, nats = 0, 0.0
    return result + [[words, round(nats, 3)]] * bool(words)


def longest(checkpoint: str) -> int:
    """The block of words with which a language model was trained, which is the longest that it takes."""
    return task_settings(load(Path(checkpoint))).get("tokens_per_sample") or 35


def bleu(corpus: Corpus, checkpoint: str, split: str, log: Path, options: Sequence[str] = ()) -> List[Dict]:
    """Of a translation model's one decoding with beam 5: fairseq's tokenised BLEU4, comparable with the paper's, and
    detokenised sacreBLEU with its ``signature``. The decoding goes to ``log``.

    Raises:
        Failed: fairseq-generate did.
        ValueError: there is no reference.
    """
    from fairseq import options as fairseq_options
    from fairseq_cli import generate

    target = corpus.target(split)
    if not target:
        raise ValueError(f"{corpus.binarised} has {split} in one language only; prepare it with both")
    reference = corpus.folder / f"{split}.ref.{target}"
    if not reference.is_file():
        known = " ".join(sorted(path.name for path in corpus.folder.glob("*.ref.*")))
        raise ValueError(f"no reference {reference}; subsets with one: {known or 'none'}")
    text = corpus.folder / f"{split}.{target}"
    lines = text.read_text(encoding="utf-8", errors="replace").split("\n") if text.is_file() else []
    pieces = any(lines) and all(line.startswith("▁") for line in lines if line)  # sentencepiece's
    arguments = [
        *(str(corpus.binarised), "--task", "translation", "--path", checkpoint, "--gen-subset", split),
        *(f"--remove-bpe={'sentencepiece' if pieces else 'subword_nmt'}", "--beam", "5", "--max-tokens", "8000"),
        *(*SHARED, *device(), *options),
    ]
    with run(generate.main, fairseq_options.get_generation_parser, arguments, log) as text:
        tokenised = BLEU.findall(text)
        if len(tokenised) != 1:
            raise Failed("fairseq-generate printed no BLEU4; leave out --scoring, --quiet and --results-path")
        score, signature = sacrebleu_of(log.with_name(f"{log.name}.part"), reference, target)
    [tokenised] = tokenised
    return [
        {"split": split, "metric": "bleu", "value": float(tokenised)},
        {"split": split, "metric": "sacrebleu", "value": round(score, 2), "signature": signature},
    ]


def device() -> List[str]:
    return [] if torch.cuda.is_available() else ["--cpu"]


@contextmanager
def run(command: Callable, parser: Callable, arguments: List[str], log: Path) -> Iterator[str]:
    """Yields the output of a command of fairseq's, which takes the place of an older one if the body succeeds."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    def main():
        args = options.parse_args_and_arch(parser())
        command(convert_namespace_to_omegaconf(args))

    part = log.with_name(f"{log.name}.part")
    with open(part, "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failed(f"another process is writing {log}; wait for it") from None
        try:
            with output_to(part, "w"):
                call(main, arguments, part)
        except Refused as error:  # the log says no more
            part.unlink()
            raise Failed(str(error).removesuffix(f" (log: {part})")) from None
        yield part.read_text(encoding="utf-8", errors="replace")
        part.replace(log)


EVALUATIONS = {"lm": perplexity, "mt": bleu}


def main() -> None:
    kind = sys.argv[1]
    program = f"evaluate_{kind}.sh"
    parser = CommandParser(prog=program, add_help=False)
    parser.usage = f"bash scripts/{program} DATA CHECKPOINT [options] (--help tells more)"
    parser.add_argument("data", type=Path)
    parser.add_argument("checkpoint")
    parser.add_argument("--gen-subset", default="test")
    args, options = parse_before_fairseq(parser, sys.argv[2:])
    with one_line_errors():
        corpus = Corpus.at(args.data)
        if corpus.kind != kind:
            raise ValueError(f"{args.data} is {KINDS[corpus.kind]}; scripts/evaluate_{corpus.kind}.sh takes it")
        checkpoints = args.checkpoint.split(":")  # several are an ensemble
        if kind == "lm" and len(checkpoints) > 1:
            raise ValueError(f"{args.checkpoint}: ensembles, separated by :, are for translation; give one checkpoint")
        if option_value(options, "--path") is not None:
            raise ValueError("--path is not allowed; give the checkpoint after DATA")
        for option in (word.partition("=")[0] for word in options):
            if option in REFUSED:
                raise ValueError(f"{option} is not allowed: the figure would be of other words; leave it out")
        for path in checkpoints:
            if not Path(path).is_file():
                what = "is a folder" if Path(path).is_dir() else "not found"
                ensemble = " (: separates the models of an ensemble)" if len(checkpoints) > 1 else ""
                raise ValueError(f"checkpoint {path} {what}{ensemble}; give a .pt file that train_{kind}.sh made")
            check_words(corpus, Path(path))
        corpus.check_direction(options)
        if args.gen_subset not in corpus.splits():
            known = ", ".join(corpus.splits())
            raise ValueError(f"--gen-subset {args.gen_subset!r} is not in {corpus.binarised}; it has {known}")
        # fairseq-generate's output is the translations, too
        log = Path(f"{checkpoints[-1]}.{args.gen_subset}.{'gen' if kind == 'mt' else 'log'}")
        try:
            metrics = EVALUATIONS[kind](corpus, args.checkpoint, args.gen_subset, log, options)
        except (Failed, OSError) as error:
            sys.exit(f"{program}: error: {explanation(error) or error}")
    print(f"{shown(metrics)} (log: {log})")


def shown(metrics: Sequence[Dict]) -> str:
    """The figures in a line: ``test perplexity 61.9 (28,766 words with line ends)``."""
    first = metrics[0]
    if first["metric"] == "ppl":
        return f"{first['split']} perplexity {first['value']:.1f} ({first['words']:,} words with line ends)"
    tokenised, detokenised = metrics
    return (
        f"{first['split']} BLEU4 {tokenised['value']:.1f} (fairseq's, tokenised), "
        f"sacreBLEU {detokenised['value']:.1f} ({detokenised['signature']})"
    )


if __name__ == "__main__":
    main()
