"""Text for language models, as it is: its words stay, white space between them becomes single spaces.

The recipes of single corpora (prepare_ptb, prepare_wikitext, prepare_swb) call ``prepare`` with text of their own.
"""

import shutil
from collections import Counter
from itertools import chain, repeat
from pathlib import Path

import common
from common import BAR, SPLITS, read_lines, words, write_lines
from tqdm import tqdm

from fairseq_kernels.errors import positive_int

OUTPUT = ("train.txt, valid.txt, test.txt, dict.txt, SPLIT.parts where the conversations of a split are known (the "
          "number of lines of each)")


def argument_parser(description, vocab_size=None, min_count=1):
    """The options that all preparations of text share; a recipe adds where its text comes from."""
    parser = common.argument_parser(description, OUTPUT)
    parser.add_argument("--vocab-size", type=positive_int, default=vocab_size, metavar="N",
                        help="words in the vocabulary at most; the others become <unk> (default: "
                        f"{vocab_size or 'all words'})")
    parser.add_argument("--min-count", type=positive_int, default=min_count, metavar="N",
                        help="leave out of the vocabulary words seen less often in training (default: %(default)s)")
    return parser


def prepare(args, sources, options, lines):
    """Make ``args.out`` with text, dictionary and ``data-bin``, and print their counts.

    Args:
        args: parsed options of ``argument_parser``.
        sources: the files that the text is read from.
        options: JSON-able; all that the text depends on besides them.
        lines: function of a split that yields ``(conversation or None, line)``; conversations are whole, one after the
            other.

    Returns:
        ``{split: {lines, tokens, unknown, perplexity}}`` and the size of the vocabulary.
    """
    def make(folder):
        types = write_text(folder, lines)
        return {**write_data_bin(folder, args.workers, args.vocab_size, args.min_count), "types": types}

    result = common.prepare_folder(args.out, [options, args.vocab_size, args.min_count], sources, make)
    splits, vocabulary = result["splits"], result["vocabulary"]
    print("             lines        words    with </s>       <unk>     share   unigram perplexity")
    for split, row in splits.items():
        words = row["tokens"] - row["lines"]
        print(f"{split:6}{row['lines']:12,}{words:13,}{row['tokens']:13,}{row['unknown']:12,}"
              f"{100 * row['unknown'] / max(words, 1):8.2f} %{row['perplexity']:21.2f}")
    print(f"vocabulary: {vocabulary:,} words of {result['types']:,}; with <unk> and </s> {vocabulary + 2:,}")
    if any(row["unknown"] for row in splits.values()) and not splits["train"]["unknown"]:
        print("note: <unk> occurs in valid or test but never in training, so the model scores it badly. --min-count 2 "
              "turns words seen once into <unk>")
    print(f"ready: {Path(args.out) / 'data-bin'}")
    return splits, vocabulary


def write_text(folder, lines):
    """Write ``SPLIT.txt`` and ``SPLIT.parts``; returns how many different words the training text has."""
    types = set()
    for split in SPLITS:
        lengths = Counter()
        with open(folder / f"{split}.txt", "w", encoding="utf-8", newline="\n") as file:
            for conversation, line in lines(split):
                file.write(line + "\n")
                lengths[conversation] += 1
                if split == "train":
                    types.update(line.split())
        if not lengths:
            raise ValueError(f"the {split} text is empty: give files with text")
        if None not in lengths and len(lengths) > 1:
            write_lines(folder / f"{split}.parts", lengths.values())
    return len(types - {"<unk>"})


def write_data_bin(folder, workers, size, min_count):
    """Write ``dict.txt`` and ``data-bin``.

    Returns:
        The counts of each split with its unigram perplexity, and the words in the vocabulary.
    """
    from fairseq.data import Dictionary

    from fairseq_kernels.word_counts import unigram_perplexities

    limits = ["--thresholdsrc", min_count, "--nwordssrc", size + Dictionary().nspecial if size else -1]
    splits = common.binarise(folder, workers, "--only-source", *limits, "--padding-factor", 1, ending=".txt")
    shutil.copyfile(folder / "data-bin" / "dict.txt", folder / "dict.txt")
    for split, perplexity in unigram_perplexities(folder / "data-bin").items():
        splits[split]["perplexity"] = perplexity
    return {"splits": splits, "vocabulary": len(list(read_lines(folder / "dict.txt")))}


def lines_of(path, lower=False):
    """Yield ``(conversation, line)`` of a text file, as ``prepare`` takes them."""
    parts = parts_of(path)
    conversations = chain.from_iterable(map(repeat, range(len(parts)), parts)) if parts else repeat(None)
    number = 0
    for number, line in enumerate(tqdm(read_lines(path), str(path), unit=" lines", **BAR), start=1):
        yield next(conversations, None), " ".join(words(line.lower() if lower else line, f"{path}:{number}"))
    if parts and sum(parts) != number:
        raise ValueError(f"{path}: has {number:,} lines, but its .parts file counts {sum(parts):,}: correct it")


def parts_of(path):
    """The numbers of lines of a text's conversations, from the file beside it that ends in .parts; none without one."""
    path = Path(path).with_suffix(".parts")
    return list(map(int, read_lines(path))) if path.is_file() else []


def prepare_files(args, paths):
    """``prepare`` of text files, ``{split: path}``; ``args.lower`` makes them lower case."""
    parts = {split: parts_of(path) for split, path in paths.items()}
    return prepare(args, paths.values(), [args.lower, parts], lambda split: lines_of(paths[split], args.lower))


def add_lower(parser):
    parser.add_argument("--lower", action="store_true", help="make the text lower case")


def prepare_corpus(description, name, known):
    """Prepare a corpus as it is distributed, in files of that name with a split for ``{}``, or ``{}.txt``; and compare
    its counts with ``known``: ``{edition: ({split: tokens with line ends}, vocabulary with <unk> and </s>)}``."""
    parser = argument_parser(description)
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder with "
                        + ", ".join(f"{name.format(split)} or {split}.txt" for split in SPLITS))
    add_lower(parser)
    args = parser.parse_args()
    paths = {}
    for split in SPLITS:
        files = [args.data / f"{form.format(split)}{packed}" for form in (name, "{}.txt") for packed in ("", ".gz")]
        paths[split] = next(filter(Path.is_file, files), files[0])
    splits, vocabulary = prepare_files(args, paths)
    tokens = {split: splits[split]["tokens"] for split in SPLITS}
    for edition, (sizes, entries) in known.items():
        same = "the counts are" if (sizes, entries) == (tokens, vocabulary + 2) else "note: the counts aren't"
        figures = " + ".join(f"{size:,}" for size in sizes.values())
        print(f"{same} those of {edition} as published, {figures} tokens with line ends and {entries:,} words")


def main():
    parser = argument_parser("Any text, as it is, to fairseq's binary data for language models.")
    for split in SPLITS:
        parser.add_argument(f"--{split}", required=True, type=Path, metavar="FILE",
                            help=f"{split} text; blank lines stay, as line ends alone; where FILE has a neighbour with "
                            "the end .parts, that has the number of lines of each conversation")
    add_lower(parser)
    args = parser.parse_args()
    prepare_files(args, {split: getattr(args, split) for split in SPLITS})
