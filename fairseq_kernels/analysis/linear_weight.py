"""Where the weight of lin goes in a mixture: "the linear components consistently receive a total weight above 50%"
(Gao et al. 2019, section 4.4). By position in the line and by frequency of the word. ``scripts/linear_weight.sh`` calls
it."""

from pathlib import Path
from typing import Dict, List

import pandas
import torch

from ..errors import mistake
from ..output_layers import GeneralizedSoftmax
from ..word_counts import word_counts
from .reading import read

CHUNK = 4096  # words whose weights are computed at a time
LAST_POSITION = 20  # this one and all after it are one row


@torch.no_grad()
def linear_weight(data: Path, checkpoint: Path, split: str = "test") -> Dict:
    """Total weight of the lin components, sum_k pi_k (Eq. 2) over k with kernel lin, before each word of a text.

    ``</s>`` counts as a word. Frequency is by rank in the training data, in decades: the 10 most frequent words, those
    from 11 to 100, and so on.

    Returns:
        ``words`` N, ``mean``, ``above_half``: share of words with a weight above 0.5, ``by_position`` and ``by_rank``:
        rows with ``words`` and ``mean``.
    """
    reading = read(checkpoint, data, split)
    layer = reading.layer
    kernels = [kernel.name for kernel in layer.kernels] if isinstance(layer, GeneralizedSoftmax) else []
    if len(kernels) < 2 or "lin" not in kernels:
        raise mistake(f"{checkpoint} is no mixture with lin, as of --kernels lin,log")
    weights = torch.cat([layer.mixture_weights(chunk) for chunk in reading.features.split(CHUNK)]).double()
    total = pandas.Series(weights[:, [kernel == "lin" for kernel in kernels]].sum(1).numpy())
    counts = torch.as_tensor(word_counts(Path(data, "train"), reading.dictionary))
    ranks = 1 + counts.argsort(descending=True, stable=True).argsort()  # (V,) of each word of the dictionary
    decades = [0, *(10**n for n in range(1, len(str(len(counts) - 1)) + 1))]  # the last end is V or more
    decade_names = [f"{start + 1}-{min(end, len(counts))}" for start, end in zip(decades, decades[1:])]
    places = [*range(LAST_POSITION + 1), float("inf")]
    place_names = [*map(str, range(LAST_POSITION)), f"{LAST_POSITION}+"]
    return {
        "words": len(total),
        "mean": float(total.mean()),
        "above_half": float((total > 0.5).mean()),
        "by_position": means(total, reading.positions, places, place_names),
        "by_rank": means(total, ranks[reading.words] - 1, decades, decade_names),
    }


def means(values: pandas.Series, places: torch.Tensor, edges: List[float], names: List[str]) -> List[Dict]:
    """Number and mean of the values (N,) in each interval of their places (N,)."""
    groups = pandas.cut(places.numpy(), edges, right=False, labels=names)
    rows = values.groupby(groups, observed=True).agg(["size", "mean"])
    return [{"of": name, "words": int(words), "mean": float(mean)} for name, words, mean in rows.itertuples()]
