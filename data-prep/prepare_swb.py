"""Switchboard text for language models: normalised, split, and binarised for fairseq.

Sources: Switchboard-1 in the ISIP (Mississippi State) transcription, Fisher (LDC2004T19, LDC2005T19), Hub5
2000 (LDC2002T43) as test text, and the public Switchboard Dialogue Act corpus in the form that
NathanDuran/Switchboard-Corpus has.

What is done with the marks of each source's transcription guidelines follows Kaldi's ``egs/swbd/s5c``
(``swbd1_map_words.pl``, ``fisher_map_words.pl``) and NIST's Hub5 scoring, except that

- partial words are left out (Kaldi keeps them for its acoustic model: ``ab[solute]-`` as ``ab-``),
- of a mispronounced ``[said/meant]`` the word meant is kept (Kaldi: the word said),
- acronyms said letter by letter are letters in every source: ``t._v.``, ``TV`` and ``T. V.`` become ``t v``.

Hesitations (uh, um, uh-huh, ...) stay, as words, in one spelling each. All rules are in the tables below,
each with an example, which the tests run.
"""

import os
import re
import unicodedata
from collections import Counter
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from common import SPLITS, InputError, Once, check_file, positive_int, progress, read_lines, run
from prepare_text import argument_parser, prepare


class Rule(NamedTuple):
    """A regular expression, what it is replaced by, and an example with its normalised form."""

    pattern: str
    replacement: str
    example: str
    result: str


# In this order: first the rules of the source, ignoring case, then, on lower-cased text, the common ones.

ISIP_RULES = (
    # the non-speech marks; some touch a word
    Rule(r"\[(?:silence|noise|laughter|vocalized-noise)\]", " ", "[silence] yeah [vocalized-noise]", "yeah"),
    # a word said laughing
    Rule(r"(?<!\S)\[laughter-(\S+)\](-?)(?!\S)", r"\1\2", "[laughter-oh] [laughter-i'm]", "oh i'm"),
    # a mispronounced word that was cut off as well: a partial word
    Rule(r"(?<!\S)(?:\[\S*-/\S+\]-?|\[\S+/\S+\]-)(?!\S)", " ", "[lem[gui]-/linguini] [tack/talk]- so", "so"),
    # a mispronounced word, [said/meant]
    Rule(r"(?<!\S)\[[^\s/]+/(\S+)\](?!\S)", r"\1", "[bocket/bucket]", "bucket"),
    # a partial word, the unspoken part in brackets; the hyphen is missing at times
    Rule(r"(?<!\S)\S*(?:\w\[|\]\w)\S*(?!\S)", " ", "wi[th]- with -[an]y ammu[n]it- ab[solute]", "with"),
    # a variant of pronunciation
    Rule(r"(?<=\w)_\d+", "", "them_1 because_1", "them because"),
)

SWB1_RULES = (
    # a coined word
    Rule(r"[{}]", "", "{brainwave}", "brainwave"),
    *ISIP_RULES,
)

FISHER_RULES = (
    # letters of an acronym, and its plural
    Rule(r"\._", " ", "t._v. on u._s. soil", "t v on u s soil"),
    Rule(r"\b([a-z])\.'?s\b", r"\1's", "c._d.s m._b._a.'s", "c d's m b a's"),
)

HUB5_RULES = (
    # a contraction's long form, in front of it
    Rule(r'<contraction[^"]*"[^"]*">', "", '<contraction e_form="[we=>we][\'re=>are]">we\'re', "we're"),
    # sounds of the speaker
    Rule(r"\{[^{}]*\}", " ", "what? {breath} oh", "what oh"),
    # a name
    Rule(r"(?<!\S)&(?=\w)", "", "&Bill's", "bill's"),
    *ISIP_RULES,  # its Switchboard half
)

STM_RULES = (
    # a stretch that NIST does not score
    Rule(r"ignore_time_segment_in_scoring", " ", "IGNORE_TIME_SEGMENT_IN_SCORING", ""),
    # a hesitation, of whatever sound
    Rule(r"%hesitation\b", "uh", "(%HESITATION) WELL", "uh well"),
    # alternatives, of which the first is taken
    Rule(r"\{\s*([^{}/]*)/[^{}]*\}", r"\1", "{ GOING TO / GONNA } GO", "going to go"),
)

SWDA_RULES = (
    # an annotator's note, to the end of the line
    Rule(r"\*.*", "", "It's in your bag, *spelling: you're", "it's in your bag"),
    # an annotator's correction
    Rule(r"(?<!\S)\S+=\S+", " ", "I haven't watch any. watch=watched", "i haven't watch any"),
    # marks of disfluency and repair, as the annotated original has them
    Rule(r"\{[a-z]\b|[\[\]]", " ", "{F uh, } [ I, + I ] see # <<sighs>>", "uh i i see"),
    # the accented e
    Rule(r"(?<=[a-z])3e", "e", "my fianc3e", "my fiance"),
)

COMMON_RULES = (
    Rule("[\u2018\u2019]", "'", "don\u2019t", "don't"),
    # remarks and foreign speech: <b_aside>, <laughter>, <german (( ja wohl ))>
    Rule(r"<[^<>]*>", " ", "<b_aside> hello <e_aside> <german (( ja wohl ))>", "hello"),
    # other non-speech: [mn], [sigh], [lipsmack], [[skip]]
    Rule(r"\[[^\[\]]*\]", " ", "[mn] hello [laughter] [[skip]]", "hello"),
    Rule(r"&", " and ", "AT&T", "at and t"),
    Rule(r"-{2,}", " ", "well -- so--no", "well so no"),
    # punctuation, ((uncertain words)), %um, +marks+
    Rule(r"[^\w' -]|_", " ", '((Well)), %um, "no": +yes+. #', "well um no yes"),
    # partial words, and hyphens on their own
    Rule(r"(?<!\S)(?:-\S*|\S*-)(?!\S)", " ", "th- the -ause - (whi-) well-known", "the well-known"),
    # words said short
    Rule(r"(?<![\w'])'em\b", "them", "get 'em", "get them"),
    Rule(r"(?<![\w'])'(?:cause|cuz)\b", "because", "'cause", "because"),
    # an ending that stands apart
    Rule(r"(?<=\w) +(?='(?:s|m|d|ve|re|ll)(?![\w']))", "", "who 's t._v.'s", "who's t v's"),
    # quotation marks, but not the apostrophes of don't and kids'
    Rule(r"(?<!\w)'+|(?<!s)'+(?!\w)", "", "'yeah' kids' goin' don't", "yeah kids' goin don't"),
)

# One spelling for each sound, that of Switchboard-1. "mhm" is Fisher's um-hum, "hum-um" and "uh-uh" mean no.
HESITATIONS = {
    "uh": "uhh uhhh er",
    "um": "umm ummm uhm erm",
    "hm": "hmm hmmm mm mmm",
    "ah": "ahh ahhh",
    "uh-huh": "uhhuh uh-hu",
    "um-hum": "mhm mhmm mmhm mm-hm mm-hmm um-hm um-hmm umhum uh-hum",
    "huh-uh": "uh-uh hum-um",
}
OTHER_SPELLINGS = {"okay": "ok o-k", "t v": "tv"}

RULES = {
    "swb1": SWB1_RULES,
    "fisher": FISHER_RULES,
    "hub5": HUB5_RULES,
    "stm": STM_RULES,
    "swda": SWDA_RULES,
    "text": FISHER_RULES,
}
COMPILED = {
    source: [(re.compile(rule.pattern, re.IGNORECASE), rule.replacement) for rule in rules]
    for source, rules in RULES.items()
}
COMPILED_COMMON = [(re.compile(rule.pattern), rule.replacement) for rule in COMMON_RULES]
SPELLING = {
    variant: standard
    for table in (HESITATIONS, OTHER_SPELLINGS)
    for standard, variants in table.items()
    for variant in variants.split()
}

# In these sources capitals within lower case are said letter by letter, except for some words.
CAPITALS_ARE_LETTERS = ("swb1", "hub5")
CAPITALS = re.compile(r"\b([A-Z]{2,})('?s)?\b")
SAID_AS_WORDS = frozenset(
    ("AIDS", "ASCII", "BASIC", "DOS", "HUD", "MADD", "NAFTA", "NASA", "NATO", "OK", "OPEC", "OSHA", "RAM")
)
PLAIN = re.compile(r"[a-z ]+")


def spell_out(text):
    """``"TVs at NASA"`` to ``"T V's at NASA"``; text that is in capitals throughout stays as it is."""

    def letters(match):
        return match[0] if match[1] in SAID_AS_WORDS else " ".join(match[1]) + ("'s" if match[2] else "")

    return text if text.isupper() else CAPITALS.sub(letters, text)


def normalise(text, source):
    """An utterance as transcribed to its normalised words, separated by single spaces; empty for non-speech.

    Args:
        text: the words and marks, without time stamps or speaker.
        source: a key of ``RULES``.
    """
    if not PLAIN.fullmatch(text):
        text = unicodedata.normalize("NFC", text)  # a letter and its accent as one
        for pattern, replacement in COMPILED[source]:
            text = pattern.sub(replacement, text)
        if source in CAPITALS_ARE_LETTERS:
            text = spell_out(text)
        text = text.lower()
        for pattern, replacement in COMPILED_COMMON:
            text = pattern.sub(replacement, text)
    return " ".join([SPELLING.get(word, word) for word in text.split()])


class Format(NamedTuple):
    """How a line of a transcript looks."""

    line: str  # group 1 is the utterance
    skip: str  # beginning of lines without an utterance
    example: str


TIMES = r"-?\d+(?:\.\d+)?\s+-?\d+(?:\.\d+)?"
TURN = Format(rf"{TIMES}\s+[AB]\d*:(.*)", "#", "0.00 1.51 A: words")
FORMATS = {
    "swb1": Format(rf"sw\w+-ms98-\S+\s+{TIMES}(.*)", "", "sw2001A-ms98-a-0001 0.00 1.51 words"),
    "fisher": TURN,
    "hub5": TURN,
    "stm": Format(rf"(?:\S+\s+){{3}}{TIMES}(?:\s+<[^>]*>)?(.*)", ";;", "en_4156 A spk 0.00 1.51 <O> WORDS"),
    "swda": Format(r"[^|]+\|([^|]*)\|[^|]+", "", "speaker|words|act"),
    "text": Format(r"(.*)", "", "words"),
}


class Transcript(NamedTuple):
    """A file of utterances."""

    path: Path
    format: str  # a key of FORMATS and of RULES
    conversation: str
    split: str | None = None  # None: train, or held out with its conversation


def utterances(transcript, skipped=None):
    """Yield the normalised utterances of a file, leaving out the empty ones.

    Args:
        skipped: ``Counter`` of the lines of another form in each file, or None, which makes them an error.
    """
    form = FORMATS[transcript.format]
    line_form = re.compile(form.line)
    for number, line in enumerate(read_lines(transcript.path), start=1):
        line = line.strip()
        if not line or (form.skip and line.startswith(form.skip)):
            continue
        match = line_form.fullmatch(line)
        if match is None and skipped is None:
            raise InputError(f"{transcript.path}:{number}: expected a line like '{form.example}', not {shown(line)}: "
                             "another format or a damaged file (--skip-bad-lines leaves such lines out)")
        if match is None:
            skipped[str(transcript.path)] += 1
            continue
        if words := normalise(match[1], transcript.format):
            yield words


def shown(line):
    """A line quoted in an error, cut to 60 characters."""
    return repr(line if len(line) <= 60 else line[:57] + "...")


def directory(option, path):
    """``path`` as an existing directory."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"{option} {path}: no such directory")
    if not path.is_dir():
        raise InputError(f"{option} {path}: a file: give the (unpacked) directory")
    return path


def find_files(directory, pattern, skip_directories=()):
    """Sorted files below ``directory``, links followed, whose name matches the compiled ``pattern``.

    Raises:
        OSError: a folder can't be read.
    """
    def fail(error):
        raise error

    files = []
    for parent, children, names in os.walk(directory, onerror=fail, followlinks=True):
        children[:] = [child for child in children if child not in skip_directories]
        files += [Path(parent, name) for name in names if pattern.fullmatch(name)]
    return sorted(files)


def conversations(option, path, pattern, like, format_):
    """A ``Transcript`` for each file name that matches ``pattern``, whose group 1 is the conversation."""
    pattern = re.compile(pattern)
    # bbn_orig holds Fisher's originals in another format; a copy of a file counts once
    files = {file.name: file for file in reversed(find_files(directory(option, path), pattern, ["bbn_orig"]))}
    if not files:
        raise InputError(f"{option} {path}: no file named like {like} in it or below")
    return [Transcript(files[name], format_, pattern.fullmatch(name)[1]) for name in sorted(files)]


def swb1(path):
    """The ISIP transcripts below ``path``: two files a conversation, one a side."""
    pattern = r"(sw\d+)[AB]-ms98-a-trans\.text"
    return conversations("--swb1", path, pattern, "sw2001A-ms98-a-trans.text", "swb1")


def fisher(path):
    """The Fisher transcripts below ``path``."""
    return conversations("--fisher", path, r"(fe_03_\d+)\.txt", "fe_03_00001.txt", "fisher")


def hub5(path):
    """Hub5 2000's reference: an ``.stm``, an LDC ``.txt``, or a directory with either (``.stm`` first)."""
    path = Path(path)
    if path.is_file():
        return [Transcript(path, "stm" if path.suffix == ".stm" else "hub5", path.stem, "test")]
    references = find_files(directory("--hub5", path), re.compile(r".*\.stm"))
    english = [file for file in references if "english" in file.name]
    if len(references) == 1 or len(english) == 1:
        return hub5((english or references)[0])
    if references:
        raise InputError(f"--hub5 {path}: has {len(references)} .stm files: give one of them, e.g. {references[0]}")
    like = "en_4156.txt, sw_4390.txt or hub5e00.english.000405.stm"
    texts = conversations("--hub5", path, r"((?:en|sw)_?\d+.*)\.txt", like, "hub5")
    return [transcript._replace(split="test") for transcript in texts]


SWDA_NAMES = {None: ("train",), "valid": ("val", "valid", "eval"), "test": ("test",)}


def swda(path):
    """The Switchboard Dialogue Act corpus and its splits: ``train/2005.txt`` etc., or ``train_set.txt``."""
    root = directory("--swda", path)
    root = root / "swda_data" if (root / "swda_data").is_dir() else root
    transcripts = []
    for split, names in SWDA_NAMES.items():
        files = next(filter(None, (swda_files(root, name) for name in names)), [])
        transcripts += [Transcript(file, "swda", file.stem, split) for file in files]
    if not transcripts or transcripts[0].split is not None:
        raise InputError(f"--swda {path}: neither {root}/train/*.txt nor {root}/train_set.txt is there: "
                         f"give a checkout of NathanDuran/Switchboard-Corpus, or its swda_data")
    return transcripts


def swda_files(root, name):
    """The files of one split: those in ``name/``, else ``name_set.txt``, else the older ``name_text.txt``."""
    names = os.listdir(root / name) if (root / name).is_dir() else []
    # beside 2005.txt, older checkouts have 2005_text.txt, the same without speaker and act
    files = [root / name / file for file in sorted(names) if re.fullmatch(r"[^.].*(?<!_text)\.txt", file)]
    return files or [file for kind in ("set", "text") if (file := root / f"{name}_{kind}.txt").is_file()][:1]


def text(option, path, split):
    """A file with an utterance a line, for one split."""
    check_file(path, option, ": give plain text, an utterance a line")
    return [Transcript(Path(path), "text", Path(path).stem, split)]


def collect(args):
    """The transcripts that the command line names, each with its split.

    ``--valid``, ``--test`` and ``--hub5`` replace that split of ``--swda``; a split that nothing gives is
    held out of the training conversations.
    """
    check_sources(args)
    given = []
    given += text("--train", args.train, "train") if args.train else []
    given += text("--valid", args.valid, "valid") if args.valid else []
    given += text("--test", args.test, "test") if args.test else []
    given += hub5(args.hub5) if args.hub5 else []
    replaced = {transcript.split for transcript in given}
    corpora = swda(args.swda) if args.swda else []
    corpora = [transcript for transcript in corpora if transcript.split not in replaced]
    corpora += swb1(args.swb1) if args.swb1 else []
    corpora += fisher(args.fisher) if args.fisher else []
    there = replaced | {transcript.split for transcript in corpora}
    sizes = {"valid": args.valid_conversations, "test": args.test_conversations}
    return hold_out(corpora, {split: size for split, size in sizes.items() if split not in there}) + given


def check_sources(args):
    """Fail on command lines that name no training text, or the same text twice."""
    if not (args.swb1 or args.fisher or args.swda or args.train):
        raise InputError("no training text: give --swda DIR, --swb1 DIR, --fisher DIR or --train FILE (see --help)")
    if args.swb1 and args.swda:
        raise InputError("--swb1 and --swda hold the same conversations: give one of them")
    if args.hub5 and args.test:
        raise InputError("--hub5 and --test both give the test text: give one of them")


def hold_out(transcripts, sizes):
    """Give ``sizes[split]`` conversations that have no split yet to each split, and the others to train.

    The hash of a conversation's name decides: its two sides stay together, paths and order do not matter.
    """
    names = {transcript.conversation for transcript in transcripts if transcript.split is None}
    if sizes and not names:
        raise InputError(f"no {' and no '.join(sizes)} text, and no conversations to hold it out from: "
                         f"give {' and '.join(f'--{split} FILE' for split in sizes)}")
    if sum(sizes.values()) >= len(names) > 0:
        raise InputError(f"{len(names)} conversations are too few to hold out {' + '.join(map(str, sizes.values()))} "
                         f"of them: lower {' and '.join(f'--{split}-conversations' for split in sizes)}")
    order = iter(sorted(names, key=lambda name: sha256(name.encode()).hexdigest()))
    chosen = {name: split for split, size in sizes.items() for name in islice(order, size)}
    return [t if t.split else t._replace(split=chosen.get(t.conversation, "train")) for t in transcripts]


def normalised(transcripts, skipped):
    """Yield ``(split, conversation, utterance)`` of all transcripts, as ``prepare`` takes them; ``skipped`` as
    ``utterances``."""
    size = sum(transcript.path.stat().st_size for transcript in transcripts)
    with progress(label="normalising", total=size, unit="B", unit_scale=True) as bar:
        for transcript in transcripts:
            for words in utterances(transcript, skipped):
                yield transcript.split, transcript.conversation, words
            bar.update(transcript.path.stat().st_size)


def parse_arguments():
    """The command line."""
    parser = argument_parser("prepare-swb.sh", "Switchboard, Fisher and Hub5 transcripts to normalised text and "
                             "fairseq's binary data.", vocab_size=30000, min_count=2)
    parser.epilog += " The rules of normalisation are tables in prepare_swb.py."
    add_sources(parser.add_argument_group("text (--swda or --swb1; --fisher goes with either)"))
    held_out = parser.add_argument_group("held out of the training text for a split that has none")
    for split in ("valid", "test"):
        held_out.add_argument(f"--{split}-conversations", type=positive_int, default=20, metavar="N",
                              help="whole conversations (default: %(default)s)")
    parser.add_argument("--skip-bad-lines", action="store_true",
                        help="leave out, and count, lines that are not of their source's form, instead of stopping")
    return parser.parse_args()


def add_sources(group):
    """The options that name text."""
    add = partial(group.add_argument, type=Path, action=Once)
    add("--swda", metavar="DIR", help="Switchboard Dialogue Act corpus: a checkout of "
        "NathanDuran/Switchboard-Corpus, or its swda_data; its splits are kept")
    add("--swb1", metavar="DIR", help="Switchboard-1 in ISIP's transcription: sw2001A-ms98-a-trans.text "
        "and so on, in DIR or below")
    add("--fisher", metavar="DIR", help="Fisher: fe_03_00001.txt and so on, in DIR or below")
    add("--hub5", metavar="PATH", help="Hub5 2000 reference as the test text: an .stm file, an LDC .txt "
        "file, or a directory with an .stm or with .txt files")
    for split in SPLITS:
        add(f"--{split}", metavar="FILE", help=f"plain {split} text, an utterance a line")


def main():
    args = parse_arguments()
    transcripts = collect(args)
    skipped = Counter() if args.skip_bad_lines else None
    sources = [transcript.path for transcript in transcripts]
    options = [transcript._asdict() for transcript in transcripts], RULES, COMMON_RULES, SPELLING, args.skip_bad_lines
    prepare(args, sources, options, lambda: normalised(transcripts, skipped), skipped)


if __name__ == "__main__":
    run(main, "prepare-swb.sh")
