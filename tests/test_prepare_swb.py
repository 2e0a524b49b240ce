"""data-prep/prepare-swb.sh: rules, formats, splits, vocabulary, errors, interruption, and all of it once."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from pathlib import Path

import pytest

DATA_PREP = Path(__file__).resolve().parent.parent / "data-prep"
sys.path.insert(0, str(DATA_PREP))
import common  # noqa: E402
import prepare_swb as swb  # noqa: E402

# ------------------------------------------------------------------------------------- normalisation


@pytest.mark.parametrize(
    ("source", "rule"),
    [(source, rule) for source, rules in swb.RULES.items() for rule in rules]
    + [(source, rule) for source in ("fisher", "swb1", "text") for rule in swb.COMMON_RULES],
    ids=lambda value: value if isinstance(value, str) else value.example,
)
def test_rule_examples(source, rule):
    assert swb.normalise(rule.example, source) == rule.result


@pytest.mark.parametrize(
    ("source", "text", "words"),
    [
        ("swb1", "[laughter-no[t]-] [laughter-[bocket/bucket]] so", "bucket so"),
        ("swb1", "I- i like them_1's IBMs [noise] and NASA -[th]at", "i like them's i b m's and nasa"),
        ("swb1", "UM-HUM [LAUGHTER-YEAH] WI[TH]- WITH TV", "um-hum yeah with t v"),
        ("swb1", "[laughter]yeah {yuppiedom's} <b_aside> come here <e_aside>", "yeah yuppiedom's come here"),
        ("swb1", "[silence]", ""),
        ("fisher", "mhm [laughter] (( )) ((yeah)) i watch t._v. an- and", "um-hum yeah i watch t v and"),
        ("fisher", "I'm *mandatory hmm 'cause-- [[skip]] [mn] er", "i'm mandatory hm because uh"),
        ("hub5", "%um, we saw ~TV. {laugh} +so+ ((not)) &Bill's [static] ho-", "um we saw t v so not bill's"),
        ("stm", "(%UH) AND (WH-) (%hesitation) U. S. <B_ASIDE> HELLO", "uh and uh u s hello"),
        ("swda", "Uh, first, um, I-, I need to know <laughter>, T V's.", "uh first um i need to know t v's"),
        ("swda", "{D You know, } [ it's, + it's ] # twenty-five, --", "you know it's it's twenty-five"),
        ("swda", "<Children> Uh-huh. Huh-uh. *two utts", "uh-huh huh-uh"),
        ("swda", "...", ""),
        ("text", "Okay, OK.  na\u00efve \u00c9t\u00e9\u00a0\u2019s", "okay okay na\u00efve \u00e9t\u00e9's"),
    ],
)
def test_normalise(source, text, words):
    assert swb.normalise(text, source) == words


def test_sources_agree():
    """The same speech has the same words whatever the transcriber's conventions."""
    same = [
        ("swb1", "um-hum uh i watch TV [laughter-on] wednes[day]- wednesday because_1 of them_1"),
        ("fisher", "mhm uh i watch t._v. on wednes- wednesday ((because)) of 'em [laughter]"),
        ("hub5", "mhm, %uh I watch TV on wednes- Wednesday {laugh} 'cause of them."),
        ("stm", "MHM (%HESITATION) I WATCH T. V. ON (WEDNES-) WEDNESDAY BECAUSE OF THEM"),
        ("swda", "Um-hum, uh, I watch T V on Wednes-, Wednesday <laughter> because of them."),
    ]
    assert {swb.normalise(text, source) for source, text in same} == {
        "um-hum uh i watch t v on wednesday because of them"
    }


def test_normalised_text_is_stable():
    """Normalising again changes nothing, and every hesitation has one spelling."""
    for standard, variants in swb.HESITATIONS.items():
        for variant in (standard, *variants.split()):
            assert swb.normalise(variant, "fisher") == standard
    for rule in (*swb.ISIP_RULES, *swb.COMMON_RULES):
        assert swb.normalise(rule.result, "fisher") == rule.result


# ----------------------------------------------------------------------------------------- the files


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def make_swda(root, conversations=6):
    for split in ("train", "val", "test"):
        for number in range(conversations if split == "train" else 1):
            lines = f"A|Okay, uh, let's see <laughter>.|o\nB|Word{number % 3} the, the end.|sd\n\nA|<noise>.|x\n"
            write(root / "swda_data" / split / f"{2000 + number}.txt", lines)
    write(root / "swda_data" / "train_set.txt", "A|not read where there are directories|o\n")
    write(root / "swda_data" / "metadata" / "train_split.txt", "2000\n")
    return root


def make_swb1(root, conversations=6):
    for number in range(2001, 2001 + conversations):
        for side in "AB":
            name = f"sw{number}{side}-ms98-a"
            write(
                root / str(number)[:2] / str(number) / f"{name}-trans.text",
                f"{name}-0001 0.000000 0.977625 [silence]\n"
                f"{name}-0002 0.977625 11.561375 hi um number {'x' * (number - 2000)} side {side}\n",
            )
            write(root / str(number)[:2] / str(number) / f"{name}-word.text", f"{name}-0002 0.9 1.5 hi\n")
    return root


def make_fisher(root, conversations=6):
    for number in range(1, 1 + conversations):
        header = f"# fe_03_{number:05d}.sph\n# Transcribed at the LDC\n\n"
        turns = ("0.00 1.51 A: hello ((yeah)) [laughter]", "1.50 2.00 B: [noise]", "2.1 3 B: mhm call " + "y" * number)
        write(root / "data" / "trans" / "000" / f"fe_03_{number:05d}.txt", header + "\n\n".join(turns) + "\n")
        write(root / "data" / "bbn_orig" / "000" / f"fe_03_{number:05d}.txt", "another format\n")
    return root


def make_hub5(root):
    stm = ';; CATEGORY "0" "" ""\nen_4156 A en_4156_A 357.64 359.64 <O,en,F,en-F>  HE IS (%UH) MHM\n'
    turn = "#Language: eng\n\n116.17 121.98 A: we <contraction e_form=\"[we=>we]['re=>are]\">we're here, %um\n"
    write(root / "reference" / "hub5e00.english.000405.stm", stm)
    write(root / "txt" / "en_5017.txt", turn)
    return root


def lines_of(transcripts, split=None):
    chosen = [t for t in transcripts if split is None or t.split == split]
    return [line for transcript in chosen for line in swb.utterances(transcript)]


def options(**given):
    defaults = dict.fromkeys(("swda", "swb1", "fisher", "hub5", "train", "valid", "test"))
    return Namespace(**{**defaults, "valid_conversations": 2, "test_conversations": 1, **given})


def test_formats(tmp_path):
    hub5 = make_hub5(tmp_path / "hub5")
    swb1 = make_swb1(tmp_path / "swb1", 1)
    assert lines_of(swb.swb1(swb1)) == ["hi um number x side a", "hi um number x side b"]
    assert lines_of(swb.fisher(make_fisher(tmp_path / "fe", 1))) == ["hello yeah", "um-hum call y"]
    assert lines_of(swb.hub5(hub5)) == lines_of(swb.hub5(hub5 / "reference")) == ["he is uh um-hum"]
    assert lines_of(swb.hub5(hub5 / "txt")) == ["we we're here um"]
    assert lines_of(swb.hub5(hub5 / "txt" / "en_5017.txt")) == ["we we're here um"]


@pytest.mark.parametrize("layout", ["checkout", "swda_data", "sets", "older"])
def test_swda_layouts(tmp_path, layout):
    root = make_swda(tmp_path)
    if layout == "swda_data":
        root = root / "swda_data"
    if layout in ("sets", "older"):
        for split in ("train", "val", "test"):
            directory = root / "swda_data" / split
            text = "".join(file.read_text() for file in sorted(directory.glob("*.txt")))
            write(root / "swda_data" / f"{split}_{'set' if layout == 'sets' else 'text'}.txt", text)
            shutil.rmtree(directory)
        if layout == "older":
            (root / "swda_data" / "train_set.txt").unlink()
    found = swb.collect(options(swda=root))
    assert len(lines_of(found, "train")) == 12
    assert lines_of(found, "valid") == lines_of(found, "test") == ["okay uh let's see", "word0 the the end"]


def test_copies_and_links_count_once(tmp_path):
    root = make_fisher(tmp_path / "fisher")
    shutil.copytree(root / "data", root / "copy")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "part1").symlink_to(root)
    (root / "data" / "up").symlink_to(root)
    assert len(swb.fisher(root)) == len(swb.fisher(tmp_path / "links")) == 6


def test_bad_lines_can_be_skipped(tmp_path):
    file = write(tmp_path / "a.txt", "A|yes|b\nno bars\nB|no|b\n")
    skipped = Counter()
    assert list(swb.utterances(swb.Transcript(file, "swda", "a"), skipped=skipped)) == ["yes", "no"]
    assert skipped == {str(file): 1}


# -------------------------------------------------------------------------------------------- splits


def test_held_out_conversations_are_whole(tmp_path):
    arguments = options(swb1=make_swb1(tmp_path / "swb1"), fisher=make_fisher(tmp_path / "fisher"))
    found = swb.collect(arguments)
    split_of = {}
    for transcript in found:
        assert split_of.setdefault(transcript.conversation, transcript.split) == transcript.split
    assert Counter(split_of.values()) == {"train": 9, "valid": 2, "test": 1}
    (tmp_path / "moved").mkdir()
    for name in ("swb1", "fisher"):
        shutil.move(tmp_path / name, tmp_path / "moved" / name)
    again = swb.collect(options(swb1=tmp_path / "moved" / "swb1", fisher=tmp_path / "moved" / "fisher"))
    assert {t.conversation: t.split for t in again} == split_of


def test_given_splits_replace_and_fill(tmp_path):
    swda, fisher, hub5 = make_swda(tmp_path / "swda"), make_fisher(tmp_path / "fe"), make_hub5(tmp_path / "hub5")
    valid = write(tmp_path / "valid.txt", "Only this, uh, line.\n")
    found = swb.collect(options(swda=swda, fisher=fisher, hub5=hub5, valid=valid))
    assert lines_of(found, "valid") == ["only this uh line"]
    assert lines_of(found, "test") == ["he is uh um-hum"]
    assert len(lines_of(found, "train")) == 12 + 12
    found = swb.collect(options(swb1=make_swb1(tmp_path / "swb1"), hub5=hub5))
    assert Counter(t.split for t in found) == {"train": 8, "valid": 4, "test": 1}
    shutil.rmtree(swda / "swda_data" / "val")  # held out where the corpus has none
    assert Counter(t.split for t in swb.collect(options(swda=swda))) == {"train": 4, "valid": 2, "test": 1}


# ---------------------------------------------------------------------------------- vocabulary, baseline


def test_vocabulary():
    counts = Counter("bbbaaddcce")
    assert list(swb.vocabulary(counts, 30000, 2).items()) == [("b", 3), ("a", 2), ("c", 2), ("d", 2)]
    assert list(swb.vocabulary(counts, 2, 2)) == ["b", "a"]
    assert list(swb.vocabulary(counts, 9, 1)) == ["b", "a", "c", "d", "e"]


def test_unigram_perplexity():
    """Against the formula, token by token, of text with <unk> and </s> written out."""
    train, test = ["a b a", "c", "a b d"], ["a d e", "b"]
    known = {"a": 3, "b": 2}

    def tokens(lines):
        return [w if w in known else "<unk>" for line in lines for w in line.split()] + ["</s>"] * len(lines)

    counts = Counter(tokens(train))
    expected = math.exp(-sum(math.log(counts[w] / counts.total()) for w in tokens(test)) / len(tokens(test)))
    model = swb.Unigram(Counter(" ".join(train).split()), len(train), known)
    found = model.statistics(Counter(" ".join(test).split()), len(test))
    assert found == {"utterances": 2, "words": 4, "unknown": 2, "perplexity": pytest.approx(expected, rel=1e-12)}
    closed = swb.Unigram(Counter(a=3), 1, {"a": 3})  # a word that training never left out still has a probability
    assert closed.statistics(Counter(x=1), 1)["perplexity"] == pytest.approx(5)


# --------------------------------------------------------------------------------- the command, stubbed


@pytest.fixture
def prepare(monkeypatch, capsys):
    """Run the command in this process, its binarisation replaced by a note of the arguments."""

    def binarise(arguments, data_bin, log, progress=None):
        data_bin.mkdir()
        (data_bin / "train.bin").write_text(" ".join(Path(str(a)).name for a in arguments))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["prepare_swb.py", *map(str, arguments)])
        swb.main()
        return capsys.readouterr()

    monkeypatch.setattr(swb, "fairseq_preprocess", binarise)
    monkeypatch.setattr(common, "PROGRAM", "prepare-swb.sh")
    return call


def tree(out):
    return {str(file.relative_to(out)): file.read_bytes() for file in sorted(out.rglob("*")) if file.is_file()}


def test_rerun_does_only_what_is_missing(tmp_path, prepare, monkeypatch):
    swda, out = make_swda(tmp_path / "swda"), tmp_path / "out"
    first = prepare("--swda", swda, "--out", out)
    files = tree(out)
    assert set(files) == {"train.txt", "valid.txt", "test.txt", "dict.txt", "prepare.json", "data-bin/train.bin"}
    assert "up to date" not in first.out and re.search(r"train +6 +12 +48 +0 +0.00 %", first.out)
    assert files["dict.txt"].decode().splitlines()[:3] == ["the 12", "end 6", "let's 6"]

    done = []
    for stage in ("write_text", "write_dictionary", "binarise"):
        original = getattr(swb, stage)
        monkeypatch.setattr(swb, stage, lambda *a, f=original, s=stage: done.append(s) or f(*a))

    def rerun(*arguments):
        done.clear()
        output = prepare("--swda", swda, "--out", out, *arguments)
        assert ("up to date" in output.out) == (not done)
        return list(done)

    everything = ["write_text", "write_dictionary", "binarise"]
    assert rerun() == [] and tree(out) == files
    assert rerun("--vocab-size", 2) == ["write_dictionary", "binarise"]
    assert (out / "dict.txt").read_text() == "the 12\nend 6\n"
    assert rerun("--min-count", 3) == ["write_dictionary", "binarise"]
    assert rerun() == ["write_dictionary", "binarise"] and tree(out) == files
    (out / "data-bin" / "train.bin").unlink()
    assert rerun() == ["binarise"] and tree(out) == files
    (out / "valid.txt").write_text("cut\n")
    assert rerun() == everything and tree(out) == files
    write(swda / "swda_data" / "train" / "3000.txt", "A|One more.|sd\n")
    assert rerun() == everything and b"one more\n" in tree(out)["train.txt"]


def test_a_failing_rerun_leaves_what_was_there(tmp_path, prepare):
    swda, out = make_swda(tmp_path / "swda"), tmp_path / "out"
    prepare("--swda", swda, "--out", out)
    files = tree(out)
    write(swda / "swda_data" / "test" / "2000.txt", "damaged\n")
    with pytest.raises(SystemExit):
        prepare("--swda", swda, "--out", out)
    assert tree(out) == files


def test_swb1_fisher_hub5(tmp_path, prepare):
    out = tmp_path / "out"
    prepare("--swb1", make_swb1(tmp_path / "swb1"), "--fisher", make_fisher(tmp_path / "fe"), "--hub5",
            make_hub5(tmp_path / "hub5"), "--valid-conversations", 1, "--out", out)
    text = {split: (out / f"{split}.txt").read_text().splitlines() for split in swb.SPLITS}
    assert len(text["train"]) == 22 and len(text["valid"]) == 2 and text["test"] == ["he is uh um-hum"]
    assert not set(text["train"]) & set(text["valid"]) - {"hello yeah"}


BAD_CALLS = {
    "nothing": ([], "no training text: give --swda DIR, --swb1 DIR, --fisher DIR or --train FILE"),
    "missing": (["--swb1", "{tmp}/none"], "--swb1 {tmp}/none: no such directory"),
    "a file": (["--swda", "{tmp}/latin1"], "--swda {tmp}/latin1: a file: give the (unpacked) directory"),
    "no match": (["--swb1", "{fisher}"], "--swb1 {fisher}: no file named like sw2001A-ms98-a-trans.text"),
    "no calls": (["--fisher", "{tmp}/empty"], "--fisher {tmp}/empty: no file named like fe_03_00001.txt"),
    "no swda": (["--swda", "{fisher}"], "neither {fisher}/train/*.txt nor {fisher}/train_set.txt is there"),
    "no hub5": (["--fisher", "{fisher}", "--hub5", "{tmp}/empty"], "no file named like en_4156.txt"),
    "no file": (["--train", "{tmp}/none"], "--train {tmp}/none: no such file: give plain text"),
    "format": (["--swda", "{bad}"], "{bad}/train/1.txt:2: expected a line like 'speaker|words|act', found 'x y'"),
    "encoding": (["--train", "{tmp}/latin1", "--valid", "{tmp}/text", "--test", "{tmp}/text"],
                 "{tmp}/latin1:2: not UTF-8 text"),
    "empty": (["--train", "{tmp}/noise", "--valid", "{tmp}/text", "--test", "{tmp}/text"],
              "the train text is empty: no words in {tmp}/noise"),
    "twice": (["--swb1", "{tmp}", "--swda", "{tmp}"], "--swb1 and --swda hold the same conversations"),
    "tests": (["--fisher", "{fisher}", "--hub5", "a", "--test", "b"], "--hub5 and --test both give the test text"),
    "few": (["--fisher", "{fisher}"], "6 conversations are too few to hold out 20 + 20 of them: lower --valid-"),
    "none held out": (["--train", "{tmp}/text"], "no valid and no test text, and no conversations to hold it out"),
    "size": (["--vocab-size", "0"], "--vocab-size: '0' is not a whole number of at least 1"),
    "count": (["--min-count", "two"], "--min-count: 'two' is not a whole number of at least 1"),
    "rare": (["--swda", "{swda}", "--min-count", "99"], "no word is seen 99 times in training: lower --min-count"),
    "out": (["--swda", "{swda}", "--out", "{tmp}/text"], "--out {tmp}/text: is, or lies in, a file"),
    "below": (["--swda", "{swda}", "--out", "{tmp}/text/x"], "--out {tmp}/text/x: is, or lies in, a file"),
    "option": (["--vocabulary", "3"], "unrecognized arguments: --vocabulary 3"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_errors_are_one_clear_line(case, tmp_path, prepare, capsys):
    arguments, message = BAD_CALLS[case]
    names = {"tmp": tmp_path, "fisher": tmp_path / "fe", "swda": tmp_path / "swda", "bad": tmp_path / "bad"}
    make_fisher(names["fisher"])
    make_swda(names["swda"])
    write(tmp_path / "bad" / "train" / "1.txt", "A|fine|b\nx y\n")
    write(tmp_path / "bad" / "val" / "1.txt", "A|fine|b\n")
    write(tmp_path / "bad" / "test" / "1.txt", "A|fine|b\n")
    write(tmp_path / "text", "some words\n")
    write(tmp_path / "noise", "[noise]\n\n")
    (tmp_path / "latin1").write_bytes(b"fine\ncaf\xe9\n")
    (tmp_path / "empty").mkdir()
    arguments = [argument.format(**names) for argument in arguments]
    with pytest.raises(SystemExit) as end:
        prepare(*arguments, *(["--out", tmp_path / "out"] if "--out" not in arguments else []))
    lines = [line for line in capsys.readouterr().err.splitlines() if " %, " not in line]
    assert end.value.code == 2 and len(lines) == 1
    assert lines[0].startswith("prepare-swb.sh: error: ") and message.format(**names) in lines[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_out(tmp_path, prepare, capsys):
    (tmp_path / "out").mkdir(mode=0o500)
    with pytest.raises(SystemExit):
        prepare("--swda", make_swda(tmp_path / "swda"), "--out", tmp_path / "out")
    assert "cannot be written (Permission denied)" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------- interruption

# The command with a stub for fairseq, and a hook before every step that makes a file final.
STUBBED = f"""
import os, pathlib, shutil, signal, sys, time
sys.path.insert(0, {str(DATA_PREP)!r})
import common, prepare_swb
steps = iter(range(1000))
def step():
    if next(steps) == int(os.environ.get("DIE_AT", -1)):
        os.kill(os.getpid(), signal.SIGKILL)
def before(function):
    return lambda *arguments, **names: (step(), function(*arguments, **names))[1]
def binarise(arguments, data_bin, log, progress=None):
    if "SLEEP" in os.environ:
        print("ready", flush=True)
        time.sleep(60)
    part = pathlib.Path(str(data_bin) + ".part-stub")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    (part / "dict.txt").write_bytes(data_bin.with_name("dict.txt").read_bytes())
    (part / "train.bin").write_bytes(data_bin.with_name("train.txt").read_bytes())
    part.rename(data_bin)
prepare_swb.fairseq_preprocess = before(binarise)
os.replace = before(os.replace)
shutil.rmtree = before(shutil.rmtree)
common.run(prepare_swb.main, "prepare-swb.sh")
print("steps", next(steps))
"""


def stubbed(*arguments, **environment):
    command = [sys.executable, "-c", STUBBED, *map(str, arguments)]
    environment = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_killed_anywhere_then_run_again(tmp_path):
    """SIGKILL before every single step, over older output of other options: the next run makes the same files."""
    old, new = make_swda(tmp_path / "old"), make_swda(tmp_path / "new", conversations=9)
    reference, out = tmp_path / "reference", tmp_path / "out"
    output, _ = stubbed("--swda", new, "--out", reference).communicate(timeout=300)
    steps = int(output.split("steps ")[1])
    assert steps > 8
    assert stubbed("--swda", old, "--vocab-size", 3, "--out", tmp_path / "older").wait(20) == 0
    expected = tree(reference)
    for step in range(steps):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(tmp_path / "older", out)
        assert stubbed("--swda", new, "--out", out, DIE_AT=step).wait(20) == -signal.SIGKILL
        assert stubbed("--swda", new, "--out", out).wait(20) == 0
        assert tree(out) == expected, f"killed before step {step}"


def test_ctrl_c(tmp_path):
    child = stubbed("--swda", make_swda(tmp_path / "swda"), "--out", tmp_path / "out", SLEEP=1)
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=300)
    assert child.returncode == 130
    assert [line for line in errors.splitlines() if " %, " not in line] == [
        "prepare-swb.sh: interrupted: the same command goes on from the last whole stage"
    ]
    assert not list(tmp_path.glob("out/*.part*")) and not (tmp_path / "out" / "data-bin").exists()


def test_two_at_once(tmp_path):
    swda, out = make_swda(tmp_path / "swda"), tmp_path / "out"
    first = stubbed("--swda", swda, "--out", out, SLEEP=1)
    assert first.stdout.readline() == "ready\n"
    second = stubbed("--swda", swda, "--out", out)
    assert "another preparation is writing there" in second.communicate(timeout=300)[1]
    first.kill()
    first.communicate()
    assert stubbed("--swda", swda, "--out", out).wait(10) == 0


# ------------------------------------------------------------------------------------ the command, real


def script(*arguments, **environment):
    command = [DATA_PREP / "prepare-swb.sh", *map(str, arguments)]
    environment = {**os.environ, "PYTHON": sys.executable, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_binarised_text_is_the_text(tmp_path):
    """What fairseq reads back is train.txt with <unk> for the words left out."""
    from fairseq.data import Dictionary, data_utils

    out = tmp_path / "out"
    arguments = ["--swda", make_swda(tmp_path / "swda"), "--out", out, "--vocab-size", 5]
    done = script(*arguments)
    assert done.returncode == 0, done.stderr
    assert (out / "preprocess.log").read_text() and not list(out.glob("*.part*"))
    assert {file.name for file in (out / "data-bin").iterdir()} == {
        "dict.txt", *(f"{split}.{kind}" for split in swb.SPLITS for kind in ("bin", "idx"))
    }
    dictionary = Dictionary.load(str(out / "data-bin" / "dict.txt"))
    assert len(dictionary) == 5 + 4 and dictionary.symbols[4] == "the"
    for split in swb.SPLITS:
        data = data_utils.load_indexed_dataset(str(out / "data-bin" / split), dictionary)
        words = [line.split() for line in (out / f"{split}.txt").read_text().splitlines()]
        expected = [" ".join(w if w in dictionary else "<unk>" for w in line) for line in words]
        assert [dictionary.string(line, unk_string="<unk>") for line in data] == expected
        stamp = json.loads((out / "prepare.json").read_text())["dictionary"]["result"]["splits"][split]
        unknown = sum(line.split().count("<unk>") for line in expected)
        assert (stamp["words"], stamp["unknown"]) == (sum(map(len, words)), unknown) and unknown

    start = time.monotonic()
    again = script(*arguments)
    assert again.stdout == f"{out} is up to date\n{done.stdout}" and time.monotonic() - start < 2


def test_a_failing_fairseq(tmp_path, monkeypatch):
    """One line with the log's name, and nothing half made."""
    fake = write(tmp_path / "fairseq_cli" / "preprocess.py", "print('boom')\nraise SystemExit(3)\n")
    write(fake.parent / "__init__.py", "")
    out = tmp_path / "out"
    done = script("--swda", make_swda(tmp_path / "swda"), "--out", out, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert f"fairseq-preprocess failed, exit status 3 (boom): see {out / 'preprocess.log'}" in done.stderr
    assert not list(out.glob("data-bin*"))


def test_help_and_wrong_python(tmp_path):
    assert "--vocab-size" in script("--help").stdout
    done = script("--help", PYTHON=str(tmp_path / "none"))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
