"""Parallel text for fairseq: tokenised, cleaned, segmented into subwords and binarised.

The recipes of single corpora (prepare_iwslt14, prepare_multi30k) call ``prepare`` with text of their own.
"""

import io
from functools import partial
from itertools import chain, product
from pathlib import Path

import common
import moses
import sentencepiece
import subword_nmt.learn_bpe
from common import BAR, SPLITS, read_lines, words, write_lines
from sacremoses import MosesDetokenizer
from subword_nmt.apply_bpe import BPE
from tqdm import tqdm
from tqdm.contrib.concurrent import process_map

from fairseq_kernels.errors import positive_int

LONGEST_SENTENCE = 175  # tokens, as fairseq's recipes clean
LONGEST_WORD = 1000  # characters, as in clean-corpus-n.perl
VALID_EVERY = 23  # training pairs, as fairseq's IWSLT'14 recipe holds them out
OUTPUT = (
    "{train,valid,test}.LANG in subwords (for fairseq-generate --remove-bpe, after --bpe sentencepiece: --remove-bpe "
    "sentencepiece), code (the merges), {valid,test}.ref.LANG (the references of detokenised BLEU: sacrebleu -lc where "
    "the text is lower case)"
)


def languages(args):
    """Both languages in alphabetical order: the text is the same in either direction."""
    return sorted((args.source_lang, args.target_lang))


def prepare_files(args, prefixes):
    """``prepare`` of text files, ``{split: PREFIX}``: PREFIX.LANGUAGE, or the same with .gz, of both languages."""
    paths = {}
    for split, language in product(SPLITS, languages(args)):
        packed = Path(f"{prefixes[split]}.{language}.gz")
        paths[split, language] = packed if packed.is_file() else packed.with_suffix("")
    prepare(args, paths.values(), lambda: {key: list(read_lines(path)) for key, path in paths.items()})


def parallel(function, lines, workers, label):
    """``[function(line) for line in lines]``, a stretch of lines after the other in each of ``workers`` processes."""
    return process_map(function, lines, max_workers=workers, chunksize=len(lines) // workers + 1, desc=label, **BAR)


def tokenise(lines, language, args, name):
    """Moses tokens, a string a line; ``name`` is what errors call the text."""
    if args.tokenized:
        lines = map(moses.lowercase, lines) if args.lower else lines
        return [" ".join(words(line, f"{name}:{number}")) for number, line in enumerate(lines, start=1)]
    return parallel(moses.Tokenizer(language, args.lower), lines, args.workers, f"tokenising {name}")


def tokenised(lines, args):
    """The text in tokens, its training pairs cleaned; the references; and how many training pairs cleaning dropped.

    Args:
        lines: ``{(split, language): lines}``, as tokens and references are. Without valid, every 23rd cleaned training
            pair is for validation.
    """
    for split in sorted({split for split, _ in lines}):
        first, second = (len(lines[split, language]) for language in languages(args))
        if first != second or not first:
            raise ValueError(f"the {split} text has {first:,} lines and {second:,} lines in its two languages: "
                             "line n of one must be the translation of line n of the other")
    tokens = {key: tokenise(text, key[1], args, ".".join(key)) for key, text in lines.items()}
    train, numbers = clean({language: tokens["train", language] for language in languages(args)}, args.max_ratio)
    dropped = len(lines["train", args.source_lang]) - len(numbers)
    references = {}
    for language, text in train.items():
        if ("valid", language) not in lines:
            held_out = slice(VALID_EVERY - 1, None, VALID_EVERY)
            lines["valid", language] = [lines["train", language][number] for number in numbers[held_out]]
            tokens["valid", language] = text[held_out]
            del text[held_out]
        tokens["train", language] = text
        detokenise = MosesDetokenizer(language).detokenize
        for split in ("valid", "test"):
            references[split, language] = [detokenise(line.split()) if args.tokenized else line
                                           for line in lines[split, language]]
    return tokens, references, dropped


def clean(lines, max_ratio=None):
    """The pairs of the tokenised ``{language: lines}`` that clean-corpus-n.perl would leave, with single spaces, and
    their numbers, from 0.

    Source: scripts/training/clean-corpus-n.perl of https://github.com/moses-smt/mosesdecoder.

    Args:
        max_ratio: how many times as many tokens one side may have as the other; None for any number.
    """
    def fits(pair):
        few, many = sorted(map(len, pair))
        if few == 0 or many > LONGEST_SENTENCE or (max_ratio and many / few > max_ratio):
            return False
        return max(map(len, chain(*pair))) <= LONGEST_WORD

    pairs = [tuple(map(str.split, pair)) for pair in zip(*lines.values())]
    numbers = [number for number, pair in enumerate(pairs) if fits(pair)]
    text = {language: [" ".join(pairs[number][side]) for number in numbers] for side, language in enumerate(lines)}
    return text, numbers


def learn_subword_nmt(lines, merges):
    """``merges`` joint BPE merges (Sennrich et al. 2016), learned as by ``learn_bpe.py -s merges``, as bytes."""
    subword_nmt.learn_bpe.tqdm = partial(tqdm, desc="learning BPE", **BAR)  # in place of its own display
    codes = io.StringIO()
    subword_nmt.learn_bpe.learn_bpe(lines, codes, merges)
    return codes.getvalue().encode()


def learn_sentencepiece(lines, pieces):
    """A joint BPE model of ``pieces`` pieces (Kudo and Richardson 2018), as bytes.

    Without sentencepiece's normalisation: joined again, the pieces are the tokens as they were.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=pieces,
        character_coverage=1.0, normalization_rule_name="identity", minloglevel=2,
    )
    return model.getvalue()


LEARNERS = {"subword-nmt": learn_subword_nmt, "sentencepiece": learn_sentencepiece}


def encode(model, line):
    return " ".join(model.encode(line, out_type=str))


def segmenter(bpe, code):
    """The function that segments a tokenised line by ``code``, the bytes that the learner returned."""
    if bpe == "sentencepiece":
        return partial(encode, sentencepiece.SentencePieceProcessor(model_proto=code))
    return BPE(io.StringIO(code.decode())).process_line


def argument_parser(description):
    """The options that all preparations of parallel text share; a recipe adds where its corpus comes from."""
    parser = common.argument_parser(description, OUTPUT)
    add = parser.add_argument
    add("--bpe", choices=list(LEARNERS), default="subword-nmt",
        help="subword method, joint for both languages (default: %(default)s)")
    add("--bpe-merges", type=positive_int, default=10_000, metavar="N",
        help="merges, or with sentencepiece the size of the model (default: %(default)s)")
    add("--joined-dictionary", action="store_true",
        help="one dictionary for both languages (default: one each, as in fairseq's recipe)")
    parser.set_defaults(code=None, dict_source=None, dict_target=None, tokenized=False, lower=True, max_ratio=None)
    return parser


def parse_recipe(parser):
    """Parse the command line of a German-English recipe, which adds the direction to the parser's options."""
    parser.add_argument("--source", dest="source_lang", choices=("de", "en"), default="de",
                        help="language to translate from; the other one is the target (default: %(default)s)")
    args = parser.parse_args()
    args.target_lang = {"de": "en", "en": "de"}[args.source_lang]
    return args


def prepare(args, inputs, read):
    """Make ``args.out`` with subword text, references and data-bin, and print their counts.

    Args:
        args: parsed options of ``argument_parser``, with ``source_lang`` and ``target_lang``.
        inputs: files that the corpus is read from.
        read: function without arguments, called only where its result is needed: ``lines`` as ``tokenised`` takes them.
    """
    def make(folder):
        tokens, references, dropped = tokenised(read(), args)
        write_text(folder, args, tokens, references)
        return {"splits": write_data_bin(folder, args), "dropped": dropped}

    given = filter(None, (args.code, args.dict_source, args.dict_target))
    options = {name: value for name, value in vars(args).items() if name not in ("out", "workers")}
    result = common.prepare_folder(args.out, options, [*inputs, *given], make)
    for name, row in result["splits"].items():
        subwords = row["tokens"] - row["lines"]
        print(f"{name:12}{row['lines']:12,} lines{subwords:14,} subwords{row['unknown']:8,} unknown")
    print(f"dropped by cleaning: {result['dropped']:,} training pairs")
    print(f"ready: {Path(args.out) / 'data-bin'}")


def write_text(folder, args, tokens, references):
    """Write the subwords of ``tokens`` and the references, both ``{(split, language): lines}``. The merges are given,
    or learned from the training text of both languages."""
    training = chain.from_iterable(tokens["train", language] for language in languages(args))
    code = args.code.read_bytes() if args.code else LEARNERS[args.bpe](training, args.bpe_merges)
    (folder / "code").write_bytes(code)
    segment = segmenter(args.bpe, code)
    for (split, language), lines in tokens.items():
        name = f"{split}.{language}"
        write_lines(folder / name, parallel(segment, lines, args.workers, f"segmenting {name}"))
    for (split, language), lines in references.items():
        write_lines(folder / f"{split}.ref.{language}", (" ".join(line.split()) for line in lines))


def write_data_bin(folder, args):
    """Write ``data-bin``; returns the counts of each text."""
    pair = ["--source-lang", args.source_lang, "--target-lang", args.target_lang]
    given = {"--srcdict": args.dict_source, "--tgtdict": args.dict_target}
    given = [f"{option}={path}" for option, path in given.items() if path]
    return common.binarise(folder, args.workers, *pair, *given, *["--joined-dictionary"] * args.joined_dictionary)


def main():
    parser = argument_parser("Any parallel text to BPE and fairseq's binary data.")
    add = parser.add_argument
    for side in ("source", "target"):
        add(f"--{side}-lang", required=True, metavar="LANG", help="as de or en, the end of the files' names")
        add(f"--dict-{side}", type=Path, metavar="FILE", help="given dictionary, not made from the training text")
    for split in SPLITS:
        add(f"--{split}", required=True, type=Path, metavar="PREFIX",
            help=f"{split} text: PREFIX.LANG or PREFIX.LANG.gz of both languages")
    add("--tokenized", action="store_true", help="the text is in Moses tokens already (default: raw text)")
    add("--lower", action="store_true", default=False, help="make the text lower case")
    add("--max-ratio", type=float, metavar="R", help="drop training pairs of which one side has more than R times the "
        f"tokens of the other (always dropped: empty sides and those above {LONGEST_SENTENCE} tokens)")
    add("--code", type=Path, metavar="FILE", help="given merges, not learned from the training text")
    args = parser.parse_args()
    prepare_files(args, {split: getattr(args, split) for split in SPLITS})
