"""Detokenised sacreBLEU, with its signature, of what fairseq-generate wrote.

python -m fairseq_kernels.analysis.bleu GEN_OUT --reference test.ref.en --language en
"""

import argparse
import re
import sys
from pathlib import Path
from typing import List


def hypotheses(generated: Path) -> List[str]:
    """The best hypothesis of each sentence (``H-`` lines; the first of an n-best list), in the corpus' order."""
    found = {}
    with open(generated, encoding="utf-8") as lines:
        for line in lines:
            match = re.match(r"H-(\d+)\t[^\t]*\t(.*)", line)
            if match:
                found.setdefault(int(match[1]), match[2].strip())
    return [found[number] for number in sorted(found)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fairseq_kernels.analysis.bleu", description=__doc__)
    parser.add_argument("generated", type=Path, help="output of fairseq-generate")
    parser.add_argument("--reference", type=Path, required=True, help="raw reference text, a sentence a line")
    parser.add_argument("--language", required=True, help="of the reference, for the detokeniser")
    args = parser.parse_args()
    for path in (args.generated, args.reference):
        if not path.is_file():
            parser.error(f"{path} not found")
    import sacrebleu
    from sacremoses import MosesDetokenizer

    detokenise = MosesDetokenizer(lang=args.language).detokenize
    output = [detokenise(line.split()) for line in hypotheses(args.generated)]
    with open(args.reference, encoding="utf-8") as lines:  # not splitlines, which parts them at other characters, too
        reference = [line.rstrip("\n") for line in lines]
    if len(output) != len(reference):
        sys.exit(
            f"bleu: error: {len(output)} translations in {args.generated}, {len(reference)} lines in {args.reference}"
        )
    metric = sacrebleu.BLEU(lowercase=True)
    print(f"detokenised (sacreBLEU): {metric.corpus_score(output, [reference]).score:.2f}  {metric.get_signature()}")


if __name__ == "__main__":
    main()
