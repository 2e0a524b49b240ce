"""How well word embeddings order pairs of words by similarity: the SimLex-999 score (Hill et al. 2014) of language
models, as in de Brebisson & Vincent (2016, Tables 5 and 6).

python -m fairseq_kernels.analysis.word_similarity DATA_BIN CHECKPOINT ... --simlex SimLex-999.txt [--of output]
"""

import csv
import json
from pathlib import Path
from typing import Dict, List, NamedTuple

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from ..errors import CommandParser, mistake
from .kerbs_senses import dictionary
from .model_state import model_state

# the matrix with a row a word: ours, and those of fairseq's lstm_lm and transformer_lm
MATRICES = {
    "input": ("decoder.embed_tokens.weight",),
    "output": ("decoder.output_projection.weight", "decoder.fc_out.weight"),
}
SOURCE = "https://fh295.github.io/simlex.html"


class Pair(NamedTuple):
    first: str
    second: str
    similarity: float  # as people rate it, 0 to 10


def read_pairs(path: Path) -> List[Pair]:
    """The pairs of SimLex-999.txt: tab-separated columns, of which word1, word2 and SimLex999 are read.

    Raises:
        SystemExit: one line: no such file, or another format.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as lines:
            rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
        pairs = [Pair(row["word1"], row["word2"], float(row["SimLex999"])) for row in rows]
    except OSError as error:
        raise mistake(f"{path}: {error.strerror}; give SimLex-999.txt, from {SOURCE}") from error
    except (KeyError, TypeError, ValueError, csv.Error):
        pairs = []
    if not pairs:
        raise mistake(
            f"{path} is not in SimLex-999's format: tab-separated, with a header that names word1, word2 and "
            f"SimLex999, which is a number; give SimLex-999.txt, from {SOURCE}"
        )
    return pairs


def embeddings(checkpoint: Path, of: str) -> Tensor:
    """The word vectors (V, d) of a model's input or output, in float64; of untied projections the first.

    Raises:
        SystemExit: one line: no checkpoint, or one without a matrix of one row a word.
    """
    state = model_state(checkpoint)
    present = [state[key] for key in MATRICES[of] if key in state]
    if not present or (of == "output" and "decoder.output_projection.sense_word" in state):
        raise mistake(
            f"{checkpoint} has no {of} matrix of its own with one vector a word (KerBS has several a word, a "
            "stock model may share the input's); choose the other --of, or another model"
        )
    return present[0].double()


def simlex(data: Path, checkpoint: Path, pairs: List[Pair], of: str = "input") -> Dict:
    """Spearman's correlation of the cosines of word vectors with the ratings, over the pairs in the vocabulary.

    Args:
        data: the data-bin folder of the model's training, for the words.
        of: ``input`` or ``output``. The paper only says "word embeddings", whose size it gives (250) beside the hidden
            layers' (809 to 1427): those before the hidden layers, so the input's.

    Returns:
        ``checkpoint``, ``of``, ``correlation``, and the numbers of pairs ``covered`` and of all ``pairs``.

    Raises:
        SystemExit: one line: fewer than two pairs covered, a correlation that isn't defined, another data folder, and
            what :func:`embeddings` refuses.
    """
    vectors = embeddings(checkpoint, of)
    indices = dictionary(checkpoint, data, len(vectors)).indices
    covered = [pair for pair in pairs if pair.first in indices and pair.second in indices]
    if len(covered) < 2:
        raise mistake(
            f"{len(covered)} of {len(pairs)} pairs are in the vocabulary of {data}, and a correlation needs 2; "
            "give a model of whole words, in SimLex-999's case and language"
        )
    first, second = (vectors[[indices[pair[place]] for pair in covered]] for place in (0, 1))
    cosines = torch.cosine_similarity(first, second)
    ratings = [pair.similarity for pair in covered]
    for name, values in (("cosines", cosines.tolist()), ("ratings", ratings)):
        if len(set(values)) == 1 or not np.isfinite(values).all():
            raise mistake(
                f"the {name} of the {len(covered)} pairs that {checkpoint} covers are all the same or not "
                "finite, so they have no order; give a trained model, and SimLex-999 as it is"
            )
    return {
        "checkpoint": str(checkpoint),
        "of": of,
        "correlation": float(spearmanr(cosines.numpy(), ratings).statistic),
        "covered": len(covered),
        "pairs": len(pairs),
    }


def main() -> None:
    parser = CommandParser(prog="python -m fairseq_kernels.analysis.word_similarity", description=__doc__)
    parser.add_argument("data", type=Path, help="data-bin folder of the training")
    parser.add_argument("checkpoints", nargs="+", type=Path)
    parser.add_argument("--simlex", type=Path, required=True, help="SimLex-999.txt, from " + SOURCE)
    parser.add_argument("--of", choices=MATRICES, default="input", help="which embeddings (default: input)")
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    args = parser.parse_args()
    pairs = read_pairs(args.simlex)
    records = [simlex(args.data, checkpoint, pairs, args.of) for checkpoint in args.checkpoints]
    if args.json:
        shared = {"split": "SimLex-999", "metric": "simlex"}
        print(json.dumps([{**shared, "value": round(row["correlation"], 4), **row} for row in records]))
        return
    print("correlation  covered pairs")
    for row in records:
        print(f"{row['correlation']:11.3f}  {row['covered']:,} of {row['pairs']:,}  {row['checkpoint']}")


if __name__ == "__main__":
    main()
