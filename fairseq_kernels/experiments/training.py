"""Trains with a profile: fairseq-train, its output in DIR/train.log, a line of progress every few seconds.

``scripts/train_lm.sh`` and ``train_mt.sh`` call it.
"""

import argparse
import math
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import List, Sequence, Tuple

import torch
from filelock import FileLock, Timeout

from ..analysis.training_log import read_curves
from ..errors import CommandParser, one_line_errors
from .commands import USER_DIR, Failed, Refused, call, output_to
from .data import Corpus
from .files import read_json, to_folder, write_json
from .profiles import fairseq_arguments, option_value, parsed, profiles
from .progress import Progress, shown
from .tables import KINDS

LOCK = "lock"  # in a training's folder, held by the process that trains
DATA = "data.json"  # there too: what it is trained on


def command(corpus: Corpus, profile: str, options: Sequence[str], folder: Path) -> List[str]:
    """fairseq-train's arguments: data, profile, device, folder and ``options``, which win.

    Raises:
        ValueError: there is no such profile, the data are of another direction, or the log would be of another format.
    """
    corpus.check_direction(options)
    if (log_format := option_value(options, "--log-format")) not in (None, "simple"):
        raise ValueError(f"--log-format {log_format} is not allowed: figures are read from the log; leave it out")
    # a process for the data would be waited for, five seconds at the end of an epoch or validation
    device = [] if torch.cuda.is_available() else ["--cpu", "--num-workers", "0"]
    own = [str(corpus.binarised), "--save-dir", str(folder), *device]
    return [*own, *fairseq_arguments(corpus.kind, profile, options)]


def train(arguments: List[str], folder: Path, label: str = "") -> None:
    """Runs fairseq-train, or continues it, in this process; a finished training stays as it is. ``label`` begins the
    lines of progress, after the time of day.

    Raises:
        Failed: it ended with an error, or without a checkpoint.
    """
    log = folder / "train.log"
    with output_to(log) as screen, shown(Progress(log, arguments), screen, label):
        from fairseq_cli.train import cli_main  # logs to what is the output now

        call(cli_main, arguments, log)


def check_data(corpus: Corpus, folder: Path) -> None:
    """Notes in the folder what is trained on, the first time.

    Raises:
        ValueError: the training there was begun on other data.
    """
    note = folder / DATA
    if not note.is_file():
        write_json(note, {"data": corpus.fingerprint, "words": corpus.words()})
    elif (known := read_json(note, "data")["data"]) != corpus.fingerprint:
        raise ValueError(
            f"{folder} was begun on data {known}, {corpus.folder} is {corpus.fingerprint}; name another --save-dir"
        )


def check_words(corpus: Corpus, checkpoint: Path) -> None:
    """
    Raises:
        ValueError: the checkpoint's training had other words than the data.
    """
    note = checkpoint.parent / DATA
    if note.is_file() and read_json(note, "words")["words"] != corpus.words():
        raise ValueError(
            f"checkpoint {checkpoint} was trained with another dictionary than that of {corpus.folder}; give the data "
            "that it was trained on"
        )


def default_profile() -> str:
    return "paper" if torch.cuda.is_available() else "cpu"


def parse_before_fairseq(parser: argparse.ArgumentParser, argv: Sequence[str]) -> Tuple[argparse.Namespace, List[str]]:
    """Our arguments and fairseq's, whose values can't be told from DATA: that comes first."""
    args, options = parser.parse_known_args(argv)
    if not args.data.exists() and argv[0].startswith("-"):
        parser.error(f"{args.data} is not found; give DATA first, then the options")
    if "--" in options:
        parser.error("-- is for tables and searches; leave it out here, and give fairseq's options among the others")
    return args, options


def main() -> None:
    kind = sys.argv[1]
    program = f"train_{kind}.sh"
    parser = CommandParser(prog=program, add_help=False)
    parser.usage = f"bash scripts/{program} DATA --save-dir DIR [options] (--help tells more)"
    parser.add_argument("data", type=Path)
    with one_line_errors():
        parser.add_argument("--profile", choices=profiles(kind), default=default_profile())
    parser.add_argument("--save-dir", type=to_folder, required=True)
    parser.add_argument("--dry-run", action="store_true")
    args, options = parse_before_fairseq(parser, sys.argv[2:])
    with one_line_errors():
        corpus = Corpus.at(args.data)
        if corpus.kind != kind:
            raise ValueError(f"{args.data} is {KINDS[corpus.kind]}; scripts/train_{corpus.kind}.sh trains on it")
        arguments = command(corpus, args.profile, options, args.save_dir)
    if args.dry_run:
        parsed(arguments)
        print(shlex.join(["fairseq-train", *arguments, "--user-dir", USER_DIR]))
        return
    log, new = args.save_dir / "train.log", not args.save_dir.exists()
    try:
        args.save_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(args.save_dir / LOCK, timeout=0):
            check_data(corpus, args.save_dir)
            print(f"{program}: trains; log: {log}", flush=True)
            train(arguments, args.save_dir)
    except Timeout:
        sys.exit(f"{program}: error: another process trains in {args.save_dir}; wait for it or name another --save-dir")
    except OSError as error:
        where = f"{error.filename or args.save_dir}: {error.strerror}"
        sys.exit(f"{program}: error: {where}; give a --save-dir that you may write to, with room")
    except (Failed, ValueError) as error:
        message = str(error)
        begun = any(args.save_dir.glob("checkpoint*")) or log.is_file() and read_curves(log, "train_inner")
        if isinstance(error, (Refused, ValueError)) and new and not begun:
            message = message.removesuffix(f" (log: {log})")
            shutil.rmtree(args.save_dir)
        sys.exit(f"{program}: error: {message}")
    except KeyboardInterrupt:
        print(f"{program}: interrupted; the same command goes on from the last checkpoint", file=sys.stderr, flush=True)
        os._exit(1)  # else triton lists what an interrupted training didn't give back
    perplexity = read_curves(log, "valid").get("ppl", {})
    if perplexity:
        update, value = list(perplexity.items())[-1]
        if not math.isfinite(value):
            sys.exit(
                f"{program}: error: the training diverged: valid perplexity {value} after {update:,} updates; start "
                "anew in another --save-dir with a lower --lr or --clip-norm, or less extreme --kernel-params (log: "
                f"{log})"
            )
        print(f"valid perplexity {value:.1f} after {update:,} updates (log: {log})")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # of kill, or a cluster: as Ctrl-C
    main()
