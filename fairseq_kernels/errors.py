"""What a user sees of a mistake: one line that names it, not a traceback."""

import contextlib
import difflib
import errno
import os
import pickle
import re
import signal
import sys
import threading
from argparse import Action, ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Iterable, Iterator, NoReturn, Optional, Sequence

PREFIX = "fairseq_kernels: error: "
TOO_LONG = (
    "no sentence of the data is short enough; give higher --max-tokens, --max-source-positions and "
    "--max-target-positions, or other data"
)
NO_MEMORY = "can't allocate memory|not enough memory"  # torch's, on the CPU
# what fairseq and torch say of mistakes, and what to do about each
EXPLANATIONS = {
    r"Cannot load model parameters from checkpoint (\S+);": "the model in {0} is another one; use the same --arch and "
    "sizes as in its training, or another --save-dir or --restore-file",
    r"Neither args nor cfg exist": "the checkpoint doesn't say what model it is of; give one that fairseq-train wrote",
    r"missing 1 required positional argument: 'prev_output_tokens'": "the data has no text of the target language in a "
    "split that needs it; make the data-bin again",
    r"FloatingPointError: (the model gives NaN.*)": "{0}",
    r"ValueError: (senses can't move while.*|the setting .* is not allowed.*)": "{0}",
    r"FloatingPointError: (?:gradients are Nan/Inf|Minimum loss scale reached)": "the training diverged: its gradients "
    "are no numbers; give a lower --lr, or --clip-norm",
    r"Exception: The dataset is empty": TOO_LONG,
    r"Size of sample #(\d+) is invalid \(=(.*?)\) since max_positions=(.*?), skip": "sentence {0} of the data (the "
    "first is 0) is {1} tokens long, and the model takes {2}; shorten it, or give higher --max-source-positions and "
    "--max-target-positions, in training and evaluation",
    r"ValueError: (--share-all-embeddings requires .*)": "{0}",
    r"ValueError: (Unsupported language modeling target: \w+)": "{0}; leave out --self-target and --past-target",
    r"'AdaptiveInput' object has no attribute 'weight'": "--adaptive-input has several matrices, which can't be shared "
    "with the output; leave out one of the two options",
    r"KeyError: 'best'": "the checkpoint's learning rate schedule is another one; use the same --lr-scheduler, or "
    "--reset-lr-scheduler",
    r"ValueError: loaded state dict (?:contains a parameter group|has a different number)": "the checkpoint's "
    "optimizer is of a model with other parameters; use the same options as in its training (sharing of embeddings, "
    "too), or another --save-dir, or --reset-optimizer",
    r"ValueError: (Invalid (?:beta|epsilon|weight_decay).*)": "{0}; check --adam-betas, --adam-eps and --weight-decay",
    r"Torch not compiled with CUDA|Found no NVIDIA driver|no attribute 'xla_device'": "torch finds no GPU here, which "
    "--fp16, --bf16 and the like need; leave them out",
    r"ValueError: Unsupported optimizer: (\w+)": "{0} doesn't fit --memory-efficient-fp16 or -bf16; give --fp16 or "
    "--bf16 alone, or --optimizer adam",
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
    if isinstance(error, FileNotFoundError) and error.filename:
        missing = Path(error.filename)
        near = data_bin_near(missing.parent) if missing.name.startswith("dict.") else ""
        return f"{missing} not found; check the path of data and checkpoint{near}"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}; check the path, and whether you may read and write there"
    if isinstance(error, OSError) and "not found" in str(error):
        return f"{error}; check the path of data and checkpoint"
    if isinstance(error, AssertionError) and re.fullmatch(r"(\d+) < \1", str(error)):  # fairseq's beam search
        return "no translation has an end: the model gives no numbers, as its training diverged; train it anew"
    for pattern, line in EXPLANATIONS.items():
        match = re.search(pattern, f"{type(error).__name__}: {error}")
        if match:
            return line.format(*match.groups())
    return str(error) if isinstance(error, AssertionError) and str(error) else None  # fairseq checks options by these


def passing(error: Optional[BaseException]) -> str:
    """What, on the machine's side, kept a file from being read, which may be whole; "" if the file is at fault."""
    if isinstance(error, MemoryError) or isinstance(error, RuntimeError) and re.search(NO_MEMORY, str(error)):
        return "out of memory"
    # zipfile reads before the start of a cut-off file, which is EINVAL
    machine = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
    return (error.strerror or str(error)) if machine else ""


def unreadable(path: object, error: BaseException) -> str:
    """Why a checkpoint can't be read. torch's own words, which advise to load it unsafely, are left out."""
    if isinstance(error, (FileNotFoundError, IsADirectoryError)):
        why = "not found" if isinstance(error, FileNotFoundError) else f"can't be read ({error.strerror})"
        return f"checkpoint {error.filename} {why}; give a .pt file that fairseq-train wrote"
    if passing(error):
        return f"{path} can't be read ({passing(error)}); mend that and call again"
    code = re.search(r"GLOBAL (\S+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
    if code:
        return f"{path} is refused: it holds {code[1]}, which may run code; give a .pt file that fairseq-train wrote"
    return f"{path} is damaged, or no checkpoint of fairseq-train's; give another .pt file"


def data_bin_near(folder: Path) -> str:
    """A question, where the folder above a data-bin was given in its place."""
    near = Path(folder, "data-bin")
    return f"; did you mean {near}?" if near.is_dir() else ""


def similar(word: str, known: Iterable[str]) -> str:
    """A question, where a known word is like this one."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def nearest(parser: ArgumentParser, message: str) -> str:
    """argparse's message, for a mistyped option or value with the nearest known one in the place of all."""
    unknown = re.match(r"unrecognized arguments: (--?[^\s=]+)", message)
    choice = re.match(r"(argument .*invalid choice: '(.*?)') \(choose from (.*)\)", message, re.DOTALL)
    if unknown:
        known = re.findall(r"(?<!\S)--[\w-]+", parser.format_help())
        return f"unknown option {unknown[1]}{similar(unknown[1], known)}"
    if choice:
        names = re.findall(r"[\w.-]+", choice[3])
        all_names = f"; choose from {', '.join(names)}" if len(names) < 10 else ""
        return choice[1] + similar(choice[2], names) + all_names
    return re.sub(r"invalid <lambda> value: (.*)", r"\1 is no number, and no list of numbers as [0.1,0.2]", message)


def short_errors(parser: ArgumentParser) -> None:
    """A mistyped option of fairseq's ends the program in one line, without the usage."""

    def error(message: str) -> None:
        raise mistake(nearest(parser, message))

    parser.error = error


def positive_int(text: str) -> int:
    """argparse type: an integer of at least 1."""
    if not text.isdecimal() or not 1 <= int(text) < 1 << 31:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {(1 << 31) - 1}")
    return int(text)


class Once(Action):
    """Stores the value of an option that names a file: a second one is a mistake, where argparse forgets the first."""

    namespace = None

    def __call__(self, parser, namespace, values, option_string=None):
        if option_string and self.namespace is namespace:
            parser.error(f"{option_string} is given twice; give it once")
        self.namespace = namespace
        setattr(namespace, self.dest, values)


class CommandParser(ArgumentParser):
    """For our own commands: options in full, mistakes in one line that names the command."""

    given: Sequence[str] = ()  # the command line

    def __init__(self, **settings):
        super().__init__(allow_abbrev=False, **settings)

    def parse_known_args(self, args=None, namespace=None):
        self.given = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(self.given, namespace)

    @contextlib.contextmanager
    def writing(self, option: str, path: Path) -> Iterator[None]:
        """Where it can't be written, the program ends with the option's name."""
        try:
            yield
        except OSError as error:
            self.error(f"{option} {path}: {error.strerror}; give one in a folder that you may write to")

    def error(self, message: str) -> NoReturn:
        required = message.partition("arguments are required: ")[2].split(", ")
        for option in (word.partition("=")[0] for word in self.given if word.startswith("--")):
            if difflib.get_close_matches(option, required, cutoff=0.8):  # argparse speaks of what is missing first
                message = f"unrecognized arguments: {option}"
        usage = f"; usage: {self.usage}" if self.usage and "arguments are required" in message else ""
        self.exit(2, f"{self.prog}: error: {' '.join(nearest(self, message).split())}{usage}\n")


def explain_mistakes() -> None:
    """Under fairseq's commands, reports mistakes in one line; in other programs changes nothing.

    fairseq lets the exceptions of its helpers through.
    """
    program = sys.argv[0] if sys.argv else ""
    if not (os.path.basename(program).startswith("fairseq-") or "fairseq_cli" in program):
        return
    previous = sys.excepthook

    def hook(kind, error, trace):
        line = explanation(error)
        if line is None:
            previous(kind, error, trace)
        else:
            print(mistake(line), file=sys.stderr)

    sys.excepthook = hook


def explain_interruptions() -> None:
    """Under ``python -m`` of a module in the calling package, Ctrl-C that nothing handles ends in one line, also while
    torch is being imported, and is not lost in a destructor; a closed pipe ends in none. In other programs changes
    nothing."""
    if sys.argv[:1] != ["-m"]:  # what it is while the packages of the module are imported
        return
    previous, previous_unraisable = sys.excepthook, sys.unraisablehook

    def hook(kind, error, trace):
        if issubclass(kind, KeyboardInterrupt):
            print("interrupted; give the same command again", file=sys.stderr)
        elif issubclass(kind, BrokenPipeError):  # of head, say, which has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python writes at its end
        else:
            previous(kind, error, trace)

    def unraisable(report):
        if issubclass(report.exc_type, KeyboardInterrupt):  # Python drops it, and the program goes on: send it again
            again = signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
            threading.Timer(0.1, *again).start()
        else:
            previous_unraisable(report)

    sys.excepthook, sys.unraisablehook = hook, unraisable
