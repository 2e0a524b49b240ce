"""Shared by the preparations: text, a folder that is whole or absent, binarising."""

import gzip
import hashlib
import io
import json
import os
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # fairseq_kernels, installed or not

from fairseq_kernels.errors import CommandParser, positive_int  # noqa: E402

SPLITS = ("train", "valid", "test")
RESERVED = frozenset(("<s>", "<pad>", "</s>"))  # the words to which fairseq gives a meaning of its own; <unk> is text
BAR = {"delay": 3, "mininterval": 0.1 if sys.stderr.isatty() else 10}  # options of all tqdm bars, in seconds


def argument_parser(description, output):
    """A parser with ``--out`` and ``--workers``; its help ends with what --out receives and how text looks."""
    parser = CommandParser(description=description, epilog=f"--out receives {output}, data-bin/ and prepare.json. The "
                           "same command again finds them. Text is UTF-8, a sentence a line; files that end in .gz "
                           "are unpacked. The words <s>, <pad> and </s>, which fairseq reserves, are refused.")
    parser.add_argument("--out", required=True, metavar="DIR", help="output directory")
    parser.add_argument("--workers", type=positive_int, default=os.cpu_count() or 1, metavar="N",
                        help="processes (default: %(default)s)")
    return parser


def read_lines(path):
    """The lines of a text file, plain or gzipped, without their line ends, one after the other."""
    with (gzip.open if Path(path).suffix == ".gz" else open)(path, "rb") as file:
        yield from decoded_lines(file, path)


def decoded_lines(file, name):
    """The lines of a binary file object; ``name`` is what errors call it."""
    try:
        for line in io.TextIOWrapper(file, encoding="utf-8-sig", newline="\n"):
            yield line.rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{name}: not UTF-8 text: convert it, e.g. iconv -f latin1 -t utf-8 FILE") from None


def words(line, place):
    """The words of a line, as fairseq sees them: what white space separates."""
    split = line.split()
    for word in RESERVED.intersection(split):
        raise ValueError(f"{place}: has the word {word}, which fairseq reserves: leave it out or spell it otherwise")
    return split


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def prepare_folder(out, options, sources, make):
    """Returns what ``make(folder)`` does of a new folder, which becomes ``out`` once it is whole.

    ``out/prepare.json`` keeps that result, and a digest of options and sources: the same call again finds its folder.

    Args:
        options: JSON-able; all that the folder depends on besides its sources.
        sources: the files that are read.
    """
    out = Path(out)
    digest = hashlib.sha256(json.dumps(options, sort_keys=True, default=str).encode())
    for path in sources:
        digest.update(hashlib.sha256(Path(path).read_bytes()).digest())
    key, record = digest.hexdigest(), out / "prepare.json"
    if record.is_file() and f'"{key}"' in record.read_text(encoding="utf-8"):
        return json.loads(record.read_text(encoding="utf-8"))["result"]
    if out.is_file() or out.is_dir() and os.listdir(out):
        raise ValueError(f"--out {out}: exists, from other files or options: remove it, or give another directory")
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{out.name}.", dir=out.parent) as beside:
        made = Path(beside, "made")
        made.mkdir()
        result = make(made)
        write_lines(made / "prepare.json", [json.dumps({"key": key, "result": result}, indent=1)])
        made.rename(out)
    return result


def binarise(folder, workers, *options, ending=""):
    """Make ``folder/data-bin`` of the texts in ``folder``, ``SPLIT`` and ``ending``, by fairseq-preprocess.

    Returns:
        Of each text, ``SPLIT`` or ``SPLIT.LANGUAGE``: its lines, tokens (words and line ends) and unknown words.
    """
    from fairseq import options as fairseq_options
    from fairseq.data import Dictionary
    from fairseq_cli import preprocess

    from fairseq_kernels.word_counts import word_counts

    made, counts = folder / "data-bin", {}
    texts = [f"--{split}pref={folder / split}{ending}" for split in SPLITS]
    workers = min(workers, 1 + sum(path.stat().st_size for path in folder.iterdir()) // (1 << 22))  # 4 MiB each
    command = map(str, (*options, *texts, "--destdir", made, "--workers", workers))
    preprocess.main(fairseq_options.get_preprocessing_parser().parse_args([*command]))
    (made / "preprocess.log").unlink()
    for split, path in product(SPLITS, sorted(made.glob("dict*.txt"))):
        dictionary, language = Dictionary.load(str(path)), path.stem.removeprefix("dict")
        [index] = made.glob(f"{split}*{language}.idx")
        occurrences = word_counts(index.with_suffix(""), dictionary)
        counts[f"{split}{language}"] = {"lines": int(occurrences[dictionary.eos()]), "tokens": int(occurrences.sum()),
                                        "unknown": int(occurrences[dictionary.unk()])}
    return counts
