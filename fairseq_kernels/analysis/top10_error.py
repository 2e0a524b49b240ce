"""How often a text's next word is not among a language model's ten most probable ones.

python -m fairseq_kernels.analysis.top10_error DATA_BIN CHECKPOINT [--splits valid test]
"""

from pathlib import Path

from ..errors import CommandParser
from .reading import read


def top10_error(data: Path, checkpoint: Path, split: str) -> float:
    """The share of a split's words, ``</s>`` included, that are not among the model's ten most probable ones."""
    reading = read(checkpoint, data, split)
    return float((reading.layer.evaluate(reading.features, reading.words)[1] >= 10).float().mean())


def main() -> None:
    parser = CommandParser(prog="python -m fairseq_kernels.analysis.top10_error", description=__doc__)
    parser.add_argument("data", type=Path, help="data-bin folder")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--splits", nargs="+", default=["valid", "test"])
    args = parser.parse_args()
    for split in args.splits:
        print(f"{split} {top10_error(args.data, args.checkpoint, split):.4f}")


if __name__ == "__main__":
    main()
