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

import math
import re
import shutil
from collections import Counter
from contextlib import ExitStack
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from common import (
    ArgumentParser,
    Progress,
    Stamps,
    atomic_write,
    digest,
    fail,
    fairseq_preprocess,
    find_files,
    fingerprint,
    output_directory,
    positive_int,
    read_lines,
    require_fairseq,
    run,
)

SPLITS = ("train", "valid", "test")


# --------------------------------------------------------------------------------------- normalisation


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
        for pattern, replacement in COMPILED[source]:
            text = pattern.sub(replacement, text)
        if source in CAPITALS_ARE_LETTERS:
            text = spell_out(text)
        text = text.lower()
        for pattern, replacement in COMPILED_COMMON:
            text = pattern.sub(replacement, text)
    return " ".join([SPELLING.get(word, word) for word in text.split()])


# ------------------------------------------------------------------------------------- reading sources


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


def utterances(transcript, progress=None, skipped=None):
    """Yield the normalised utterances of a file, leaving out the empty ones.

    Args:
        progress: ``Progress`` in bytes, or None.
        skipped: ``Counter`` of the lines of another form in each file, or None, which makes them an error.
    """
    form = FORMATS[transcript.format]
    line_form = re.compile(form.line)
    for number, line in read_lines(transcript.path, progress):
        line = line.strip()
        if not line or (form.skip and line.startswith(form.skip)):
            continue
        match = line_form.fullmatch(line)
        if match is None and skipped is None:
            fail(f"{transcript.path}:{number}: expected a line like '{form.example}', found {shown(line)}: "
                 f"another format or a damaged file (--skip-bad-lines leaves such lines out)")
        if match is None:
            skipped[str(transcript.path)] += 1
        elif words := normalise(match[1], transcript.format):
            yield words


def shown(line):
    """A line quoted in an error, cut to 60 characters."""
    return repr(line if len(line) <= 60 else line[:57] + "...")


def directory(option, path):
    """``path`` as an existing directory."""
    path = Path(path)
    if not path.exists():
        fail(f"{option} {path}: no such directory")
    if not path.is_dir():
        fail(f"{option} {path}: a file: give the (unpacked) directory")
    return path


def conversations(option, path, pattern, like, format_):
    """A ``Transcript`` for each file name that matches ``pattern``, whose group 1 is the conversation."""
    pattern = re.compile(pattern)
    # bbn_orig holds Fisher's originals in another format; a copy of a file counts once
    files = {file.name: file for file in reversed(find_files(directory(option, path), pattern, ["bbn_orig"]))}
    if not files:
        fail(f"{option} {path}: no file named like {like} in it or below")
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
        fail(f"--hub5 {path}: has {len(references)} .stm files: give one of them, e.g. {references[0]}")
    like = "en_4156.txt, sw_4390.txt or hub5e00.english.000405.stm"
    texts = conversations("--hub5", path, r"((?:en|sw)_?\d+.*)\.txt", like, "hub5")
    return [transcript._replace(split="test") for transcript in texts]


SWDA_NAMES = {None: ("train",), "valid": ("val", "valid", "eval"), "test": ("test",)}


def swda(path):
    """The Switchboard Dialogue Act corpus and its splits: ``train/2005.txt`` etc., or ``train_set.txt``."""
    root = directory("--swda", path)
    root = root / "swda_data" if (root / "swda_data").is_dir() else root
    found = []
    for split, names in SWDA_NAMES.items():
        files = next(filter(None, (swda_files(root, name) for name in names)), [])
        found += [Transcript(file, "swda", file.stem, split) for file in files]
    if not found or found[0].split is not None:
        fail(f"--swda {path}: neither {root}/train/*.txt nor {root}/train_set.txt is there: "
             f"give a checkout of NathanDuran/Switchboard-Corpus, or its swda_data")
    return found


def swda_files(root, name):
    """The files of one split: those in ``name/``, else ``name_set.txt``, else the older ``name_text.txt``."""
    # beside 2005.txt, older checkouts have 2005_text.txt, the same without speaker and act
    files = sorted(file for file in (root / name).glob("[!.]*.txt") if not file.stem.endswith("_text"))
    return files or [file for kind in ("set", "text") if (file := root / f"{name}_{kind}.txt").is_file()][:1]


def text(option, path, split):
    """A file with an utterance a line, for one split."""
    if not Path(path).is_file():
        fail(f"{option} {path}: no such file: give plain text, an utterance a line")
    return [Transcript(Path(path), "text", Path(path).stem, split)]


# ---------------------------------------------------------------------------------------------- splits


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
        fail("no training text: give --swda DIR, --swb1 DIR, --fisher DIR or --train FILE (see --help)")
    if args.swb1 and args.swda:
        fail("--swb1 and --swda hold the same conversations: give one of them")
    if args.hub5 and args.test:
        fail("--hub5 and --test both give the test text: give one of them")


def hold_out(transcripts, sizes):
    """Give ``sizes[split]`` conversations that have no split yet to each split, and the others to train.

    The hash of a conversation's name decides: its two sides stay together, paths and order do not matter.
    """
    names = {transcript.conversation for transcript in transcripts if transcript.split is None}
    if sizes and not names:
        fail(f"no {' and no '.join(sizes)} text, and no conversations to hold it out from: "
             f"give {' and '.join(f'--{split} FILE' for split in sizes)}")
    if sum(sizes.values()) >= len(names) > 0:
        fail(f"{len(names)} conversations are too few to hold out {' + '.join(map(str, sizes.values()))} of "
             f"them: lower {' and '.join(f'--{split}-conversations' for split in sizes)}")
    order = iter(sorted(names, key=lambda name: sha256(name.encode()).hexdigest()))
    chosen = {name: split for split, size in sizes.items() for name in islice(order, size)}
    return [t if t.split else t._replace(split=chosen.get(t.conversation, "train")) for t in transcripts]


# ---------------------------------------------------------------------------------------------- stages


def write_text(transcripts, out, skip_bad_lines, before_replacing):
    """Write ``train.txt``, ``valid.txt`` and ``test.txt``: normalised, an utterance a line.

    Args:
        before_replacing: called when the new files are complete and older ones are about to go.

    Returns:
        Files of each split, and lines skipped in each file.
    """
    skipped = Counter() if skip_bad_lines else None
    with ExitStack() as stack:
        files = {split: stack.enter_context(atomic_write(out / f"{split}.txt")) for split in SPLITS}
        size = sum(transcript.path.stat().st_size for transcript in transcripts)
        progress = stack.enter_context(Progress("normalising", size))
        for transcript in transcripts:
            for words in utterances(transcript, progress, skipped):
                files[transcript.split].write(words + "\n")
        for split, file in files.items():
            if not file.tell():
                fail(f"the {split} text is empty: no words in {named(transcripts, split)}")
        before_replacing()
    return {"files": Counter(transcript.split for transcript in transcripts), "skipped": skipped or {}}


def named(transcripts, split):
    """The first files of a split, for an error."""
    paths = [str(transcript.path) for transcript in transcripts if transcript.split == split]
    return ", ".join(paths[:2]) + (f" and {len(paths) - 2} more" if len(paths) > 2 else "")


def count_words(path):
    """Counts of the words of a normalised file, and its number of utterances."""
    counts, lines = Counter(), 0
    with Progress(f"counting {path.name}", path.stat().st_size) as progress:
        for _, line in read_lines(path, progress):
            counts.update(line.split())
            lines += 1
    return counts, lines


def vocabulary(counts, size, min_count):
    """The ``size`` most frequent words seen ``min_count`` times or more.

    Returns:
        Dict from word to count, most frequent first, ties in alphabetical order.
    """
    frequent = [item for item in counts.items() if item[1] >= min_count]
    return dict(sorted(frequent, key=lambda item: (-item[1], item[0]))[:size])


class Unigram:
    """Maximum-likelihood unigram model: the baseline that a language model has to beat.

    ``<unk>`` has the count of all training words outside the vocabulary (1 where there are none), ``</s>``
    that of the utterances; both are scored like words.

    Args:
        counts: training counts of all words.
        lines: training utterances.
        known: training counts of the vocabulary.
    """

    def __init__(self, counts, lines, known):
        self.counts, self.eos = known, lines
        self.unk = max(1, sum(counts.values()) - sum(known.values()))
        self.total = sum(known.values()) + self.unk + self.eos

    def statistics(self, counts, lines):
        """Utterances, words, words outside the vocabulary, and perplexity of a text given by its counts."""
        words = sum(counts.values())
        unknown = sum(count for word, count in counts.items() if word not in self.counts)
        log_probability = lines * math.log(self.eos / self.total)
        for word, count in counts.items():
            log_probability += count * math.log(self.counts.get(word, self.unk) / self.total)
        perplexity = math.exp(-log_probability / (words + lines))
        return {"utterances": lines, "words": words, "unknown": unknown, "perplexity": perplexity}


def write_dictionary(out, size, min_count):
    """Write ``dict.txt`` in fairseq's format, without the special symbols, which fairseq adds itself.

    Returns:
        Types of the training text, words in the vocabulary, and the statistics of each split.
    """
    counts, lines = count_words(out / "train.txt")
    known = vocabulary(counts, size, min_count)
    if not known:
        fail(f"no word is seen {min_count} times in training: lower --min-count")
    model = Unigram(counts, lines, known)
    splits = {"train": model.statistics(counts, lines)}
    for split in ("valid", "test"):
        splits[split] = model.statistics(*count_words(out / f"{split}.txt"))
    with atomic_write(out / "dict.txt") as file:
        file.writelines(f"{word} {count}\n" for word, count in known.items())
    return {"types": len(counts), "vocabulary": len(known), "splits": splits}


def binarise(out, words, workers):
    """Make ``data-bin`` of what ``write_text`` and ``write_dictionary`` (with the result ``words``) wrote."""
    prefixes = [argument for split in SPLITS for argument in (f"--{split}pref", out / f"{split}.txt")]
    arguments = ["--only-source", "--srcdict", out / "dict.txt", *prefixes, "--workers", workers]
    tokens = sum(split["words"] + split["utterances"] for split in words["splits"].values())
    with Progress("binarising", tokens * (2 if words["vocabulary"] < 65000 else 4)) as progress:
        fairseq_preprocess(arguments, out / "data-bin", out / "preprocess.log", progress)


def prepare(transcripts, out, args):
    """Do the stages that are not done yet, for these files and options, in ``out``.

    Returns:
        Results of ``write_text`` and ``write_dictionary``, and whether there was anything to do.
    """
    stamps = Stamps(out / "prepare.json")

    def replacing(*stages):  # nothing half new is taken for finished, and no data-bin for other text stays
        stamps.forget(*stages)
        shutil.rmtree(out / "data-bin", ignore_errors=True)

    rules = Path(__file__).read_text(encoding="utf-8")
    inputs = [transcript._asdict() for transcript in transcripts], fingerprint(t.path for t in transcripts)
    text_key = digest(inputs, rules, args.skip_bad_lines)
    text = stamps.result("text", text_key)
    if text is None:
        every = ("text", "dictionary", "data-bin")
        text = write_text(transcripts, out, args.skip_bad_lines, lambda: replacing(*every))
        stamps.finish("text", text_key, [out / f"{split}.txt" for split in SPLITS], text)

    key = digest(text_key, args.vocab_size, args.min_count)
    words = stamps.result("dictionary", key)
    if words is None:
        replacing("dictionary", "data-bin")
        words = write_dictionary(out, args.vocab_size, args.min_count)
        stamps.finish("dictionary", key, [out / "dict.txt"], words)

    done = stamps.result("data-bin", key) is not None
    if not done:
        replacing("data-bin")
        binarise(out, words, args.workers)
        stamps.finish("data-bin", key, [out / "data-bin"], True)
    return text, words, done


# ---------------------------------------------------------------------------------------- command line


def parse_arguments():
    """The command line."""
    parser = ArgumentParser(
        prog="prepare-swb.sh",
        description="Switchboard, Fisher and Hub5 transcripts to normalised text and fairseq's binary data.",
        epilog="--out receives train.txt, valid.txt, test.txt, dict.txt, data-bin/ (for fairseq-train --task "
        "language_modeling), preprocess.log and prepare.json, the record of what is done: the same command "
        "run again does only what is missing. The rules of normalisation are tables in prepare_swb.py.",
    )
    add_sources(parser.add_argument_group("text (--swda or --swb1; --fisher goes with either)"))
    held_out = parser.add_argument_group("held out of the training text for a split that has none")
    for split in ("valid", "test"):
        held_out.add_argument(f"--{split}-conversations", type=positive_int, default=20, metavar="N",
                              help="whole conversations (default: %(default)s)")
    add = parser.add_argument
    add("--out", required=True, metavar="DIR", help="output directory")
    add("--vocab-size", type=positive_int, default=30000, metavar="N",
        help="words in the vocabulary at most; the others become <unk> (default: %(default)s)")
    add("--min-count", type=positive_int, default=2, metavar="N",
        help="leave out of the vocabulary words seen less often in training (default: %(default)s)")
    add("--workers", type=positive_int, default=1, metavar="N",
        help="processes of fairseq-preprocess (default: %(default)s)")
    add("--skip-bad-lines", action="store_true",
        help="leave out, and count, lines that are not of their source's form, instead of stopping")
    return parser.parse_args()


def add_sources(group):
    """The options that name text."""
    add = group.add_argument
    add("--swda", metavar="DIR", help="Switchboard Dialogue Act corpus: a checkout of "
        "NathanDuran/Switchboard-Corpus, or its swda_data; its splits are kept")
    add("--swb1", metavar="DIR", help="Switchboard-1 in ISIP's transcription: sw2001A-ms98-a-trans.text and "
        "so on, in DIR or below")
    add("--fisher", metavar="DIR", help="Fisher: fe_03_00001.txt and so on, in DIR or below")
    add("--hub5", metavar="PATH", help="Hub5 2000 reference as the test text: an .stm file, an LDC .txt "
        "file, or a directory with an .stm or with .txt files")
    for split in SPLITS:
        add(f"--{split}", metavar="FILE", help=f"plain {split} text, an utterance a line")


def report(out, text, words, done):
    """Print what there is now in ``out``."""
    if done:
        print(f"{out} is up to date")
    print("         files   utterances        words   OOV words      OOV   unigram perplexity")
    for split, row in words["splits"].items():
        oov = 100 * row["unknown"] / row["words"]
        print(f"{split:6}{text['files'][split]:8,}{row['utterances']:13,}{row['words']:13,}"
              f"{row['unknown']:12,}{oov:7.2f} %{row['perplexity']:21.2f}")
    print(f"vocabulary: {words['vocabulary']:,} of {words['types']:,} types, and fairseq's 4 special symbols")
    print("perplexity counts </s>, and <unk> like a word")
    if skipped := text["skipped"]:
        print(f"skipped: {sum(skipped.values()):,} lines of another form in {len(skipped):,} files, "
              f"the first of them {next(iter(skipped))}")


def main():
    """Prepare the data."""
    args = parse_arguments()
    require_fairseq()
    transcripts = collect(args)
    out = output_directory(args.out)
    report(out, *prepare(transcripts, out, args))


if __name__ == "__main__":
    run(main, "prepare-swb.sh")
