"""How well word embeddings order pairs of words by similarity: the score on SimLex-999 (Hill et al. 2014,
https://fh295.github.io/simlex.html) of language models, as in de Brebisson & Vincent (2016, Tables 5 and 6).

python -m fairseq_kernels.analysis.word_similarity DATA_BIN CHECKPOINT ... --simlex SimLex-999.txt
"""

import csv
from pathlib import Path
from typing import Dict

import pandas
import torch
from scipy.stats import spearmanr

from ..checkpoint import model_state
from ..errors import CommandParser
from .kerbs_senses import dictionary


def read_pairs(path: Path) -> pandas.DataFrame:
    """The pairs of SimLex-999.txt: ``word1``, ``word2`` and ``SimLex999``, as people rate their similarity, 0 to 10."""
    columns = ["word1", "word2", "SimLex999"]
    return pandas.read_csv(path, sep="\t", usecols=columns, quoting=csv.QUOTE_NONE, keep_default_na=False)


def simlex(data: Path, checkpoint: Path, pairs: pandas.DataFrame) -> Dict:
    """Spearman's ``correlation`` of the cosines of word vectors with the ratings over the pairs in the vocabulary; how
    many these are (``covered``), and of how many (``pairs``).

    The paper only says "word embeddings", whose size it gives (250) beside the hidden layers' (809 to 1427): those
    before the hidden layers, so the input's. The words are those of the data-bin folder ``data``.
    """
    vectors = model_state(checkpoint)["decoder.embed_tokens.weight"].double()
    indices = dictionary(checkpoint, data, len(vectors)).indices
    covered = pairs[pairs.word1.isin(indices) & pairs.word2.isin(indices)]
    first, second = (vectors[[indices[word] for word in words]] for words in (covered.word1, covered.word2))
    cosines = torch.cosine_similarity(first, second)
    correlation = float(spearmanr(cosines.numpy(), covered.SimLex999).statistic)
    return {"correlation": correlation, "covered": len(covered), "pairs": len(pairs)}


def main() -> None:
    parser = CommandParser(prog="python -m fairseq_kernels.analysis.word_similarity", description=__doc__)
    parser.add_argument("data", type=Path, help="data-bin folder of the training")
    parser.add_argument("checkpoints", nargs="+", type=Path)
    parser.add_argument("--simlex", type=Path, required=True, help="SimLex-999.txt")
    args = parser.parse_args()
    pairs = read_pairs(args.simlex)
    print("correlation  covered pairs")
    for checkpoint in args.checkpoints:
        row = simlex(args.data, checkpoint, pairs)
        print(f"{row['correlation']:11.3f}  {row['covered']:,} of {row['pairs']:,}  {checkpoint}")


if __name__ == "__main__":
    main()
