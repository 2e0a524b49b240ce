"""Parallel text for fairseq, tokenised, cleaned, segmented and binarised: what the translation recipes share.

A recipe reads its corpus, tokenises it and hands `prepare` the three splits; the output directory receives

    {train,valid,test}.{de,en}    subwords, lower case, one sentence a line
    test.ref.{de,en}              the test set before tokenisation: the references of detokenised BLEU
    code                          merges of subword-nmt, or the model of sentencepiece
    data-bin/                     what fairseq-train reads
    stamps.json, preprocess.log   what is finished, and fairseq's own output

Training is on lower case, so score detokenised output against test.ref with `sacrebleu -lc`.
"""

import contextlib
import gzip
import io
import os
import signal
import sys
import zlib
from functools import partial
from importlib.metadata import version
from itertools import chain, islice
from multiprocessing import Pool

from common import (
    ArgumentParser,
    Progress,
    Stamps,
    atomic_write,
    digest,
    fail,
    fairseq_preprocess,
    fingerprint,
    positive_int,
    say,
)

try:
    import sentencepiece
    import subword_nmt.learn_bpe
    from moses import Tokenizer, lowercase
    from subword_nmt.apply_bpe import BPE
except ModuleNotFoundError as error:
    fail(f"{sys.executable} has no {error.name}: pip install sacremoses subword-nmt sentencepiece")

LANGUAGES = ("de", "en")
SPLITS = ("train", "valid", "test")
NEXT = (
    "Then: fairseq-train DIR/data-bin, and fairseq-generate DIR/data-bin with --remove-bpe (after --bpe "
    "sentencepiece: --remove-bpe sentencepiece). DIR/test.ref.{de,en} are the references of detokenised "
    "BLEU: sacrebleu -lc, since the training text is lower case."
)
LONGEST_WORD = 1000  # characters, as in clean-corpus-n.perl


# ---------------------------------------------------------------------------------------------------- reading


@contextlib.contextmanager
def open_gzip(path):
    """The gzip file `path`, open for reading bytes; ValueError where it is truncated, damaged or not gzip."""
    try:
        with gzip.open(path) as file:
            yield file
    except EOFError:
        raise ValueError("truncated: its gzip data stop before their end; fetch it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"not a gzip file, or a damaged one ({error}); fetch it again") from None


def decode(data, name):
    """The lines of the UTF-8 bytes `data`, ended by newlines alone, as grep, sed and Perl read them."""
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        fail(f"{name}:{line}: not UTF-8 text: convert it, e.g. iconv -f latin1 -t utf-8")
    return lines if lines[-1] else lines[:-1]


def check_parallel(lines, name):
    """Fail where the `{language: lines}` of one split do not pair up."""
    counts = {lang: len(lines[lang]) for lang in LANGUAGES}
    if len(set(counts.values())) != 1:
        given = " and ".join(f"{count:,} {lang} lines" for lang, count in counts.items())
        fail(f"{name}: {given}: line n of the one must translate line n of the other; fetch the corpus again")


# ------------------------------------------------------------------------------------------------- processing


def _start_worker(function):
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def start_pool(workers, function):
    """A pool whose workers have `function`. Ctrl-C waits until they are started: raised in the hooks that Python
    runs at a fork, KeyboardInterrupt would be printed and lost."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return Pool(workers, _start_worker, (function,))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _call(line):
    return _function(line)


def parallel(function, lines, workers, label):
    """`[function(line) for line in lines]`, over `workers` processes; `function` must pickle."""
    results = []
    with Progress(label, len(lines)) as progress, start_pool(workers, function) as pool:
        for result in pool.imap(_call, lines, chunksize=500):
            results.append(result)
            progress.update(1)
    return results


def _tokenise(tokenizer, line):
    return lowercase(tokenizer(line))


def tokenise(lines, lang, workers, split):
    """Moses tokens in lower case, a string a line."""
    return parallel(partial(_tokenise, Tokenizer(lang)), lines, workers, f"tokenising {split}.{lang}")


def keep(source, target, ratio=None, shortest=1, longest=175):
    """Whether clean-corpus-n.perl would keep the pair of tokenised lines.

    Args:
        ratio: how many times as many tokens one side may have as the other; None for any number.
        shortest, longest: bounds on the tokens of either side, both included.
    """
    pair = source.split(), target.split()
    few, many = sorted(map(len, pair))
    if few < shortest or many > longest or (ratio is not None and many / few > ratio):
        return False
    return max(map(len, chain(*pair))) <= LONGEST_WORD


def clean(lines, **limits):
    """Moses's clean-corpus-n.perl on tokenised `{language: lines}`: the pairs to keep, with single spaces.

    Source: scripts/training/clean-corpus-n.perl of https://github.com/moses-smt/mosesdecoder.
    """
    pairs = [pair for pair in zip(lines["de"], lines["en"], strict=True) if keep(*pair, **limits)]
    return {lang: [" ".join(pair[i].split()) for pair in pairs] for i, lang in enumerate(LANGUAGES)}


def write_lines(path, lines):
    """The text file `path`, a line each; it appears when it is whole."""
    with atomic_write(path) as file:
        file.writelines(f"{line}\n" for line in lines)


def write_bytes(path, data):
    """The binary file `path`; it appears when it is whole."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(data)
    part.replace(path)


def reference(line):
    """`line` as a reference of detokenised BLEU: nothing but its white space made single spaces."""
    return " ".join(line.split())


# --------------------------------------------------------------------------------------------------- subwords


def learn_subword_nmt(lines, merges):
    """`merges` joint BPE merges (Sennrich et al. 2016), learned as by `learn_bpe.py -s merges`, as bytes."""
    subword_nmt.learn_bpe.tqdm = _with_progress  # in place of its own display
    codes = io.StringIO()
    try:
        subword_nmt.learn_bpe.learn_bpe(lines, codes, merges)
        learned = codes.getvalue().count("\n") - 1
    except ValueError:  # of max(): no word has two characters
        learned = 0
    if not learned:
        fail("train: the text is too small for a BPE: no two neighbouring characters occur twice")
    return codes.getvalue().encode()


def _with_progress(steps):
    with Progress("learning BPE", len(steps)) as progress:
        for step in steps:
            yield step
            progress.update(1)


def learn_sentencepiece(lines, pieces):
    """A joint BPE model of `pieces` pieces (Kudo and Richardson 2018), as bytes.

    Without sentencepiece's normalisation: joined again, the pieces are the tokens as they were.
    """
    say("learning the sentencepiece model")
    try:
        with start_pool(1, None) as pool:  # Ctrl-C cannot stop its C++ code in this process
            return pool.apply(_train_sentencepiece, (list(lines), pieces))
    except RuntimeError as error:
        fail(f"--bpe-merges {pieces}: sentencepiece cannot learn that many pieces from this text ({error})")


def _train_sentencepiece(lines, pieces):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=pieces,
        character_coverage=1.0, normalization_rule_name="identity", minloglevel=2,
    )
    return model.getvalue()


def _encode(model, line):
    return " ".join(model.encode(line, out_type=str))


def segmenter(bpe, code):
    """The function that segments a tokenised line by `code`, the bytes that the learner returned."""
    if bpe == "sentencepiece":
        return partial(_encode, sentencepiece.SentencePieceProcessor(model_proto=code))
    return BPE(io.StringIO(code.decode())).process_line


LEARNERS = {"subword-nmt": learn_subword_nmt, "sentencepiece": learn_sentencepiece}


# ----------------------------------------------------------------------------------------------------- recipe


def argument_parser(program, description):
    """The options that the recipes share; a recipe adds where its corpus comes from."""
    parser = ArgumentParser(prog=program, description=description, epilog=NEXT)
    parser.add_argument("--out", required=True, metavar="DIR", help="directory for the prepared data")
    parser.add_argument("--source", choices=LANGUAGES, default="de",
                        help="language to translate from; the other one is the target (default: %(default)s)")
    parser.add_argument("--bpe", choices=sorted(LEARNERS, reverse=True), default="subword-nmt",
                        help="subword method, joint for both languages (default: %(default)s)")
    parser.add_argument("--bpe-merges", type=positive_int, default=10_000, metavar="N",
                        help="merges, or with sentencepiece the size of the model (default: %(default)s)")
    parser.add_argument("--joined-dictionary", action="store_true",
                        help="one dictionary for both languages (default: one each, as in fairseq's recipe)")
    parser.add_argument("--workers", type=positive_int, default=os.cpu_count() or 1, metavar="N",
                        help="processes (default: %(default)s)")
    return parser


def prepare(out, inputs, read, args):
    """Write subword text, references and data-bin to `out`, keep what is finished, report the counts.

    Args:
        out: output directory (Path).
        inputs: files (Paths) that the corpus is read from: after a change in one, every stage runs again.
        read: function without arguments, called only where its result is needed, that reads and tokenises the
            corpus. Returns `{split: {language: tokenised lines}}`, the references of the test set as
            `{language: lines}`, and how many training pairs cleaning dropped.
        args: parsed options of `argument_parser`.

    Returns:
        `{split: pairs}`.
    """
    stamps = Stamps(out / "stamps.json")
    tools = [(name, version(name)) for name in ("sacremoses", args.bpe)]
    key = digest(fingerprint(path.resolve() for path in inputs), tools, args.bpe_merges)
    text = stamps.result("text", key) or _write_text(out, stamps, key, read, args)
    key = digest(key, args.source, args.joined_dictionary)
    types = stamps.result("data-bin", key) or _binarise(out, stamps, key, text, args)
    _report(out, text, types)
    return text["pairs"]


def _write_text(out, stamps, key, read, args):
    corpus, references, dropped = read()
    for split in SPLITS:
        check_parallel(corpus[split], split)
        if not corpus[split]["de"]:
            fail(f"{split}: no sentence pair is left: this is not the corpus, or not all of it")
    stamps.forget("text", "data-bin")
    if not stamps.result("code", key):
        lines = chain.from_iterable(corpus["train"].values())
        code = LEARNERS[args.bpe](lines, args.bpe_merges)
        stamps.forget("code")
        write_bytes(out / "code", code)
        stamps.finish("code", key, [out / "code"], True)

    segment = segmenter(args.bpe, (out / "code").read_bytes())
    names = [(split, lang) for split in SPLITS for lang in LANGUAGES]
    lines = [line for split, lang in names for line in corpus[split][lang]]
    segmented = iter(parallel(segment, lines, args.workers, "segmenting"))
    tokens = {}
    for split, lang in names:
        lines = list(islice(segmented, len(corpus[split][lang])))
        tokens[f"{split}.{lang}"] = sum(len(line.split()) for line in lines)
        write_lines(out / f"{split}.{lang}", lines)
    for lang in LANGUAGES:
        write_lines(out / f"test.ref.{lang}", map(reference, references[lang]))
    files = [*tokens, *(f"test.ref.{lang}" for lang in LANGUAGES)]
    pairs = {split: len(corpus[split]["de"]) for split in SPLITS}
    result = {"pairs": pairs, "tokens": tokens, "dropped": dropped}
    stamps.finish("text", key, [out / file for file in files], result)
    return result


def _binarise(out, stamps, key, text, args):
    target = next(lang for lang in LANGUAGES if lang != args.source)
    arguments = ["--source-lang", args.source, "--target-lang", target, "--workers", args.workers]
    for split in SPLITS:
        arguments += [f"--{split}pref", out / split]
    if args.joined_dictionary:
        arguments.append("--joined-dictionary")
    stamps.forget("data-bin")
    symbols = sum(text["tokens"].values()) + 2 * sum(text["pairs"].values())  # with each line's </s>
    with Progress("binarising", 2 * symbols) as progress:  # in 16 bits each
        fairseq_preprocess(arguments, out / "data-bin", out / "preprocess.log", progress)
    types = {}
    for lang in LANGUAGES:
        with open(out / "data-bin" / f"dict.{lang}.txt", encoding="utf-8") as file:
            types[lang] = sum(not line.startswith("madeupword") for line in file)  # fairseq's padding to 8
    stamps.finish("data-bin", key, [out / "data-bin"], types)
    return types


def _report(out, text, types):
    for split in SPLITS:
        tokens = ", ".join(f"{text['tokens'][f'{split}.{lang}']:,} {lang} subwords" for lang in LANGUAGES)
        print(f"{split}: {text['pairs'][split]:,} pairs, {tokens}")
    print(f"dropped by cleaning: {text['dropped']:,} training pairs")
    print("dictionaries: " + ", ".join(f"{types[lang]:,} {lang} subwords" for lang in LANGUAGES))
    print(f"ready: {out / 'data-bin'}")
