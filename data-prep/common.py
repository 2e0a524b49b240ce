"""What the preparations share: errors of one line, checked text, a folder that is whole or absent, binarising."""

import gzip
import hashlib
import json
import logging
import os
import sys
import zlib
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # fairseq_kernels, installed or not

from fairseq_kernels.errors import CommandParser, Once, positive_int  # noqa: E402, F401

SPLITS = ("train", "valid", "test")
LONGEST_LINE = 1_000_000  # bytes
RESERVED = frozenset(("<s>", "<pad>", "</s>"))  # the words to which fairseq gives a meaning of its own; <unk> is text
TEXT_RULES = (
    "Text is UTF-8, a sentence a line, a byte order mark and Windows' line ends allowed; gzip is unpacked. Refused: "
    "other encodings (UTF-16, Latin-1), NUL bytes, carriage returns within a line (old Mac line ends), lines above "
    f"{LONGEST_LINE:,} bytes, and the words {' '.join(sorted(RESERVED))}, which fairseq reserves."
)


class InputError(Exception):
    """Something that the user can mend; ``run`` prints it as one line."""


def run(main, program):
    """Call ``main()`` as ``program``: wrong input, failing files and Ctrl-C end it with one line and exit status."""
    logging.disable(logging.INFO)  # fairseq's notes on what it loads
    try:
        main()
    except InputError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename or 'reading or writing'}: {error.strerror or error}: mend that and call again"
    except KeyboardInterrupt:
        print(f"{program}: interrupted: nothing is left of it", file=sys.stderr)
        sys.exit(130)
    else:
        return
    print(f"{program}: error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


def progress(iterable=None, label=None, **options):
    """A tqdm bar, shown for what takes longer than 3 seconds; a line every 10 seconds where there is no terminal."""
    from tqdm import tqdm  # here, as all that must be installed: --help needs Python alone

    interval = 0.1 if sys.stderr.isatty() else 10
    return tqdm(iterable, label, delay=3, mininterval=interval, maxinterval=interval, **options)


def check_file(path, option="", advice=": give a file"):
    """
    Raises:
        InputError: there is no such file; ``option`` and ``advice`` are said before and after it.
    """
    if not Path(path).is_file():
        what = "is a folder" if Path(path).is_dir() else "no such file"
        raise InputError(f"{option} {path}: {what}{advice}".lstrip())


def read_lines(path):
    """The lines of a text file, plain or gzipped, without their line ends, one after the other.

    Raises:
        InputError: it isn't text as ``TEXT_RULES`` says; the message names the line.
    """
    path = Path(path)
    check_file(path)
    try:
        with open(path, "rb") as file:
            packed = path.suffix == ".gz" or file.peek(2).startswith(b"\x1f\x8b")
            yield from checked_lines(gzip.open(file) if packed else file, path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: no gzip file, or not all of it ({error}): get it again") from None


def checked_lines(file, name):
    """The lines of a binary file object; ``name`` is what errors call it."""
    for number, raw in enumerate(iter(partial(file.readline, LONGEST_LINE + 2), b""), start=1):
        place = f"{name}:{number}"
        if len(raw.removesuffix(b"\n").removesuffix(b"\r")) > LONGEST_LINE:
            raise InputError(f"{place}: a line above {LONGEST_LINE:,} bytes: give a sentence or paragraph a line")
        if b"\0" in raw:
            raise InputError(f"{place}: NUL bytes: if it is UTF-16, iconv -f utf-16 -t utf-8 FILE converts it, else "
                             "tr -d '\\0' < FILE removes them")
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise InputError(f"{place}: not UTF-8 text: convert it, e.g. iconv -f latin1 -t utf-8 FILE") from None
        if "\r" in line:
            raise InputError(f"{place}: a carriage return within the line: if it is a line end, tr '\\r' '\\n' < FILE "
                             "mends it, else tr '\\r' ' ' < FILE")
        yield line


def words(line, place):
    """The words of a line, as fairseq sees them: what white space separates.

    Raises:
        InputError: one of them is reserved.
    """
    split = line.split()
    for word in RESERVED.intersection(split):
        raise InputError(f"{place}: has the word {word}, which fairseq reserves: leave it out or spell it otherwise")
    return split


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def prepare_folder(out, options, sources, make):
    """What ``make(folder)`` returns of a new folder, which becomes ``out`` once it is whole.

    ``out/prepare.json`` keeps that result, and a digest of options and sources: the same call again finds its folder.

    Args:
        options: JSON-able; all that the folder depends on besides its sources.
        sources: the files that are read.

    Raises:
        InputError: ``out`` has something else in it.
    """
    out = Path(out)
    digest = hashlib.sha256(json.dumps(options, sort_keys=True, default=str).encode())
    for path in sources:
        digest.update(hashlib.sha256(Path(path).read_bytes()).digest())
    record = out / "prepare.json"
    if record.is_file() and f'"{digest.hexdigest()}"' in record.read_text(encoding="utf-8"):
        return json.loads(record.read_text(encoding="utf-8"))["result"]
    if out.exists() and not (out.is_dir() and not os.listdir(out)):
        raise InputError(f"--out {out}: is there, made of other files or options: remove it, or give another directory")
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{out.name}.", dir=out.parent) as beside:
        made = Path(beside, "made")
        made.mkdir()
        result = make(made)
        content = {"key": digest.hexdigest(), "result": result}
        write_lines(made / "prepare.json", [json.dumps(content, indent=1)])
        made.rename(out)
    return result


def binarise(folder, *options):
    """Make ``folder/data-bin`` of the texts in ``folder`` by fairseq-preprocess."""
    from fairseq import options as fairseq_options
    from fairseq_cli import preprocess

    command = [str(option) for option in (*options, "--destdir", folder / "data-bin")]
    preprocess.main(fairseq_options.get_preprocessing_parser().parse_args(command))
    (folder / "data-bin" / "preprocess.log").unlink()


def counts(folder, name, dictionary):
    """Lines, tokens (words and line ends) and unknown words of the binarised text ``folder/data-bin/NAME``."""
    from fairseq_kernels.word_counts import word_counts

    occurrences = word_counts(folder / "data-bin" / name, dictionary)
    return {"lines": int(occurrences[dictionary.eos()]), "tokens": int(occurrences.sum()),
            "unknown": int(occurrences[dictionary.unk()])}
