"""data-prep/prepare-text.sh and the recipes for PTB and WikiText: words, vocabulary, conversations, wrong text."""

import gzip
import math
import os
import subprocess
from collections import Counter

import pytest
from forked_python import forked_python
from preparations import DATA_PREP, call, common, error_of, lines_of, ptb, text, topics, tree, wikitext, write

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
    """Prepare the three texts in a folder of its own."""
    folders = iter(range(9))

    def run(*options):
        out = tmp_path / f"out{next(folders)}"
        call(monkeypatch, text, *sources, "--out", out, *options)
        return out

    return run


def test_words_stay_as_they_are(prepare):
    """Punctuation, case, numbers, <unk> and blank lines; white space becomes single spaces."""
    out = prepare()
    assert lines_of(out / "train.txt") == ["no it was n't <unk> N N", "", "= Title =", "the cat , the dog ."]
    assert lines_of(out / "test.txt") == ["The <unk> bird", "no cat"]


def test_lower(prepare, tmp_path):
    assert lines_of(prepare("--lower") / "test.txt") == ["the <unk> bird", "no cat"]
    write(tmp_path / "raw" / "test.txt", "a </S>\n")
    with pytest.raises(ValueError, match="has the word </s>"):  # reserved in lower case
        prepare("--lower")


@pytest.mark.parametrize(("options", "words"), [
    ((), ["=", "N", "the", ",", ".", "Title", "cat", "dog", "it", "n't", "no", "was"]),
    (("--min-count", 2), ["=", "N", "the"]),
    (("--vocab-size", 2), ["=", "N"]),
])
def test_vocabulary(prepare, options, words):
    """Of the training text, most frequent first, ties in alphabetical order, without the words of fairseq's own."""
    out = prepare(*options)
    assert [line.split()[0] for line in lines_of(out / "dict.txt")] == words
    assert (out / "dict.txt").read_bytes() == (out / "data-bin" / "dict.txt").read_bytes()


def test_unknown_words_that_training_never_sees(prepare, capsys, tmp_path):
    write(tmp_path / "raw" / "train.txt", "a b\na c\n")
    for options, noted in ((), True), (("--min-count", 2), False):
        prepare(*options)
        assert ("note: <unk> occurs in valid or test but never in training" in capsys.readouterr().out) == noted


def test_the_quickstart_trains_on_other_paragraphs_than_it_tests(monkeypatch, tmp_path):
    """Of 20 paragraphs the 19th and the 20th are held out; code, tables, titles and repetitions are none."""
    text = ' is *here*. Does it_"end"? Yes! So: `no`; 12 / 7. Or so.'
    paragraphs = [f"Paragraph {number}{text}" for number in range(40)]
    code = [">>> print('of no use at all')", *(f"{mark} a table {mark} of four" for mark in "|=*+"), "A short title"]
    code.append(paragraphs[0])
    monkeypatch.setattr(topics, "topics", {"a": "\n\n".join(paragraphs[:10] + code), "b": "\n\n".join(paragraphs[10:])})
    call(monkeypatch, topics, tmp_path)
    held_out = {"valid": [18, 38], "test": [19, 39]}
    held_out["train"] = [number for number in range(40) if number % 20 < 18]
    for split, numbers in held_out.items():
        sentences = "is here .|Does it end ?|Yes!|So:|no ;|Or so.".split("|")
        expected = [line for number in numbers for line in [f"Paragraph {number} {sentences[0]}", *sentences[1:]]]
        assert [" ".join(line.split()) for line in lines_of(tmp_path / f"{split}.txt")] == expected


def test_conversations(prepare, tmp_path):
    """Lengths beside a text are those of its conversations, checked against its lines, and part of what is prepared."""
    parts = write(tmp_path / "raw" / "train.parts", "1\n3\n")
    out = prepare()
    assert (out / "train.parts").read_bytes() == b"1\n3\n" and not (out / "test.parts").exists()
    for wrong in ("1\n2\n", "1\n4\n"):
        write(parts, wrong)
        with pytest.raises(ValueError, match=r"train.txt: has 4 lines, but its .parts file counts [35]"):
            prepare()


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


@pytest.mark.parametrize(("recipe", "name"), [
    (ptb, "ptb.{}.txt"), (ptb, "{}.txt"), (wikitext, "wiki.{}.tokens"), (wikitext, "{}.txt.gz"),
])
def test_recipes(monkeypatch, tmp_path, capsys, recipe, name):
    """The text as prepare-text makes it, all of its words, and a word on whether the counts are the published ones."""
    for split, content in TEXTS.items():
        packed = gzip.compress(content.encode()) if name.endswith(".gz") else content
        write(tmp_path / "raw" / name.format(split), packed)
    call(monkeypatch, recipe, "--data", tmp_path / "raw", "--out", tmp_path / "out")
    assert "the counts aren't those of" in capsys.readouterr().out
    for split, content in TEXTS.items():
        assert lines_of(tmp_path / "out" / f"{split}.txt") == [" ".join(line.split()) for line in content.splitlines()]
    assert len(lines_of(tmp_path / "out" / "dict.txt")) == 12
    monkeypatch.setattr(recipe, "KNOWN", {"this": ({"train": 20, "valid": 5, "test": 7}, 14)})
    call(monkeypatch, recipe, "--data", tmp_path / "raw", "--out", tmp_path / "out")
    assert "the counts are those of this as published" in capsys.readouterr().out


@pytest.mark.parametrize("content, message", [
    (b"fine\ncaf\xe9\n", "{path}: not UTF-8 text: convert it, e.g. iconv -f latin1"),
    *((f"fine\n{word}\n".encode(), f"{{path}}:2: has the word {word}") for word in ("<s>", "<pad>", "</s>")),
    (b"", "the train text is empty"),
], ids=["Latin-1", "start", "padding", "end", "empty"])
def test_wrong_text_is_told(monkeypatch, tmp_path, sources, content, message):
    """Nothing is left behind."""
    path = write(tmp_path / "bad.txt", content)
    error = error_of(monkeypatch, text, *sources, "--train", path, "--out", tmp_path / "out")
    assert message.format(path=path) in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [
    b"\xef\xbb\xbfone two\r\n\r\nthree\r\n", b"one two\n\nthree", "one\u2028two\x85\n\x0c\nthree\x1c\n".encode(),
    b"one\xc2\xa0two \n \nthree\n",
], ids=["BOM, CRLF", "no last line end", "separators", "white space"])
def test_text_that_is_taken(monkeypatch, tmp_path, sources, content):
    path = write(tmp_path / "good.txt", content)
    call(monkeypatch, text, *sources, "--train", path, "--out", tmp_path / "out")
    assert lines_of(tmp_path / "out" / "train.txt") == ["one two", "", "three"]


def test_the_same_call_finds_its_folder_and_another_leaves_it(monkeypatch, sources, tmp_path, capsys):
    """Nothing that is there is ever changed: neither by other options, nor by another text of the same size and age."""
    out = tmp_path / "out"
    out.mkdir()
    call(monkeypatch, text, *sources, "--out", out)
    before, said = tree(out), capsys.readouterr().out
    assert set(before) == {"train.txt", "valid.txt", "test.txt", "dict.txt", "prepare.json", "data-bin/dict.txt",
                           *(f"data-bin/{split}.{kind}" for split in common.SPLITS for kind in ("bin", "idx"))}
    with monkeypatch.context() as patch:
        patch.setattr(text, "write_text", None)
        call(patch, text, *sources, "--out", out)
    assert capsys.readouterr().out == said
    for other in ("--vocab-size=2", "--min-count=2", "--lower"):
        assert "from other files or options" in error_of(monkeypatch, text, *sources, "--out", out, other)
    train = tmp_path / "raw" / "train.txt"
    times = os.stat(train).st_atime_ns, os.stat(train).st_mtime_ns
    write(train, TEXTS["train"].replace("cat", "cow"))
    os.utime(train, ns=times)
    assert "from other files or options" in error_of(monkeypatch, text, *sources, "--out", out)
    assert tree(out) == before and sorted(path.name for path in tmp_path.iterdir()) == ["out", "raw"]


def test_the_command_s_mistakes_are_one_line(sources, tmp_path):
    command = ["bash", DATA_PREP / "prepare-text.sh", *map(str, sources), "--out", tmp_path / "raw" / "train.txt"]
    environment = {**os.environ, "PYTHON_BIN": forked_python()}
    failed = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert failed.returncode and failed.stdout == "" and failed.stderr.startswith("prepare-text.sh: error: --out")
    assert failed.stderr.count("\n") == 1 and [path.name for path in tmp_path.iterdir()] == ["raw"]
