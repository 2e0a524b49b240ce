"""data-prep/prepare-text.sh and the recipes for PTB and WikiText: words, vocabulary, wrong text, interruptions."""

import errno
import gzip
import math
import os
import subprocess
import sys
from collections import Counter

import pytest
from filelock import FileLock
from preparations import (
    DATA_PREP,
    bitext,
    call,
    check_kills,
    common,
    error_of,
    iwslt14,
    lines_of,
    multi30k,
    ptb,
    swb,
    text,
    tree,
    wikitext,
    write,
)

TEXTS = {
    "train": " no it was n't <unk> N  N\n\n = Title =\nthe cat , the dog\t.\n",
    "valid": "the dog was n't\n",
    "test": "The <unk> bird\nno cat\n",
}


@pytest.fixture
def sources(tmp_path):
    """Options that name three texts."""
    files = {split: write(tmp_path / "raw" / f"{split}.txt", content) for split, content in TEXTS.items()}
    return [argument for split, file in files.items() for argument in (f"--{split}", file)]


@pytest.fixture
def prepare(monkeypatch, sources, tmp_path):
    """Prepare the three texts in ``tmp_path/out``."""
    def run(*options):
        call(monkeypatch, text, *sources, "--out", tmp_path / "out", *options)
        return tmp_path / "out"

    return run


# ------------------------------------------------------------------------------------------- words, vocabulary


def test_words_stay_as_they_are(prepare):
    """Punctuation, case, numbers, <unk> and blank lines; white space becomes single spaces."""
    out = prepare()
    assert lines_of(out / "train.txt") == ["no it was n't <unk> N N", "", "= Title =", "the cat , the dog ."]
    assert lines_of(out / "test.txt") == ["The <unk> bird", "no cat"]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_longest_line(end, tmp_path):
    """Its end isn't of it."""
    assert list(common.read_lines(write(tmp_path / "text", "a" * 1_000_000 + end))) == ["a" * 1_000_000]


def test_lower(prepare, tmp_path):
    assert lines_of(prepare("--lower") / "test.txt") == ["the <unk> bird", "no cat"]
    write(tmp_path / "raw" / "test.txt", "a </S>\n")
    with pytest.raises(common.InputError, match="has the word </s>"):  # reserved in lower case
        prepare("--lower")


@pytest.mark.parametrize(("options", "words"), [
    ((), ["=", "N", "the", ",", ".", "Title", "cat", "dog", "it", "n't", "no", "was"]),
    (("--min-count", 2), ["=", "N", "the"]),
    (("--vocab-size", 2), ["=", "N"]),
])
def test_vocabulary(prepare, options, words):
    """Most frequent first, ties in alphabetical order, without the words that fairseq has itself."""
    out = prepare(*options)
    assert [line.split()[0] for line in lines_of(out / "dict.txt")] == words
    assert (out / "dict.txt").read_bytes() == (out / "data-bin" / "dict.txt").read_bytes()


def test_unknown_words_that_training_never_sees(prepare, capsys, tmp_path):
    write(tmp_path / "raw" / "train.txt", "a b\na c\n")
    for options, noted in ((), True), (("--min-count", 2), False):
        prepare(*options)
        assert ("note: <unk>, which other texts have, never occurs" in capsys.readouterr().out) == noted


def test_binarised_text_is_the_text(prepare):
    """What fairseq reads back is the text, with <unk> for words outside the vocabulary."""
    from fairseq.data import Dictionary, data_utils

    out = prepare("--vocab-size", 4)
    dictionary = Dictionary.load(str(out / "data-bin" / "dict.txt"))
    for split in common.SPLITS:
        data = data_utils.load_indexed_dataset(str(out / "data-bin" / split), dictionary)
        expected = [" ".join(word if word in dictionary else "<unk>" for word in line.split())
                    for line in lines_of(out / f"{split}.txt")]
        assert [dictionary.string(line, unk_string="<unk>") for line in data] == expected


def test_counts_and_unigram(prepare, capsys):
    """The report against the formula, token by token."""
    out = prepare("--vocab-size", 4)
    known = {line.split()[0] for line in lines_of(out / "dict.txt")}

    def tokens(split):
        return [word for line in lines_of(out / f"{split}.txt") for word in
                [*(word if word in known else "<unk>" for word in line.split()), "</s>"]]

    counts = Counter(tokens("train"))
    total = sum(counts.values()) + len(known) + 2  # one more for each word, <unk> and </s>
    nats = [-math.log((counts[token] + 1) / total) for token in tokens("test")]
    report = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()}
    assert report["test"] == ["test", "2", "5", "7", "5", "100.00", "%", f"{math.exp(sum(nats) / 7):.2f}"]
    assert report["vocabulary:"] == "vocabulary: 4 words of 12; with <unk> and </s> 6".split()


# -------------------------------------------------------------------------------------------- PTB, WikiText


@pytest.mark.parametrize(("recipe", "name"), [
    (ptb, "ptb.{}.txt"), (ptb, "{}.txt"), (wikitext, "wiki.{}.tokens"), (wikitext, "{}.txt.gz"),
])
def test_recipes(monkeypatch, tmp_path, capsys, recipe, name):
    """The text as prepare-text makes it, all of its words, and a word on whether the counts are the published ones."""
    for split, content in TEXTS.items():
        packed = gzip.compress(content.encode()) if name.endswith(".gz") else content
        write(tmp_path / "raw" / name.format(split), packed)
    call(monkeypatch, recipe, "--data", tmp_path / "raw", "--out", tmp_path / "out")
    assert "note: another edition" in capsys.readouterr().out
    assert len(lines_of(tmp_path / "out" / "dict.txt")) == 12
    monkeypatch.setattr(recipe, "KNOWN", {"this": ({"train": 20, "valid": 5, "test": 7}, 14)})
    call(monkeypatch, recipe, "--data", tmp_path / "raw", "--out", tmp_path / "out")
    assert "these are the counts of this as published" in capsys.readouterr().out


def test_recipe_without_its_files(monkeypatch, tmp_path):
    error = error_of(monkeypatch, ptb, "--data", tmp_path, "--out", tmp_path / "out")
    assert "has no ptb.train.txt or train.txt" in error and not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------------ wrong text


BAD_TEXT = {
    "NUL": (b"fine\nno\0 good\n", "{path}:2: NUL bytes"),
    "carriage return": (b"fine\rno line ends\r", "{path}:1: a carriage return within the line"),
    "UTF-16": ("\ufefffine\n".encode("utf-16-le"), "{path}:1: NUL bytes: if it is UTF-16, iconv -f utf-16"),
    "UTF-16 without Latin": ("\ufeff日本".encode("utf-16-le"), "{path}:1: not UTF-8 text"),
    "Latin-1": (b"fine\ncaf\xe9\n", "{path}:2: not UTF-8 text: convert it, e.g. iconv -f latin1"),
    "a byte too many": (b"a" * 1_000_001 + b"\n", "{path}:1: a line above 1,000,000 bytes"),
    "one long line": (b"fine\n" + b"word " * 200_001 + b"\n", "{path}:2: a line above 1,000,000 bytes"),
    "reserved": (b"fine\n<s> no </s>\n", "{path}:2: has the word <"),
    "blank": (b" \n\n", "the train text has no words"),
    "empty": (b"", "the train text has no words"),
}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_wrong_text_is_told(monkeypatch, tmp_path, sources, case):
    """With the line, what to do, and nothing left behind."""
    content, message = BAD_TEXT[case]
    path = write(tmp_path / "bad.txt", content)
    error = error_of(monkeypatch, text, *sources, "--train", path, "--out", tmp_path / "out")
    assert message.format(path=path) in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name, content",
    [
        ("train.txt", "words"), ("data-bin/mine.bin", "precious"), ("prepare.json", "my own notes"),
        ("prepare.json", "[]"), ("prepare.json", "null"), ("prepare.json", '{"text": {}}'), ("prepare.json", '{"a":1}'),
    ],
)
def test_nothing_of_others_is_overwritten(monkeypatch, tmp_path, sources, name, content):
    write(tmp_path / "out" / name, content)
    error = error_of(monkeypatch, text, *sources, "--out", tmp_path / "out")
    assert f"{name} is there, and no preparation has made it: move it away" in error
    assert tree(tmp_path / "out") == {name: content.encode()}


def test_nothing_of_others_is_removed_from_a_prepared_folder(prepare, monkeypatch, sources):
    out = prepare()
    write(out / "data-bin" / "mine.bin", "precious")
    before = tree(out)
    error = error_of(monkeypatch, text, *sources, "--vocab-size", 2, "--out", out)
    assert "data-bin/mine.bin is there, and no preparation has made it" in error and tree(out) == before


@pytest.mark.parametrize("name", ["train.txt", "valid.txt.part", "data-bin.part/train.txt", "data-bin/train.txt"])
@pytest.mark.parametrize("prepared", [False, True])
def test_what_is_read_is_not_overwritten(prepare, monkeypatch, tmp_path, sources, name, prepared):
    out = prepare() if prepared else tmp_path / "out"
    source = write(out / name, "words\n")
    before = tree(out)
    error = error_of(monkeypatch, text, *sources, "--train", source, "--lower", "--out", out)
    assert f"{source} is read, and would be overwritten: give another directory" in error and tree(out) == before


def test_an_empty_folder_is_not_the_current_one(monkeypatch, sources):
    assert "--out is empty: give a directory" in error_of(monkeypatch, text, *sources, "--out", "")


@pytest.mark.parametrize("content", [
    b"\xef\xbb\xbfone two\r\n\r\nthree\r\n", b"one two\n\nthree", b"one\xc2\xa0two \n \nthree\n",
    b"one two\n\nthree\n" + b"", gzip.compress(b"one two\n\nthree\n"),
], ids=["BOM, CRLF", "no last line end", "white space", "plain", "gzip"])
def test_text_that_is_taken(monkeypatch, tmp_path, sources, content):
    path = write(tmp_path / ("good.txt" + ".gz" * content.startswith(b"\x1f\x8b")), content)
    call(monkeypatch, text, *sources, "--train", path, "--out", tmp_path / "out")
    assert lines_of(tmp_path / "out" / "train.txt") == ["one two", "", "three"]


def test_other_line_separators_are_white_space(monkeypatch, tmp_path, sources):
    """Python's splitlines would part lines at them; fairseq doesn't."""
    path = write(tmp_path / "odd.txt", "a\u2028b\x85c\x0cd\x1ce\n")
    call(monkeypatch, text, *sources, "--valid", path, "--out", tmp_path / "out")
    assert lines_of(tmp_path / "out" / "valid.txt") == ["a b c d e"]


def test_gzip_under_another_name(monkeypatch, tmp_path, sources):
    path = write(tmp_path / "packed.txt", gzip.compress(b"one two\n"))
    call(monkeypatch, text, *sources, "--test", path, "--out", tmp_path / "out")
    assert lines_of(tmp_path / "out" / "test.txt") == ["one two"]


@pytest.mark.parametrize("name, content", [
    ("cut.gz", gzip.compress(b"some words\n" * 50)[:-9]), ("cut", gzip.compress(b"some words\n" * 50)[:-9]),
    ("page.gz", b"<html>not found</html>\n"),
], ids=["cut.gz", "cut", "page.gz"])
def test_broken_gzip(monkeypatch, tmp_path, sources, name, content):
    path = write(tmp_path / name, content)
    error = error_of(monkeypatch, text, *sources, "--test", path, "--out", tmp_path / "out")
    assert f"{path}: no gzip file, or not all of it" in error


BAD_OPTIONS = {
    "folder": (["--train", "{tmp}"], "{tmp}: is a folder: give a file"),
    "missing file": (["--train", "{tmp}/none"], "{tmp}/none: no such file"),
    "size": (["--vocab-size", "0"], "--vocab-size: '0' is not a whole number from 1 to"),
    "count": (["--min-count", "two"], "--min-count: 'two' is not a whole number from 1 to"),
    "rare": (["--min-count", "99"], "no word is seen 99 times in training: lower --min-count"),
    "out": (["--out", "{tmp}/file"], "--out {tmp}/file: is, or lies in, a file"),
    "below": (["--out", "{tmp}/file/x"], "--out {tmp}/file/x: is, or lies in, a file"),
    "option": (["--vocab-sise", "3"], "unknown option --vocab-sise; did you mean --vocab-size?"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_wrong_options_are_told(monkeypatch, tmp_path, sources, case):
    arguments, message = BAD_OPTIONS[case]
    write(tmp_path / "file", "words\n")
    arguments = [argument.format(tmp=tmp_path) for argument in arguments]
    assert message.format(tmp=tmp_path) in error_of(monkeypatch, text, *sources, "--out", tmp_path / "out", *arguments)


@pytest.mark.parametrize("module, options", [
    (text, "--train --valid --test"), (ptb, "--data"), (multi30k, "--data"), (iwslt14, "--archive"),
    (bitext, "--train --valid --test --code --dict-source --dict-target"),
    (swb, "--swda --swb1 --fisher --hub5 --train --valid --test"),
], ids=lambda value: getattr(value, "__name__", ""))
def test_an_unset_variable_is_told(monkeypatch, module, options):
    """An empty path is neither the current folder nor an option left out."""
    for option in options.split():
        assert f"argument {option}: '' is no path: give" in error_of(monkeypatch, module, option, "")


# --------------------------------------------------------------------------------------------- interruptions


def test_rerun_does_only_what_is_missing(prepare, monkeypatch, tmp_path):
    out = prepare()
    files = tree(out)
    assert set(files) == {"train.txt", "valid.txt", "test.txt", "dict.txt", "prepare.json", "data-bin/dict.txt",
                          *(f"data-bin/{split}.{kind}" for split in common.SPLITS for kind in ("bin", "idx"))}
    stages = []
    for stage in ("write_text", "write_data_bin"):
        original = getattr(text, stage)
        monkeypatch.setattr(text, stage, lambda *a, f=original, s=stage: stages.append(s) or f(*a))

    def rerun(*options):
        stages.clear()
        prepare(*options)
        return list(stages)

    assert rerun() == [] and tree(out) == files
    assert rerun("--vocab-size", 2) == ["write_data_bin"] and rerun("--min-count", 2) == ["write_data_bin"]
    assert rerun() == ["write_data_bin"] and tree(out) == files
    (out / "data-bin" / "train.bin").unlink()
    assert rerun() == ["write_data_bin"] and tree(out) == files
    (out / "valid.txt").write_text("cut\n")
    assert rerun() == ["write_text", "write_data_bin"] and tree(out) == files
    write(tmp_path / "raw" / "train.txt", TEXTS["train"] + "one more\n")
    assert rerun() == ["write_text", "write_data_bin"] and b"one more\n" in tree(out)["train.txt"]


def test_a_failing_rerun_leaves_the_text(prepare, tmp_path, monkeypatch, sources):
    out = prepare()
    files = tree(out)
    write(tmp_path / "raw" / "test.txt", b"damaged \xff\n")
    error_of(monkeypatch, text, *sources, "--out", out)
    assert {**tree(out), "prepare.json": b""} == {**files, "prepare.json": b""}


def test_killed_anywhere(prepare, tmp_path, monkeypatch, sources):
    older, newer = prepare("--vocab-size", 3), tmp_path / "newer"
    write(tmp_path / "raw" / "train.txt", TEXTS["train"] + "one more\n")
    call(monkeypatch, text, *sources, "--out", newer)
    assert check_kills(text, sources, older, tree(newer), tmp_path / "killed") > 8


def test_two_at_once(prepare, tmp_path):
    with common.Stages(tmp_path / "out"):
        with pytest.raises(common.InputError, match="another preparation is writing there"):
            prepare()
    prepare()


def test_a_refused_preparation_deletes_nothing_of_the_next(monkeypatch, tmp_path):
    """It releases the lock last, when all that was its own is gone."""
    left, release = [], FileLock.release

    def released(lock, *how):
        left.append(sorted(path.name for path in tmp_path.rglob("*")))
        release(lock, *how)

    monkeypatch.setattr(FileLock, "release", released)
    with pytest.raises(common.InputError, match="wrong text"), common.Stages(tmp_path / "out"):
        raise common.InputError("wrong text")
    assert left[0] == []
    left.clear()
    write(tmp_path / "out" / "dict.txt", "a user's")
    with pytest.raises(common.InputError, match="no preparation has made it"):
        common.Stages(tmp_path / "out", ["dict.txt"])
    assert left[0] == ["dict.txt", "out"]


# ------------------------------------------------------------------------------------------------- the command


def script(*arguments, **environment):
    """prepare-text.sh with this Python."""
    environment = {**os.environ, "PYTHON_BIN": sys.executable, **environment}
    return subprocess.run([DATA_PREP / "prepare-text.sh", *map(str, arguments)], env=environment, capture_output=True,
                          text=True, check=False)


def test_the_command(sources, tmp_path):
    done = script(*sources, "--out", tmp_path / "out")
    assert done.returncode == 0 and done.stdout.endswith(f"ready: {tmp_path / 'out' / 'data-bin'}\n"), done.stderr
    failed = script(*sources, "--out", tmp_path / "raw" / "train.txt")
    assert failed.returncode == 2 and failed.stdout == ""
    assert failed.stderr.startswith("prepare-text.sh: error: --out") and failed.stderr.count("\n") == 1


def test_a_second_file_is_not_taken_for_the_first(sources, tmp_path):
    failed = script(*sources, "--train", tmp_path / "other", "--out", tmp_path / "out")
    assert failed.returncode == 2 and not (tmp_path / "out").exists()
    assert failed.stderr == "prepare-text.sh: error: --train is given twice; give it once\n"


def test_help_states_what_text_is_taken():
    words = " ".join(script("--help").stdout.split())
    for part in ("UTF-8", "NUL bytes", "carriage returns", "1,000,000 bytes", "UTF-16", "Windows' line ends"):
        assert part in words


def test_a_python_without_fairseq(sources, tmp_path):
    for python, message in ((tmp_path / "none", "no such Python"),
                            (write(tmp_path / "python", "#!/bin/sh\necho fairseq\n"), "has no fairseq")):
        python.exists() and python.chmod(0o755)
        done = script(*sources, "--out", tmp_path / "out", PYTHON_BIN=str(python))
        assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1


def test_a_full_disk_is_named(tmp_path):
    """Python leaves out the file where writing fails; the line says at least in which folder."""
    with pytest.raises(OSError, match="No space left") as caught, common.Stages(tmp_path / "out"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(tmp_path / "out") and not (tmp_path / "out").exists()
