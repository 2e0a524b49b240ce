"""data-prep/prepare-bitext.sh and the recipes on it: tokens, cleaning, subwords, archives, downloads."""

import gzip
import random
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from preparations import bitext, call, common, dailydialog, error_of, iwslt14, lines_of, moses, multi30k, tree, write

LANGUAGES = ("de", "en")


# What tokenizer.perl itself makes of these lines.
TOKENS = [
    ("en", "in the U.S. and in St.", "in the U.S. and in St ."),
    ("en", "So am I.", "So am I ."),
    ("en", "x.y.z. 3rd. etc.", "x.y.z. 3rd. etc ."),
    ("en", "It costs $5,300.50, doesn't it?", "It costs $ 5,300.50 , doesn &apos;t it ?"),
    ("en", "Mr. Smith et al. left at 5 p.m. on Oct. 3.", "Mr. Smith et al. left at 5 p.m. on Oct. 3 ."),
    ("en", "the 1990's, e.g. No. 5, No. Five, ... and so on...",
     "the 1990 &apos;s , e.g. No. 5 , No . Five , ... and so on ..."),
    ("en", 'R&D [laughter] <b> a|b "quoted."',
     "R &amp; D &#91; laughter &#93; &lt; b &gt; a &#124; b &quot; quoted . &quot;"),
    ("en", "the dogs' bowl 'tis.'", "the dogs &apos; bowl &apos; tis . &apos; "),
    ("en", "日本語 and 中国's 2,5 a,b,c", "日本語 and 中国 &apos;s 2,5 a , b , c"),
    ("en", "a\u00a0b\u2009c  d\x1ce \x02 '''", "a b c de &apos; &apos;&apos;"),
    ("en", "it’s “fine”. Why?..", "it ’ s “ fine ” . Why ? .."),
    ("de", "Am 3. Oktober, z.B. um 10.30 Uhr.", "Am 3. Oktober , z.B. um 10.30 Uhr ."),
    ("de", "am 3. oktober 1990 war nr. 5 dran.", "am 3. oktober 1990 war nr . 5 dran ."),
    ("de", "Er sagte: „Geht's gut?“", "Er sagte : „ Geht &apos; s gut ? “"),
    ("de", "Prof. Dr. Müller, Hauptstr. 5, d.h. hier.", "Prof. Dr. Müller , Hauptstr . 5 , d.h. hier ."),
    ("de", "... und dann? Na ja...", "... und dann ? Na ja ..."),
    ("de", "50 % von 1.000.000 sind 500.000.", "50 % von 1.000.000 sind 500.000 ."),
    ("de", "www.example.com.", "www.example.com ."),
    ("de", " \t", ""),
    ("en", "a\ttab", "a tab"),
]


@pytest.fixture(scope="module")
def tokenizers():
    return {language: moses.Tokenizer(language) for language in LANGUAGES}


@pytest.mark.parametrize("language, line, tokens", TOKENS)
def test_tokens_are_those_of_tokenizer_perl(tokenizers, language, line, tokens):
    assert tokenizers[language](line) == tokens


def test_lowercase_is_that_of_perl():
    assert moses.lowercase("ÄÖÜ ẞ İ ΟΔΟΣ") == "äöü ß i̇ οδοσ"


@pytest.mark.parametrize("source, target, clean", [
    (3, 2, True), (2, 3, True), (4, 2, False), (31, 20, False), (1, 1, True), (0, 1, False), (1, 0, False),
    (0, 0, False), (175, 175, True), (176, 175, False), (175, 176, False),
])
def test_cleaning_bounds(source, target, clean):
    text, numbers = bitext.clean({"de": ["w " * source], "en": ["w " * target]}, max_ratio=1.5)
    assert len(text["de"]) == len(text["en"]) == clean and numbers == [0] * clean


def test_cleaning_drops_endless_words_and_joins_spaces():
    lines = {"de": ["a  b ", "x" * 1000, "x" * 1001], "en": ["c d", "y", "y y y"]}
    assert bitext.clean(lines) == ({"de": ["a b", "x" * 1000], "en": ["c d", "y"]}, [0, 1])


def test_bpe_is_that_of_the_command_line(tmp_path):
    """learn_bpe.py and apply_bpe.py, as fairseq's recipe calls them, give the same merges and text."""
    lines = [side for pair in sentences(200, 1) for side in pair]
    text, code = write(tmp_path / "text", "".join(f"{line}\n" for line in lines)), tmp_path / "code"

    def subword_nmt(name, *options):
        command = [sys.executable, "-m", f"subword_nmt.{name}", "-i", text, *options]
        return subprocess.run(command, capture_output=True, check=True).stdout

    subword_nmt("learn_bpe", "-s", "60", "-o", code)
    assert code.read_bytes() == bitext.learn_subword_nmt(lines, 60)
    segment = bitext.segmenter("subword-nmt", code.read_bytes())
    applied = subword_nmt("apply_bpe", "-c", code).decode().split("\n")[:-1]
    assert applied == bitext.parallel(segment, lines, 2, "segmenting")


NOUNS = [("Hund", "dog"), ("Baum", "tree"), ("Straße", "street"), ("Vortrag", "talk")]
VERBS = [("läuft", "runs"), ("wächst", "grows"), ("endet", "ends"), ("leuchtet", "shines")]
CLOSERS = [("in den U.S.", "in the U.S."), ("um 10.", "at 10."), ("& mehr.", "& more.")]


def sentences(number, seed):
    """`number` pairs of German and English sentences."""
    choose = random.Random(seed).choice
    pairs = []
    for _ in range(number):
        (noun, thing), (verb, does), (closer, end) = choose(NOUNS), choose(VERBS), choose(CLOSERS)
        pairs.append((f"Ein {noun} {verb} {closer}", f"The {thing} {does} {end}"))
    return pairs


@pytest.fixture
def sources(tmp_path):
    """Options that name three parallel texts, raw and in two files each."""
    options = ["--source-lang", "de", "--target-lang", "en", "--workers", 1, "--bpe-merges", 40]
    for split, number in (("train", 200), ("valid", 10), ("test", 8)):
        pairs = sentences(number, split)
        for side, language in enumerate(LANGUAGES):
            write(tmp_path / "raw" / f"{split}.{language}", "".join(f"{pair[side]}\n" for pair in pairs))
        options += [f"--{split}", tmp_path / "raw" / split]
    return options


def prepared(monkeypatch, sources, out, *options):
    """The files that the preparation makes."""
    call(monkeypatch, bitext, *sources, "--out", out, *options)
    return tree(out)


def test_raw_text(monkeypatch, sources, tmp_path, tokenizers, capsys):
    """Moses tokens in subwords; the references are the text itself, and data-bin is in the given direction."""
    raw, out = tmp_path / "raw", tmp_path / "out"
    files = prepared(monkeypatch, sources, out, "--source-lang", "en", "--target-lang", "de")
    for language in LANGUAGES:
        for split in common.SPLITS:
            tokens = [line.replace("@@ ", "") for line in lines_of(out / f"{split}.{language}")]
            assert tokens == [tokenizers[language](line) for line in lines_of(raw / f"{split}.{language}")]
            if split != "train":
                assert files[f"{split}.ref.{language}"] == (raw / f"{split}.{language}").read_bytes()
        used = {word for line in lines_of(out / f"train.{language}") for word in line.split()}
        entries = [line.split()[0] for line in lines_of(out / "data-bin" / f"dict.{language}.txt")]
        padding = [word for word in entries if word.startswith("madeupword")]
        assert set(entries) == used | set(padding) and (len(entries) + 4) % 8 == 0
    assert {name for name in files if name.startswith("data-bin/test")} == {
        f"data-bin/test.en-de.{language}.{kind}" for language, kind in product(LANGUAGES, ("bin", "idx"))}
    assert {b"T he</w>", b"E in</w>"} <= set(files["code"].splitlines())  # merges of both languages
    report = capsys.readouterr().out
    assert re.search(r"^train.de +200 lines", report, re.M) and "dropped by cleaning: 0 training pairs" in report


def test_held_out_text_reaches_neither_merges_nor_dictionaries(monkeypatch, sources, tmp_path):
    """Other development and test sets change no byte of what training reads; in lower case."""
    sources = [*sources, "--lower", "--max-ratio", 2]
    for language, line in ("de", "Kurz\n"), ("en", "much longer than that\n"):
        with open(tmp_path / "raw" / f"train.{language}", "a") as train:
            train.write(line)
    first = prepared(monkeypatch, sources, tmp_path / "first")
    assert b"ein " in first["train.de"] and b"Ein" not in first["train.de"] and b"much" not in first["train.en"]
    for split, language in product(("valid", "test"), LANGUAGES):
        write(tmp_path / "raw" / f"{split}.{language}", "Zebras zebra zebras zzz.\n" * 50)
    second = prepared(monkeypatch, sources, tmp_path / "second")
    same = {name for name in first if first[name] == second[name]}
    assert same == {name for name in first if not re.match(r"(data-bin/)?(valid|test)\.|prepare", name)}
    assert {"code", "data-bin/dict.de.txt", "data-bin/train.de-en.en.bin"} <= same


def test_given_merges_and_dictionaries(monkeypatch, sources, tmp_path, capsys):
    """Text in Moses tokens, with another preparation's merges and dictionaries, is that text in them."""
    first = prepared(monkeypatch, sources, tmp_path / "first")
    for split, language in product(common.SPLITS, LANGUAGES):
        write(tmp_path / "tokens" / f"{split}.{language}", first[f"{split}.{language}"].replace(b"@@ ", b""))
    write(tmp_path / "tokens" / "train.de", first["train.de"].replace(b"@@ ", b"") + b"Ein \xe2\x98\x83 .\n\n")
    write(tmp_path / "tokens" / "train.en", first["train.en"].replace(b"@@ ", b"") + b"The tree .\n\n")
    capsys.readouterr()
    options = [tmp_path / "tokens" / option.name if hasattr(option, "name") else option for option in sources]
    data_bin = tmp_path / "first" / "data-bin"
    given = ("--dict-source", data_bin / "dict.de.txt", "--dict-target", data_bin / "dict.en.txt")
    second = prepared(monkeypatch, options, tmp_path / "second", "--tokenized", "--code", tmp_path / "first" / "code",
                      *given)
    for name in set(first) - {"prepare.json", "train.de", "train.en"}:
        if not name.startswith("data-bin/train"):
            assert second[name] == first[name], name
    report = capsys.readouterr().out
    assert re.search(r"^train.de +201 lines .* 1 unknown$", report, re.M)
    assert "dropped by cleaning: 1 training pairs" in report


@pytest.mark.parametrize("options, message", [
    (["--valid", "{raw}/short"], "10 lines and 1 lines"),
    (["--test", "{raw}/empty"], "0 lines and 0 lines"),
], ids=["unequal", "empty"])
def test_wrong_files_are_told(monkeypatch, sources, tmp_path, options, message):
    raw = tmp_path / "raw"
    for name, content in ("short.de", "a\n" * 10), ("short.en", "a\n"), ("empty.de", ""), ("empty.en", ""):
        write(raw / name, content)
    options = [option.format(raw=raw) for option in options]
    assert message.format(raw=raw) in error_of(monkeypatch, bitext, *sources, "--out", tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


def archive_files():
    """The files of an archive like de-en.tgz, and the pairs of text that the recipe should find in it."""
    files, train, test = {}, [], []
    text = [[], []]
    for talk in range(30):
        pairs = [("Ein Titel: Wörter", "A title: words"), ("Eine Beschreibung.", "A description.")]
        pairs += sentences(20, talk)
        pairs += [("", "nothing"), ("viel kürzer", "the much longer side"), ("w " * 176, "w " * 176)]
        train += pairs[:-3]
        for side in range(2):
            title, description, *lines = (pair[side] for pair in pairs)
            text[side] += ["<url>u</url>", "<keywords>k</keywords>", f"<talkid>{talk}</talkid>",
                           f"<title>{title}</title>", f"<description>{description}</description>", *lines]
    for side, language in enumerate(LANGUAGES):
        files[f"de-en/train.tags.de-en.{language}"] = "\n".join(text[side]) + "\n"
    for number, name in enumerate(iwslt14.TEST):
        pairs = [(f"Satz {number}’s.", f"Sentence {number}’s."), *sentences(3, 1000 + number)]
        test += pairs
        for side, language in enumerate(LANGUAGES):
            segments = "\n".join(f'<seg id="{i}"> {pair[side]} </seg>' for i, pair in enumerate(pairs))
            files[f"de-en/{name.format(language)}"] = f'<?xml version="1.0"?>\n<mteval>\n{segments}\n</mteval>\n'
    files["de-en/README"] = "not needed\n"
    return files, train, test


def pack(path, files):
    """Write a tar.gz of `{name: text}`."""
    for name, content in files.items():
        write(path.with_suffix("") / name, content)
    return Path(shutil.make_archive(str(path), "gztar", path.with_suffix(""))).rename(path)


FILES, TRAIN, TEST = archive_files()


@pytest.fixture
def archive(tmp_path):
    return pack(tmp_path / "de-en.tgz", FILES)


def test_iwslt14(monkeypatch, archive, tmp_path, tokenizers, capsys):
    """Tags, cleaning, lower case and splits, against the pairs that the archive was made of."""
    out = tmp_path / "out"
    call(monkeypatch, iwslt14, "--archive", archive, "--out", out, "--bpe-merges", 60, "--workers", 2)
    for side, language in enumerate(LANGUAGES):
        def plain(name, language=language):
            return [line.replace("@@ ", "") for line in lines_of(out / f"{name}.{language}")]

        references = [pair[side].replace("’", "'") for pair in TEST]
        tokens = [moses.lowercase(tokenizers[language](pair[side])) for pair in TRAIN]
        assert plain("valid") == tokens[22::23]
        assert plain("train") == [line for n, line in enumerate(tokens, start=1) if n % 23]
        assert plain("test") == [moses.lowercase(tokenizers[language](line)) for line in references]
        assert lines_of(out / f"test.ref.{language}") == references
        assert lines_of(out / f"valid.ref.{language}") == [pair[side] for pair in TRAIN][22::23]
        assert (out / "data-bin" / f"test.de-en.{language}.bin").is_file()
    report = capsys.readouterr().out
    for split, pairs in (("train", 632), ("valid", 28), ("test", 20)):
        assert re.search(rf"^{split}.de +{pairs} lines", report, re.M)
    assert "dropped by cleaning: 90 training pairs" in report


def test_multi30k(monkeypatch, tmp_path, tokenizers):
    """A checkout with packed files and, of the test set, unpacked ones; sentencepiece and one dictionary."""
    raw, out = tmp_path / "dataset" / "data" / "task1" / "raw", tmp_path / "out"
    for name, number in (("train", 200), ("val", 10), ("test_2016_flickr", 8)):
        for side, language in enumerate(LANGUAGES):
            pairs = [*sentences(number, name), ("Kurz.", "Much longer than that.")]
            text = "".join(f"{pair[side]}\n" for pair in pairs).encode()
            packed = not name.startswith("test")
            write(raw / f"{name}.{language}{'.gz' * packed}", gzip.compress(text) if packed else text)
    call(monkeypatch, multi30k, "--data", tmp_path / "dataset", "--out", out, "--source", "en", "--bpe",
         "sentencepiece", "--bpe-merges", 90, "--joined-dictionary")
    for language in LANGUAGES:
        assert (out / f"test.ref.{language}").read_bytes() == (raw / f"test_2016_flickr.{language}").read_bytes()
        valid = gzip.decompress((raw / f"val.{language}.gz").read_bytes())
        assert (out / f"valid.ref.{language}").read_bytes() == valid
        plain = [line.replace(" ", "").replace("▁", " ").strip() for line in lines_of(out / f"test.{language}")]
        assert plain == [moses.lowercase(tokenizers[language](line)) for line in lines_of(out / f"test.ref.{language}")]
        assert (out / "data-bin" / f"test.en-de.{language}.bin").is_file()
        assert len(lines_of(out / f"train.{language}")) == 201  # no sentence is too short for the other
    assert len({(out / "data-bin" / f"dict.{language}.txt").read_bytes() for language in LANGUAGES}) == 1


@pytest.mark.parametrize("name", ["dailydialog.{0}.txt", "{0}/dialogues_{0}.txt"])
def test_dailydialog(monkeypatch, tmp_path, capsys, name):
    """A turn and the next one are a pair; held-out dialogues that stand in train are left out."""
    train = [f"{noun} , I say . __eou__ It {verb} . __eou__ Really ? __eou__" for _, noun in NOUNS for _, verb in VERBS]
    texts = {"train": train, "validation": [train[3].replace(" ", "  "), "Hello . __eou__ Hello , dog ! __eou__"],
             "test": ["A talk ? __eou__ Yes . __eou__ Good . __eou__", *train[:2]]}
    for split, lines in texts.items():
        write(tmp_path / "raw" / name.format(split), "".join(f"{line}\n" for line in lines))
    out = tmp_path / "out"
    call(monkeypatch, dailydialog, "--data", tmp_path / "raw", "--out", out, "--bpe-merges", 40, "--workers", 1)
    for side, turns in (("post", ["a talk ?", "yes ."]), ("reply", ["yes .", "good ."])):
        assert [line.replace("@@ ", "") for line in lines_of(out / f"test.{side}")] == turns
        assert len(lines_of(out / f"train.{side}")) == 2 * len(train) and len(lines_of(out / f"valid.{side}")) == 1
    assert lines_of(out / "test.ref.reply") == ["Yes.", "Good."]
    assert (out / "data-bin" / "train.post-reply.post.bin").is_file()
    assert "test: 1 dialogues, 2 left out that also stand in train" in capsys.readouterr().out


def test_wrong_archives(monkeypatch, tmp_path, archive):
    def error(path):
        return error_of(monkeypatch, iwslt14, "--archive", path, "--out", tmp_path / "out", "--workers", 1)

    whole = archive.read_bytes()
    for content in (whole[:len(whole) // 2], b"<!DOCTYPE html><title>404</title>"):
        assert "incomplete" in error(write(tmp_path / "broken.tgz", content))
    message = error(pack(tmp_path / "foreign.tgz", {name.replace("de", "fr"): text for name, text in FILES.items()}))
    assert "not the IWSLT'14 de-en archive" in message and "train.tags.de-en.de" in message


def test_archive_is_downloaded_where_it_is_not_there(archive, tmp_path, monkeypatch):
    options = ["--out", tmp_path / "out", "--url", archive.as_uri(), "--bpe-merges", 60, "--workers", 1]
    call(monkeypatch, iwslt14, *options)
    files = tree(tmp_path)
    assert files["out.de-en.tgz"] == archive.read_bytes() and "out/data-bin/test.de-en.en.bin" in files
    archive.unlink()
    call(monkeypatch, iwslt14, *options)
    assert tree(tmp_path / "out") == {name[4:]: content for name, content in files.items() if name.startswith("out/")}
    given, recipe = {}, {"bpe": "subword-nmt", "bpe_merges": 10_000, "max_ratio": 1.5, "lower": True}
    monkeypatch.setattr(bitext, "prepare", lambda args, *_: given.update(vars(args)))
    call(monkeypatch, iwslt14, "--out", tmp_path / "out")
    assert recipe.items() <= given.items()
