"""What the preparations share: errors of one line, checked text, files that are whole or absent, binarising."""

import gzip
import hashlib
import json
import logging
import os
import shutil
import sys
import zlib
from argparse import ArgumentTypeError
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # fairseq_kernels, installed or not

from fairseq_kernels.errors import CommandParser, Once, positive_int  # noqa: E402, F401

SPLITS = ("train", "valid", "test")
LONGEST_LINE = 1_000_000  # bytes
RESERVED = frozenset(("<s>", "<pad>", "</s>"))  # the words to which fairseq gives a meaning of its own; <unk> is text
TEXT_RULES = (
    "Text is UTF-8, a sentence a line, a byte order mark and Windows' line ends allowed; gzip is unpacked. Refused, "
    "before anything is written: other encodings (UTF-16, Latin-1), NUL bytes, carriage returns within a line (old "
    f"Mac line ends), lines above {LONGEST_LINE:,} bytes, and the words {' '.join(sorted(RESERVED))}, which fairseq "
    "reserves."
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
        print(f"{program}: interrupted: the same command goes on after the last finished stage", file=sys.stderr)
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


def given_path(text):
    """argparse type: a path. An empty one, as of an unset shell variable, would be the current folder."""
    if not text:
        raise ArgumentTypeError("'' is no path: give that of a file or folder (is a shell variable unset?)")
    return Path(text)


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


@contextmanager
def atomic_write(path):
    """Text file that appears under its name only when the ``with`` block has ended well."""
    part = Path(f"{path}.part")
    try:
        with open(part, "w", encoding="utf-8", newline="\n") as file:
            yield file
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_lines(path, lines):
    """The text file ``path``, a line each; it appears when it is whole."""
    with atomic_write(path) as file:
        file.writelines(f"{line}\n" for line in lines)


def digest(*values):
    """Hexadecimal SHA-256 of JSON-able values: equal inputs and options have equal digests."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def stat_of(paths):
    """``[path, bytes, modification time in ns]`` of every file: differs once one is changed."""
    return [[str(Path(path).resolve()), (stat := os.stat(path)).st_size, stat.st_mtime_ns] for path in paths]


class Stages:
    """The output directory of a preparation and the stages that are finished in it.

    A context manager, which holds a lock: two preparations cannot write to one directory. ``DIR/prepare.json`` holds
    ``{stage: {key, files, result}}``.

    Args:
        outputs: names of all that will be written there.
        sources: the files that are read.

    Raises:
        InputError: the directory can't be made or written to, another preparation works there, something is in the
            place of an output that no preparation has made, or a source is.
    """

    def __init__(self, path, outputs=(), sources=()):
        from filelock import FileLock, Timeout

        if not str(path):
            raise InputError("--out is empty: give a directory")
        self.out = Path(path)
        self.new = not self.out.exists()
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            self.lock = FileLock(self.out / ".lock")
            self.lock.acquire(timeout=0)
        except Timeout:
            raise InputError(f"--out {path}: another preparation is writing there: wait for it, or give another "
                             "directory") from None
        except (FileExistsError, NotADirectoryError):
            raise InputError(f"--out {path}: is, or lies in, a file: give a directory") from None
        except OSError as error:
            raise InputError(f"--out {path}: cannot be written ({error.strerror}): give a directory you may write "
                             "to") from None
        try:
            self.stages = self._recorded()
            self._check_places(outputs, sources)
        except InputError:
            (self.out / ".lock").unlink()
            self.lock.release()
            raise

    def _recorded(self):
        """What ``prepare.json`` says of earlier preparations."""
        try:
            recorded = json.loads((self.out / "prepare.json").read_text(encoding="utf-8"))
            for entry in recorded.values():
                entry["key"], entry["files"].keys()
            return recorded
        except FileNotFoundError:
            return {}
        except (ValueError, LookupError, TypeError, AttributeError):  # another program's
            raise self._foreign("prepare.json") from None

    def _check_places(self, outputs, sources):
        written = {"prepare.json", *outputs}
        for source in sources:
            if Path(source).resolve().is_relative_to(self.out.resolve()):
                place = Path(source).resolve().relative_to(self.out.resolve()).parts[0]
                if place.removesuffix(".part") in written:
                    raise InputError(f"--out {self.out}: {source} is read, and would be overwritten: give another "
                                     "directory")
        made = {file for entry in self.stages.values() for file in entry["files"]}
        for name in outputs:
            there = self.out / name
            if name in made:  # a file, or a directory whose stage was interrupted
                continue
            for file in (there, *there.rglob("*")):
                if file.is_file() and str(file.relative_to(self.out)) not in made:
                    raise self._foreign(file.relative_to(self.out))

    def _foreign(self, name):
        return InputError(f"--out {self.out}: {name} is there, and no preparation has made it: move it away, or give "
                          "another directory")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, *_):
        left = {path.name for path in self.out.iterdir()}
        if kind and left <= {".lock", "prepare.json"}:  # refused before its first output
            for name in sorted(left, reverse=True):  # .lock last: without it another preparation may begin
                (self.out / name).unlink()
            if self.new:
                with suppress(OSError):  # another preparation begins there
                    self.out.rmdir()
        self.lock.release()  # not before: what another one writes would be deleted
        if kind is OSError and error.filename is None:  # as where the disk is full
            raise OSError(error.errno, error.strerror, str(self.out)) from error

    def run(self, stage, key, outputs, make):
        """The result of ``make()``, or that of an earlier call with this key if its output is still there.

        Args:
            key: JSON-able; all that the result depends on.
            outputs: names of the files and directories that ``make`` writes.
            make: function without arguments that returns any JSON value.
        """
        key = digest(key)
        entry = self.stages.get(stage, {})
        whole = all((self.out / name).exists() for name in outputs)  # older versions wrote fewer
        if not whole or entry.get("key") != key or entry["files"] != self._sizes(outputs):
            self.stages[stage] = {"key": None, "files": dict.fromkeys(outputs)}  # nothing half new passes for finished
            self._write()
            result = make()
            self.stages[stage] = {"key": key, "files": self._sizes(outputs), "result": result}
            self._write()
        return self.stages[stage]["result"]

    def _sizes(self, outputs):
        paths = [file for name in outputs for file in (self.out / name, *(self.out / name).rglob("*"))]
        return {str(path.relative_to(self.out)): path.stat().st_size for path in paths if path.is_file()}

    def _write(self):
        write_lines(self.out / "prepare.json", [json.dumps(self.stages, indent=1)])


def build_dictionary(paths, min_count=1, size=None, padding_factor=1):
    """fairseq's dictionary of some text files, most frequent words first, and how many different words they have.

    Args:
        min_count: leave out words seen less often.
        size: words at most, besides fairseq's four special symbols; None for any number.
        padding_factor: fill up with unused entries to a multiple of this.
    """
    from fairseq.data import Dictionary
    from fairseq.tokenizer import tokenize_line

    dictionary = Dictionary()
    for path in paths:
        Dictionary.add_file_to_dictionary(str(path), dictionary, tokenize_line, num_workers=1)
    types = len(dictionary) - dictionary.nspecial
    dictionary.finalize(min_count, size + dictionary.nspecial if size else -1, padding_factor)
    return dictionary, types


def binarise(out, texts, dictionaries):
    """Make ``out/data-bin`` as fairseq-preprocess does; it appears when it is whole, in place of an older one.

    Args:
        texts: ``{name in data-bin: (text file, key of its dictionary)}``.
        dictionaries: ``{file name in data-bin: dictionary}``.

    Returns:
        ``{name: {lines, tokens, unknown}}``; tokens are words and line ends, unknown those that became ``<unk>``.
    """
    from fairseq.binarizer import FileBinarizer, VocabularyDatasetBinarizer

    from fairseq_kernels.word_counts import word_counts

    part = out / "data-bin.part"
    shutil.rmtree(part, ignore_errors=True)  # of a killed run
    part.mkdir()
    try:
        statistics = {}
        for name, (path, key) in progress(texts.items(), "binarising", unit="file"):
            dictionary = dictionaries[key]
            binarizer = VocabularyDatasetBinarizer(dictionary)
            FileBinarizer.multiprocess_dataset(str(path), "mmap", binarizer, str(part / name), len(dictionary))
            counts = word_counts(part / name, dictionary)
            statistics[name] = {"lines": counts[dictionary.eos()], "tokens": counts.sum(),
                                "unknown": counts[dictionary.unk()]}
        for key, dictionary in dictionaries.items():
            dictionary.save(str(part / key))
        shutil.rmtree(out / "data-bin", ignore_errors=True)
        part.rename(out / "data-bin")
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return {name: {key: int(count) for key, count in row.items()} for name, row in statistics.items()}
