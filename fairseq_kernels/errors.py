"""Mistakes as a user sees them: one line that names it, not a traceback."""

import contextlib
import difflib
import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Iterable, NoReturn, Optional, Sequence

PREFIX = "fairseq_kernels: error: "
TOO_LONG = (
    "no sentence of the data is short enough; give higher --max-tokens, --max-source-positions and "
    "--max-target-positions, or other data"
)
# what fairseq, torch and the layers say of mistakes, and what to do about each
EXPLANATIONS = {
    r"Cannot load model parameters from checkpoint (\S+);": "the model in {0} doesn't match this one; use the same "
    "data, --arch and sizes as in its training, or another --save-dir or --restore-file",
    r"size mismatch for (\w+)\.embed_tokens\.weight: .*?\[(\d+), .*?\[(\d+), ": "the checkpoint's {0} has {1} words, "
    "the data's dictionary {2}; give the data that the model was trained on, or another checkpoint",
    r"ValueError: loaded state dict (?:contains a parameter group|has a different number)": "the checkpoint's "
    "optimizer state belongs to a model with other parameters; use the same options as in its training, or another "
    "--save-dir, or --reset-optimizer",
    r"missing 1 required positional argument: 'prev_output_tokens'": "the data has no text of the target language in a "
    "split that needs it; make the data-bin again",
    r"Could not infer language pair": "the data has no parallel text; give a parallel corpus' data-bin",
    r"FloatingPointError: (?:gradients are Nan/Inf|Minimum loss scale reached)": "the training diverged: its gradients "
    "are NaN or infinite; give a lower --lr, or --clip-norm",
    r"(?:FloatingPointError|ValueError): (the model gives NaN.*|senses can't move while.*|the setting .*|"
    r"--share-all-embeddings requires .*|DiverseBeamSearch requires .*)": "{0}",
    r"((?:Incorrect dictionary format|Incorrect encoding detected|Duplicate word found when loading).*)": "{0}; make "
    "the data-bin again",
    r"Exception: The dataset is empty": TOO_LONG,
    r"Size of sample #(\d+) is invalid \(=(.*?)\) since max_positions=(.*?), skip": "sentence {0} of the data (the "
    "first is 0) is {1} tokens long, and the model takes {2}; shorten it (of a language model give a lower "
    "--tokens-per-sample), or give higher --max-source-positions and --max-target-positions, in training and after it",
    r"KeyError: '(bleu|ppl|nll_loss|accuracy)'": "--best-checkpoint-metric {0} is not computed in validation; choose "
    "for instance loss; bleu needs --eval-bleu",
    r"Torch not compiled with CUDA|Found no NVIDIA driver": "torch finds no GPU here, which --fp16 and the like need; "
    "leave them out",
    r"no attribute 'xla_device'": "fairseq's --bf16 and --tpu need a TPU; on a GPU give --amp or --fp16",
    r"Unsupported optimizer: (\w+)": "--memory-efficient-fp16 doesn't go with the optimizer {0}; give --optimizer adam",
    r"MemoryError|[Oo]ut of memory|can't allocate memory": "out of memory; give smaller layers, "
    "--batch-size, --max-tokens or --output-memory-mib",
}


def mistake(message: str) -> SystemExit:
    """The end of the program with this line."""
    return SystemExit(PREFIX + " ".join(message.split()))


@contextlib.contextmanager
def one_line_errors():
    """Turns a ValueError of the layers into the end of the program with its message, as argparse does."""
    try:
        yield
    except ValueError as error:
        raise mistake(str(error)) from error


def explanation(error: BaseException) -> Optional[str]:
    """One line for a mistake of the user's, or None for what may be an error of the program."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        path = Path(error.filename)
        near = data_bin_near(path.parent) if path.name.startswith("dict.") else ""
        return f"{path}: {error.strerror.lower()}; check the path of data and checkpoint{near}"
    if isinstance(error, OSError) and "not found" in str(error):
        return f"{error}; check the path of data and checkpoint"
    if isinstance(error, FileNotFoundError) and len(error.args) == 1:  # of a --user-dir, says fairseq its path alone
        return f"{error} not found; check the path"
    for pattern, line in EXPLANATIONS.items():
        match = re.search(pattern, f"{type(error).__name__}: {error}")
        if match:
            return line.format(*match.groups())
    return str(error) if isinstance(error, AssertionError) and str(error) else None  # fairseq checks options by these


def data_bin_near(folder: Path) -> str:
    """A question, where the folder above a data-bin was given in its place."""
    near = Path(folder, "data-bin")
    return f"; did you mean {near}?" if near.is_dir() else ""


def similar(word: str, known: Iterable[str]) -> str:
    """A question, where a known word is like this one."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def nearest(parser: ArgumentParser, message: str) -> str:
    """argparse's message; of a mistyped option or value it names the nearest known one, not all."""
    unknown = re.match(r"unrecognized arguments: (--?[^\s=]+)", message)
    choice = re.match(r"(argument .*invalid choice: '(.*?)') \(choose from (.*)\)", message, re.DOTALL)
    if unknown:
        known = re.findall(r"(?<!\S)--[\w-]+", parser.format_help())
        return f"unknown option {unknown[1]}{similar(unknown[1], known)}"
    if choice:
        names = re.findall(r"[\w.-]+", choice[3])
        all_names = f"; choose from {', '.join(names)}" if len(names) < 10 else ""
        return choice[1] + similar(choice[2], names) + all_names
    return message


def positive_int(text: str) -> int:
    """argparse type: an integer of at least 1."""
    if not text.isdecimal() or not 1 <= int(text) < 1 << 31:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {(1 << 31) - 1}")
    return int(text)


class CommandParser(ArgumentParser):
    """For our own commands: options in full, mistakes in one line that names the command."""

    given: Sequence[str] = ()  # the command line

    def __init__(self, **settings):
        super().__init__(allow_abbrev=False, **settings)

    def parse_known_args(self, args=None, namespace=None):
        self.given = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(self.given, namespace)

    def error(self, message: str) -> NoReturn:
        required = message.partition("arguments are required: ")[2].split(", ")
        for option in (word.partition("=")[0] for word in self.given if word.startswith("--")):
            if difflib.get_close_matches(option, required, cutoff=0.8):  # argparse speaks of what is missing first
                message = f"unrecognized arguments: {option}"
        self.exit(2, f"{self.prog}: error: {' '.join(nearest(self, message).split())}\n")


def explain_interruptions() -> None:
    """Under ``python -m`` of a module in the calling package, Ctrl-C ends in one line, also while torch is being
    imported, and a closed pipe in none. In other programs changes nothing."""
    if sys.argv[:1] != ["-m"]:  # what it is while the packages of the module are imported
        return
    previous = sys.excepthook

    def hook(kind, error, trace):
        if issubclass(kind, KeyboardInterrupt):
            print("interrupted; give the same command again", file=sys.stderr)
        elif issubclass(kind, BrokenPipeError):  # of head, say, which has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python writes at its end
        else:
            previous(kind, error, trace)

    sys.excepthook = hook
