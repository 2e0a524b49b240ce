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
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from common import BAR, SPLITS, read_lines
from prepare_text import argument_parser, prepare
from tqdm import tqdm

from fairseq_kernels.errors import positive_int


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

RULES = {
    "swb1": (
        # a coined word
        Rule(r"[{}]", "", "{brainwave}", "brainwave"),
        *ISIP_RULES,
    ),
    "fisher": (
        # letters of an acronym, and its plural
        Rule(r"\._", " ", "t._v. on u._s. soil", "t v on u s soil"),
        Rule(r"\b([a-z])\.'?s\b", r"\1's", "c._d.s m._b._a.'s", "c d's m b a's"),
    ),
    "hub5": (
        # a contraction's long form, in front of it
        Rule(r'<contraction[^"]*"[^"]*">', "", '<contraction e_form="[we=>we][\'re=>are]">we\'re', "we're"),
        # sounds of the speaker
        Rule(r"\{[^{}]*\}", " ", "what? {breath} oh", "what oh"),
        # a name
        Rule(r"(?<!\S)&(?=\w)", "", "&Bill's", "bill's"),
        *ISIP_RULES,  # its Switchboard half
    ),
    "stm": (
        # a stretch that NIST does not score
        Rule(r"ignore_time_segment_in_scoring", " ", "IGNORE_TIME_SEGMENT_IN_SCORING", ""),
        # a hesitation, of whatever sound
        Rule(r"%hesitation\b", "uh", "(%HESITATION) WELL", "uh well"),
        # alternatives, of which the first is taken
        Rule(r"\{\s*([^{}/]*)/[^{}]*\}", r"\1", "{ GOING TO / GONNA } GO", "going to go"),
    ),
    "swda": (
        # an annotator's note, to the end of the line
        Rule(r"\*.*", "", "It's in your bag, *spelling: you're", "it's in your bag"),
        # an annotator's correction
        Rule(r"(?<!\S)\S+=\S+", " ", "I haven't watch any. watch=watched", "i haven't watch any"),
        # marks of disfluency and repair, as the annotated original has them
        Rule(r"\{[a-z]\b|[\[\]]", " ", "{F uh, } [ I, + I ] see # <<sighs>>", "uh i i see"),
        # the accented e
        Rule(r"(?<=[a-z])3e", "e", "my fianc3e", "my fiance"),
    ),
}
RULES["text"] = RULES["fisher"]

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
SPELLINGS = {
    "uh": "uhh uhhh er",
    "um": "umm ummm uhm erm",
    "hm": "hmm hmmm mm mmm",
    "ah": "ahh ahhh",
    "uh-huh": "uhhuh uh-hu",
    "um-hum": "mhm mhmm mmhm mm-hm mm-hmm um-hm um-hmm umhum uh-hum",
    "huh-uh": "uh-uh hum-um",
    "okay": "ok o-k",
    "t v": "tv",
}

SPELLING = {variant: standard for standard, variants in SPELLINGS.items() for variant in variants.split()}

# In these sources capitals within lower case are said letter by letter, except for some words.
CAPITALS_ARE_LETTERS = ("swb1", "hub5")
SAID_AS_WORDS = "AIDS|ASCII|BASIC|DOS|HUD|MADD|NAFTA|NASA|NATO|OK|OPEC|OSHA|RAM"
CAPITALS = re.compile(rf"\b(?!(?:{SAID_AS_WORDS})(?:'?s)?\b)([A-Z]{{2,}})('?s)?\b")
PLAIN = re.compile(r"[a-z ]+")


def spell_out(text):
    """``"TVs at NASA"`` to ``"T V's at NASA"``; text that is in capitals throughout stays as it is."""
    letters = CAPITALS.sub(lambda match: " ".join(match[1]) + ("'s" if match[2] else ""), text)
    return text if text.isupper() else letters


def normalise(text, source):
    """An utterance as transcribed, without time stamps or speaker, to its normalised words, separated by single spaces;
    empty for non-speech."""
    if not PLAIN.fullmatch(text):
        text = unicodedata.normalize("NFC", text)  # a letter and its accent as one
        for rule in RULES[source]:
            text = re.sub(rule.pattern, rule.replacement, text, flags=re.IGNORECASE)
        if source in CAPITALS_ARE_LETTERS:
            text = spell_out(text)
        text = text.lower()
        for rule in COMMON_RULES:
            text = re.sub(rule.pattern, rule.replacement, text)
    return " ".join([SPELLING.get(word, word) for word in text.split()])


TIMES = r"-?\d+(?:\.\d+)?\s+-?\d+(?:\.\d+)?"
TURN = (rf"#.*|{TIMES}\s+[AB]\d*:(.*)", "0.00 1.51 A: words")
FORMATS = {  # how a line of a transcript looks, group 1 being the utterance, if the line has one; an example
    "swb1": (rf"sw\w+-ms98-\S+\s+{TIMES}(.*)", "sw2001A-ms98-a-0001 0.00 1.51 words"),
    "fisher": TURN,
    "hub5": TURN,
    "stm": (rf";;.*|(?:\S+\s+){{3}}{TIMES}(?:\s+<[^>]*>)?(.*)", "en_4156 A spk 0.00 1.51 <O> WORDS"),
    "swda": (r"[^|]+\|([^|]*)\|[^|]+", "speaker|words|act"),
    "text": (r"(.*)", "words"),
}


class Transcript(NamedTuple):
    """A file of utterances."""

    path: Path
    format: str  # a key of FORMATS and of RULES
    conversation: str
    split: str | None = None  # None: train, or held out with its conversation


def utterances(transcript, skip_bad_lines=False):
    """Yield the normalised utterances of a file, leaving out the empty ones."""
    form, example = FORMATS[transcript.format]
    for number, line in enumerate(read_lines(transcript.path), start=1):
        line = line.strip()
        if match := re.fullmatch(form, line):
            if words := normalise(match[1] or "", transcript.format):
                yield words
        elif line:
            message = f"{transcript.path}:{number}: expected a line like '{example}', not {line[:60]!r}"
            if not skip_bad_lines:
                raise ValueError(f"{message} (--skip-bad-lines leaves such lines out)")
            tqdm.write(f"left out: {message}")


# names of files, of which group 1 is the conversation; Switchboard-1 has two files a conversation, one a side
SWB1_NAMES = r"(sw\d+)[AB]-ms98-a-trans\.text"
FISHER_NAMES = r"(fe_03_\d+)\.txt"
HUB5_NAMES = r"((?:en|sw)_?\d+.*)\.txt"


def files_below(directory, pattern):
    """Sorted files below ``directory``, links followed, whose names match ``pattern``."""
    def fail(error):
        raise error

    folders = os.walk(directory, onerror=fail, followlinks=True)
    return sorted(Path(parent, name) for parent, _, names in folders for name in names if re.fullmatch(pattern, name))


def conversations(path, pattern, format_, split=None):
    """A ``Transcript`` for each file below ``path`` whose name matches ``pattern``; group 1 is the conversation. A copy
    of a file counts once."""
    found = [file for file in files_below(path, pattern) if "bbn_orig" not in file.parts]  # Fisher's, in another format
    if not found:
        raise ValueError(f"{path}: no file with a name like {pattern} in it or below")
    files = {file.name: file for file in reversed(found)}
    return [Transcript(files[name], format_, re.fullmatch(pattern, name)[1], split) for name in sorted(files)]


def hub5(path):
    """Hub5 2000's reference: an ``.stm``, an LDC ``.txt``, or a directory with either (an English ``.stm`` first)."""
    if path.is_file():
        return [Transcript(path, "stm" if path.suffix == ".stm" else "hub5", path.stem, "test")]
    references = sorted(files_below(path, r".*\.stm"), key=lambda file: "english" not in file.name)
    return hub5(references[0]) if references else conversations(path, HUB5_NAMES, "hub5", "test")


def swda(path):
    """The Switchboard Dialogue Act corpus and its splits: ``train/2005.txt`` etc., or ``train_set.txt``."""
    root = path / "swda_data" if (path / "swda_data").is_dir() else path
    transcripts = []
    for split, names in ((None, ("train",)), ("valid", ("val", "valid", "eval")), ("test", ("test",))):
        forms = [form.format(name) for name in names for form in ("{}/*.txt", "{}_set.txt")]
        files = next(filter(None, (sorted(root.glob(form)) for form in forms)), [])
        transcripts += [Transcript(file, "swda", file.stem, split) for file in files]
    if not transcripts or transcripts[0].split is not None:
        raise ValueError(f"--swda {path}: neither {root}/train/*.txt nor {root}/train_set.txt is there: "
                         f"give a checkout of NathanDuran/Switchboard-Corpus, or its swda_data")
    return transcripts


def collect(args):
    """The transcripts that the command line names, each with its split.

    ``--valid``, ``--test`` and ``--hub5`` replace that split of ``--swda``; a split that nothing gives is
    held out of the training conversations.
    """
    if not (args.swb1 or args.fisher or args.swda or args.train):
        raise ValueError("no training text: give --swda DIR, --swb1 DIR, --fisher DIR or --train FILE (see --help)")
    given = [Transcript(path, "text", path.stem, split) for split in SPLITS if (path := getattr(args, split))]
    given += hub5(args.hub5) if args.hub5 else []
    corpora = swda(args.swda) if args.swda else []
    corpora += conversations(args.swb1, SWB1_NAMES, "swb1") if args.swb1 else []
    corpora += conversations(args.fisher, FISHER_NAMES, "fisher") if args.fisher else []
    replaced = {transcript.split for transcript in given}
    corpora = [transcript for transcript in corpora if transcript.split not in replaced]
    there = replaced | {transcript.split for transcript in corpora}
    sizes = {"valid": args.valid_conversations, "test": args.test_conversations}
    return hold_out(corpora, {split: size for split, size in sizes.items() if split not in there}) + given


def hold_out(transcripts, sizes):
    """Give ``sizes[split]`` conversations that have no split yet to each split, and the others to train.

    The hash of a conversation's name decides: its two sides stay together, paths and order do not matter.
    """
    names = {transcript.conversation for transcript in transcripts if transcript.split is None}
    if sizes and sum(sizes.values()) >= len(names):
        raise ValueError(f"{len(names)} conversations are too few to hold out {' + '.join(map(str, sizes.values()))} "
                         f"of them: give {' and '.join(f'--{split} FILE' for split in sizes)}, or hold out fewer")
    order = iter(sorted(names, key=lambda name: sha256(name.encode()).hexdigest()))
    chosen = {name: split for split, size in sizes.items() for name in islice(order, size)}
    return [t if t.split else t._replace(split=chosen.get(t.conversation, "train")) for t in transcripts]


def main():
    parser = argument_parser("Switchboard, Fisher and Hub5 transcripts to normalised text and fairseq's binary data.",
                             vocab_size=30000, min_count=2)
    group = parser.add_argument_group("text (--swda or --swb1, the same conversations; --fisher with either)")
    for option, text in (
        ("--swda", "Switchboard Dialogue Act corpus: a checkout of NathanDuran/Switchboard-Corpus, in its splits"),
        ("--swb1", "Switchboard-1 in ISIP's transcription: sw2001A-ms98-a-trans.text and so on, in PATH or below"),
        ("--fisher", "Fisher: fe_03_00001.txt and so on, in PATH or below"),
        ("--hub5", "Hub5 2000 reference as the test text: an .stm file, an LDC .txt file, or a folder with them"),
        *((f"--{split}", f"plain {split} text, an utterance a line") for split in SPLITS),
    ):
        group.add_argument(option, type=Path, metavar="PATH", help=text)
    for split in ("valid", "test"):
        parser.add_argument(f"--{split}-conversations", type=positive_int, default=20, metavar="N", help="whole "
                            f"conversations held out for a {split} text, if nothing gives it (default: %(default)s)")
    parser.add_argument("--skip-bad-lines", action="store_true",
                        help="leave out, and name, lines that are not of their source's form, instead of stopping")
    args = parser.parse_args()
    transcripts = collect(args)

    def normalised(split):
        chosen = [transcript for transcript in transcripts if transcript.split == split]
        for transcript in tqdm(chosen, f"normalising {split}", unit=" files", **BAR):
            for words in utterances(transcript, args.skip_bad_lines):
                yield transcript.conversation, words

    options = [transcript._asdict() for transcript in transcripts], RULES, COMMON_RULES, SPELLING, args.skip_bad_lines
    prepare(args, [transcript.path for transcript in transcripts], options, normalised)
