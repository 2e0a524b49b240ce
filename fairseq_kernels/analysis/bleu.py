"""BLEU of what fairseq-generate wrote: detokenised sacreBLEU, with its signature, and each sentence's part in it."""

import re
from pathlib import Path
from typing import List, Tuple

import sacrebleu


def lines_of(generated: Path, kind: str) -> List[str]:
    """The best hypothesis of each sentence (``H``, the first of an n-best list) or its reference (``T``), tokenised, in
    the corpus' order."""
    found = re.findall(rf"^{kind}-(\d+)\t(?:[^\t\n]*\t)?(.*)", generated.read_text(encoding="utf-8"), re.M)
    first = {int(number): text.strip() for number, text in reversed(found)}
    return [first[number] for number in sorted(first)]


def sentence_counts(generated: Path) -> List[List[int]]:
    """The counts that tokenised BLEU is made of, for each sentence: the lengths of translation and reference, and how
    many of the translation's n-grams the reference has, n = 1 to 4."""
    bleu = sacrebleu.BLEU(tokenize="none", force=True, effective_order=True)
    truth = ([line] for line in lines_of(generated, "T"))
    scores = (bleu.sentence_score(*pair) for pair in zip(lines_of(generated, "H"), truth))
    return [[score.sys_len, score.ref_len, *score.counts] for score in scores]


def sacrebleu_of(generated: Path, reference: Path, language: str) -> Tuple[float, str]:
    """Score and signature, case-insensitive, against raw text, a sentence a line; both are cut into words by the rules
    of its ``language``."""
    from sacremoses import MosesDetokenizer

    detokenise = MosesDetokenizer(lang=language).detokenize
    output = [detokenise(line.split()) for line in lines_of(generated, "H")]
    text = reference.read_text(encoding="utf-8")
    sentences = text.removesuffix("\n").split("\n")  # not splitlines, which parts them at other characters, too
    if len(output) != len(sentences):
        raise ValueError(f"{len(output)} translations in {generated}, {len(sentences)} lines in {reference}")
    if not any(output):
        print(f"every translation in {generated} is empty: BLEU is 0", flush=True)
    metric = sacrebleu.BLEU(lowercase=True, trg_lang=language)  # which chooses the tokeniser
    return metric.corpus_score(output, [sentences]).score, str(metric.get_signature())
