"""data-prep/prepare-swb.sh: rules, formats, splits, wrong input, and all of it once."""

import shutil
from argparse import Namespace
from collections import Counter
from hashlib import sha256

import pytest
from preparations import call, common, error_of, lines_of, swb, write

# ------------------------------------------------------------------------------------- normalisation


@pytest.mark.parametrize(
    ("source", "rule"),
    [(source, rule) for source, rules in swb.RULES.items() for rule in rules]
    + [(source, rule) for source in ("fisher", "swb1", "text") for rule in swb.COMMON_RULES],
    ids=lambda value: value if isinstance(value, str) else value.example,
)
def test_rule_examples(source, rule):
    assert swb.normalise(rule.example, source) == rule.result


@pytest.mark.parametrize(("source", "text", "words"), [
    ("swb1", "[laughter-wi]- [laughter-no[t]-] [laughter-[bocket/bucket]] so", "bucket so"),
    ("swb1", "I- i like them_1's IBMs [noise] PCs and NASA -[th]at", "i like them's i b m's p c's and nasa"),
    ("swb1", "UM-HUM [LAUGHTER-YEAH] WI[TH]- WITH TV", "um-hum yeah with t v"),
    ("swb1", "[laughter]yeah {yuppiedom's} <b_aside> come here <e_aside>", "yeah yuppiedom's come here"),
    ("swb1", "so AIDS ASCII BASIC DOS HUD MADD NAFTA NASA NATO OPEC OSHA RAM OK", "so aids ascii basic dos hud madd "
     "nafta nasa nato opec osha ram okay"),
    ("fisher", "uhh uhhh umm ummm hmmm mmm ahhh uh-hu mhmm mm-hm mm-hmm um-hm um-hmm umhum uh-hum uh-uh o-k ok tv",
     "uh uh um um hm hm ah uh-huh" + " um-hum" * 7 + " huh-uh okay okay t v"),
    ("fisher", "mhm [laughter] (( )) ((yeah)) i watch t._v. an- and", "um-hum yeah i watch t v and"),
    ("fisher", "I'm *mandatory hmm 'cause-- [[skip]] [mn] er", "i'm mandatory hm because uh"),
    ("fisher", "erm uhm er mm mmhm uhhuh hum-um ahh", "um um uh hm um-hum uh-huh huh-uh ah"),
    ("hub5", "%um, we saw ~TV. {laugh} +so+ ((not)) &Bill's [static] ho-", "um we saw t v so not bill's"),
    ("stm", "(%UH) AND (WH-) (%hesitation) U. S. <B_ASIDE> HELLO", "uh and uh u s hello"),
    ("swda", "Uh, first, um, I-, I need to know <laughter>, T V's.", "uh first um i need to know t v's"),
    ("swda", "{D You know, } [ it's, + it's ] # twenty-five, --", "you know it's it's twenty-five"),
    ("swda", "<Children> Uh-huh. Huh-uh. *two utts", "uh-huh huh-uh"),
    ("swda", "...", ""),
    ("swb1", "a[silence] b[noise] c[laughter] d[vocalized-noise] [lem-/linguini]-", "a b c d"),
    ("text", "a_b so---no \u2018cause 'cuz I 'm he 'd we 've you 're they 'll she 's",
     "a b so no because because i'm he'd we've you're they'll she's"),
    ("text", "nai\u0308ve cafe\u0301s", "na\u00efve caf\u00e9s"),
    ("text", "Okay, OK.  na\u00efve \u00c9t\u00e9\u00a0\u2019s", "okay okay na\u00efve \u00e9t\u00e9's"),
])  # fmt: skip
def test_normalise(source, text, words):
    assert swb.normalise(text, source) == words


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
    write(root / "reference" / "hub5e00.a-mandarin.stm", stm.replace("HE IS", "NI HAO"))
    write(root / "txt" / "en_5017.txt", turn)
    write(root / "txt" / "sw4390.txt", "1 2.5 B1: Yes.\n")
    return root


def utterances_of(transcripts, split=None):
    chosen = [t for t in transcripts if split is None or t.split == split]
    return [line for transcript in chosen for line in swb.utterances(transcript)]


def options(**given):
    defaults = dict.fromkeys(("swda", "swb1", "fisher", "hub5", "train", "valid", "test"))
    return Namespace(**{**defaults, "valid_conversations": 2, "test_conversations": 1, **given})


def test_formats(tmp_path):
    hub5 = make_hub5(tmp_path / "hub5")
    swb1 = make_swb1(tmp_path / "swb1", 1)
    sides = swb.conversations(swb1, swb.SWB1_NAMES, "swb1")
    assert utterances_of(sides) == ["hi um number x side a", "hi um number x side b"]
    calls = swb.conversations(make_fisher(tmp_path / "fe", 1), swb.FISHER_NAMES, "fisher")
    assert utterances_of(calls) == ["hello yeah", "um-hum call y"]
    assert utterances_of(swb.hub5(hub5)) == utterances_of(swb.hub5(hub5 / "reference")) == ["he is uh um-hum"]
    assert utterances_of(swb.hub5(hub5 / "txt")) == ["we we're here um", "yes"]
    assert utterances_of(swb.hub5(hub5 / "txt" / "en_5017.txt")) == ["we we're here um"]


@pytest.mark.parametrize("layout", ["checkout", "swda_data", "sets"])
def test_swda_layouts(tmp_path, layout):
    root = make_swda(tmp_path)
    if layout == "swda_data":
        root = root / "swda_data"
    if layout == "sets":
        for split in ("train", "val", "test"):
            directory = root / "swda_data" / split
            text = "".join(file.read_text() for file in sorted(directory.glob("*.txt")))
            write(root / "swda_data" / f"{split}_set.txt", text)
            shutil.rmtree(directory)
    actual = swb.collect(options(swda=root))
    assert len(utterances_of(actual, "train")) == 12
    assert utterances_of(actual, "valid") == utterances_of(actual, "test") == ["okay uh let's see", "word0 the the end"]


def test_copies_and_links_count_once(tmp_path):
    root = make_fisher(tmp_path / "fisher")
    shutil.copytree(root / "data", root / "copy")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "part1").symlink_to(root)
    for folder in (root, tmp_path / "links"):
        assert len(swb.conversations(folder, swb.FISHER_NAMES, "fisher")) == 6


def test_what_cannot_be_read_is_told(tmp_path, monkeypatch):
    """A file or folder of a corpus that is listed and can't be opened isn't left out."""
    broken = make_fisher(tmp_path / "fisher") / "data" / "trans" / "fe_03_00009.txt"
    broken.symlink_to("nowhere")
    options = ["--out", tmp_path / "out", "--valid-conversations", 1, "--test-conversations", 1]
    assert str(broken) in error_of(monkeypatch, swb, "--fisher", tmp_path / "fisher", *options)
    assert not (tmp_path / "out").exists()


def test_held_out_conversations_are_whole(tmp_path):
    arguments = options(swb1=make_swb1(tmp_path / "swb1"), fisher=make_fisher(tmp_path / "fisher"))
    actual = swb.collect(arguments)
    split_of = {}
    for transcript in actual:
        assert split_of.setdefault(transcript.conversation, transcript.split) == transcript.split
    assert Counter(split_of.values()) == {"train": 9, "valid": 2, "test": 1}
    by_hash = sorted(split_of, key=lambda name: sha256(name.encode()).hexdigest())
    assert {split_of[name] for name in by_hash[:3]} == {"valid", "test"}
    (tmp_path / "moved").mkdir()
    for name in ("swb1", "fisher"):
        shutil.move(tmp_path / name, tmp_path / "moved" / name)
    again = swb.collect(options(swb1=tmp_path / "moved" / "swb1", fisher=tmp_path / "moved" / "fisher"))
    assert {t.conversation: t.split for t in again} == split_of


def test_given_splits_replace_and_fill(tmp_path):
    swda, fisher, hub5 = make_swda(tmp_path / "swda"), make_fisher(tmp_path / "fe"), make_hub5(tmp_path / "hub5")
    valid = write(tmp_path / "valid.txt", "Only this, uh, line.\n")
    actual = swb.collect(options(swda=swda, fisher=fisher, hub5=hub5, valid=valid))
    assert utterances_of(actual, "valid") == ["only this uh line"]
    assert utterances_of(actual, "test") == ["he is uh um-hum"]
    assert len(utterances_of(actual, "train")) == 12 + 12
    actual = swb.collect(options(swb1=make_swb1(tmp_path / "swb1"), hub5=hub5))
    assert Counter(t.split for t in actual) == {"train": 8, "valid": 4, "test": 1}
    shutil.rmtree(swda / "swda_data" / "val")  # held out where the corpus has none
    assert Counter(t.split for t in swb.collect(options(swda=swda))) == {"train": 4, "valid": 2, "test": 1}


def test_all_sources_at_once(monkeypatch, tmp_path, capsys):
    out = tmp_path / "out"
    write(tmp_path / "fe" / "fe_03_00009.txt", "no turn\n")
    arguments = ["--swb1", make_swb1(tmp_path / "swb1"), "--fisher", make_fisher(tmp_path / "fe"), "--hub5",
                 make_hub5(tmp_path / "hub5"), "--valid-conversations", 1, "--out", out, "--skip-bad-lines"]
    call(monkeypatch, swb, *arguments)
    text = {split: lines_of(out / f"{split}.txt") for split in common.SPLITS}
    assert len(text["train"]) == 22 and len(text["valid"]) == 2 and text["test"] == ["he is uh um-hum"]
    assert not set(text["train"]) & set(text["valid"]) - {"hello yeah"}
    assert all(int(line.split()[1]) > 1 for line in lines_of(out / "dict.txt"))  # words seen once are left out
    assert f"{tmp_path / 'fe' / 'fe_03_00009.txt'}:1: expected a line like" in capsys.readouterr().out


def test_conversations(monkeypatch, tmp_path):
    """SPLIT.parts has each conversation's lines: both sides of a call, none of a silent one; a single text has none."""
    write(make_swda(tmp_path / "swda") / "swda_data" / "val" / "2001.txt", "A|<noise>.|x\n")
    write(tmp_path / "swda" / "swda_data" / "val" / "2002.txt", "A|One.|sd\nB|Two.|sd\nA|Three.|sd\n")
    call(monkeypatch, swb, "--swda", tmp_path / "swda", "--out", tmp_path / "a")
    assert lines_of(tmp_path / "a" / "valid.parts") == ["2", "3"] and not (tmp_path / "a" / "test.parts").exists()
    assert lines_of(tmp_path / "a" / "train.parts") == ["2"] * 6
    assert lines_of(tmp_path / "a" / "valid.txt")[2:] == ["one", "two", "three"]
    call(monkeypatch, swb, "--swb1", make_swb1(tmp_path / "swb1"), "--out", tmp_path / "b", "--valid-conversations", 2,
         "--test-conversations", 2)
    assert [lines_of(tmp_path / "b" / f"{split}.parts") for split in common.SPLITS] == [["2"] * 2] * 3
    limits = []  # of the vocabulary
    monkeypatch.setattr(swb, "prepare", lambda args, *_: limits.extend((args.vocab_size, args.min_count)))
    call(monkeypatch, swb, "--swda", tmp_path / "swda", "--out", tmp_path / "c")
    assert limits == [30000, 2]


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "no training text: give --swda DIR, --swb1 DIR, --fisher DIR or --train FILE"),
    (["--swb1", "{tmp}/none"], "{tmp}/none"),
    (["--swb1", "{tmp}/bad"], "{tmp}/bad: no file with a name like"),
    (["--swda", "{tmp}/bad"], "{tmp}/bad/train/1.txt:2: expected a line like 'speaker|words|act', not 'x y'"),
    (["--train", "{tmp}/text"], "0 conversations are too few to hold out 20 + 20 of them"),
], ids=["nothing", "missing", "no match", "format", "none held out"])  # fmt: skip
def test_wrong_calls_are_told(arguments, message, tmp_path, monkeypatch):
    for split in ("train", "val", "test"):
        write(tmp_path / "bad" / split / "1.txt", "A|fine|b\nx y\n")
    write(tmp_path / "text", "some words\n")
    arguments = [argument.format(tmp=tmp_path) for argument in arguments]
    assert message.format(tmp=tmp_path) in error_of(monkeypatch, swb, *arguments, "--out", tmp_path / "out")
