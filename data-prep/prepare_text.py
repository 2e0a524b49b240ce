"""Text for language models, as it is: its words stay, white space between them becomes single spaces.

The recipes of single corpora (prepare_ptb, prepare_wikitext, prepare_swb) call ``prepare`` with text of their own.
"""

import os
import shutil
from contextlib import ExitStack
from pathlib import Path

from common import (
    SPLITS,
    TEXT_RULES,
    CommandParser,
    InputError,
    Once,
    Stages,
    atomic_write,
    binarise,
    build_dictionary,
    check_file,
    given_path,
    positive_int,
    progress,
    read_lines,
    run,
    stat_of,
    words,
)

OUTPUT = ("--out receives train.txt, valid.txt, test.txt, dict.txt, data-bin/ (for fairseq-train --task "
          "language_modeling) and prepare.json, the record of what is done: the same command run again does only what "
          "is missing.")


def argument_parser(program, description, vocab_size=None, min_count=1):
    """The options that all preparations of text share; a recipe adds where its text comes from."""
    parser = CommandParser(prog=program, description=description, epilog=f"{OUTPUT} {TEXT_RULES}")
    parser.add_argument("--out", required=True, metavar="DIR", help="output directory")
    parser.add_argument("--vocab-size", type=positive_int, default=vocab_size, metavar="N",
                        help="words in the vocabulary at most; the others become <unk> (default: "
                        f"{vocab_size or 'all words'})")
    parser.add_argument("--min-count", type=positive_int, default=min_count, metavar="N",
                        help="leave out of the vocabulary words seen less often in training (default: %(default)s)")
    return parser


def prepare(args, sources, key, utterances, skipped=None):
    """Make the text, the dictionary and ``data-bin`` in ``args.out``, where they are missing, and print their counts.

    Args:
        args: parsed options of ``argument_parser``.
        sources: the files that the text is read from.
        key: JSON-able; all that the text depends on.
        utterances: function without arguments that yields ``(split, line)``, words separated by white space.
        skipped: a dictionary to which it adds the lines that it leaves out, by file; a later call prints them, too.

    Returns:
        ``{split: {lines, tokens, unknown, perplexity}}`` and the size of the vocabulary.
    """
    names = [f"{split}.txt" for split in SPLITS]
    with Stages(args.out, [*names, "dict.txt", "data-bin"], sources) as stages:
        skipped = stages.run("text", key, names, lambda: write_text(stages.out, utterances()) or skipped)
        result = stages.run("data-bin", [key, args.vocab_size, args.min_count], ["dict.txt", "data-bin"],
                            lambda: write_data_bin(stages.out, args.vocab_size, args.min_count))
    report(result)
    if skipped:
        print(f"skipped: {sum(skipped.values()):,} lines of another form in {len(skipped):,} files, the first of them "
              f"{next(iter(skipped))}")
    print(f"ready: {stages.out / 'data-bin'}")
    return result["splits"], result["vocabulary"]


def write_text(out, utterances):
    """Write ``{split}.txt`` of ``(split, line)``; older files stay until the new ones are complete."""
    with ExitStack() as stack:
        files = {split: stack.enter_context(atomic_write(out / f"{split}.txt")) for split in SPLITS}
        filled = set()
        for split, line in utterances:
            files[split].write(line + "\n")
            if line:
                filled.add(split)
        for split in SPLITS:
            if split not in filled:
                raise InputError(f"the {split} text has no words: give files with text")
        shutil.rmtree(out / "data-bin", ignore_errors=True)  # no data-bin of other text stays


def write_data_bin(out, size, min_count):
    """Write ``dict.txt`` and ``data-bin``.

    Returns:
        The counts of each split with its unigram perplexity, words in the vocabulary, types of the training text.
    """
    from fairseq_kernels.word_counts import unigram_perplexities

    dictionary, types = build_dictionary([out / "train.txt"], min_count, size)
    vocabulary = len(dictionary) - dictionary.nspecial
    if not vocabulary:
        raise InputError(f"no word is seen {min_count} times in training: lower --min-count")
    texts = {split: (out / f"{split}.txt", "dict.txt") for split in SPLITS}
    splits = binarise(out, texts, {"dict.txt": dictionary})
    shutil.copyfile(out / "data-bin" / "dict.txt", out / "dict.txt.part")
    os.replace(out / "dict.txt.part", out / "dict.txt")
    for split, perplexity in unigram_perplexities(out / "data-bin").items():
        splits[split]["perplexity"] = perplexity
    return {"splits": splits, "vocabulary": vocabulary, "types": types}


def report(result):
    """Print the counts."""
    print("             lines        words    with </s>       <unk>     share   unigram perplexity")
    for split, row in result["splits"].items():
        words = row["tokens"] - row["lines"]
        print(f"{split:6}{row['lines']:12,}{words:13,}{row['tokens']:13,}{row['unknown']:12,}"
              f"{100 * row['unknown'] / words:8.2f} %{row['perplexity']:21.2f}")
    vocabulary = result["vocabulary"]
    print(f"vocabulary: {vocabulary:,} words of {result['types']:,}; with <unk> and </s> {vocabulary + 2:,}")
    unknown = {split: row["unknown"] for split, row in result["splits"].items()}
    if any(unknown.values()) and not unknown["train"]:
        print("note: <unk>, which other texts have, never occurs in training, and so is scored badly: --min-count 2 "
              "turns words seen once into <unk>")


def lines_of(paths, lower=False):
    """Yield ``(split, line)`` of text files, ``{split: path}``, as ``prepare`` takes them."""
    size = sum(Path(path).stat().st_size for path in paths.values())
    with progress(label="reading", total=size, unit="B", unit_scale=True) as bar:
        for split, path in paths.items():
            for number, line in enumerate(read_lines(path), start=1):
                bar.update(len(line))
                line = line.lower() if lower else line
                yield split, " ".join(words(line, f"{path}:{number}"))


def prepare_files(args, paths):
    """``prepare`` of text files, ``{split: path}``; ``args.lower`` makes them lower case."""
    for path in paths.values():
        check_file(path)
    return prepare(args, paths.values(), [stat_of(paths.values()), args.lower], lambda: lines_of(paths, args.lower))


def add_lower(parser):
    parser.add_argument("--lower", action="store_true", help="make the text lower case")


def prepare_corpus(program, description, names, known):
    """Prepare a corpus as it is distributed, a file a split, and compare its counts with what is known of it.

    Args:
        names: ``{split: file names}``, of which the first that is there is read.
        known: ``{edition: ({split: tokens with line ends}, vocabulary with <unk> and </s>)}``.
    """
    parser = argument_parser(program, description)
    parser.add_argument("--data", required=True, type=given_path, metavar="DIR", help="folder with " + ", ".join(
        " or ".join(names[split]) for split in SPLITS))
    add_lower(parser)
    args = parser.parse_args()
    paths = {}
    for split in SPLITS:
        files = [args.data / f"{name}{packed}" for name in names[split] for packed in ("", ".gz")]
        there = [file for file in files if file.is_file()]
        if not there:
            raise InputError(f"--data {args.data}: has no {' or '.join(names[split])}: give the unpacked folder")
        paths[split] = there[0]
    splits, vocabulary = prepare_files(args, paths)
    tokens = {split: splits[split]["tokens"] for split in SPLITS}
    for edition, counts in known.items():
        if counts == (tokens, vocabulary + 2):
            print(f"these are the counts of {edition} as published")
            return
    published = "; ".join(f"{edition}: {' + '.join(f'{count:,}' for count in counts.values())} tokens, V = {size:,}"
                          for edition, (counts, size) in known.items())
    print(f"note: another edition, or options that change it; published are, with line ends, {published}")


def main():
    parser = argument_parser("prepare-text.sh", "Any text, as it is, to fairseq's binary data for language models.")
    for split in SPLITS:
        parser.add_argument(f"--{split}", required=True, type=given_path, metavar="FILE", action=Once,
                            help=f"{split} text, a sentence a line; blank lines stay, as line ends alone")
    add_lower(parser)
    args = parser.parse_args()
    prepare_files(args, {split: getattr(args, split) for split in SPLITS})


if __name__ == "__main__":
    run(main, "prepare-text.sh")
