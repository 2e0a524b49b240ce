"""Detokenised sacreBLEU, with its signature, of what fairseq-generate wrote.

python -m fairseq_kernels.analysis.bleu GEN_OUT --reference test.ref.en --language en
"""

import argparse
import re
from pathlib import Path
from typing import List, Tuple

from ..errors import one_line_errors


def hypotheses(generated: Path) -> List[str]:
    """The best hypothesis of each sentence (``H-`` lines; the first of an n-best list), in the corpus' order."""
    best = {}
    with open(generated, encoding="utf-8") as lines:
        for line in lines:
            match = re.match(r"H-(\d+)\t[^\t]*\t(.*)", line)
            if match:
                best.setdefault(int(match[1]), match[2].strip())
    return [best[number] for number in sorted(best)]


def sacrebleu_of(generated: Path, reference: Path, language: str) -> Tuple[float, str]:
    """Score and signature, case-insensitive.

    Args:
        generated: what fairseq-generate wrote.
        reference: raw text, a sentence a line.
        language: of the reference, for the detokeniser.

    Raises:
        ValueError: the numbers of sentences differ.
    """
    import sacrebleu
    from sacremoses import MosesDetokenizer

    detokenise = MosesDetokenizer(lang=language).detokenize
    output = [detokenise(line.split()) for line in hypotheses(generated)]
    with open(reference, encoding="utf-8") as lines:  # not splitlines, which parts them at other characters, too
        sentences = [line.rstrip("\n") for line in lines]
    if len(output) != len(sentences):
        raise ValueError(f"{len(output)} translations in {generated}, {len(sentences)} lines in {reference}")
    metric = sacrebleu.BLEU(lowercase=True)
    return metric.corpus_score(output, [sentences]).score, str(metric.get_signature())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fairseq_kernels.analysis.bleu", description=__doc__)
    parser.add_argument("generated", type=Path, help="output of fairseq-generate")
    parser.add_argument("--reference", type=Path, required=True, help="raw reference text, a sentence a line")
    parser.add_argument("--language", required=True, help="of the reference, for the detokeniser")
    args = parser.parse_args()
    for path in (args.generated, args.reference):
        if not path.is_file():
            parser.error(f"{path} not found")
    with one_line_errors():
        score, signature = sacrebleu_of(args.generated, args.reference, args.language)
    print(f"detokenised (sacreBLEU): {score:.2f}  {signature}")


if __name__ == "__main__":
    main()
