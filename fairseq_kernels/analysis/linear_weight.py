"""Where the weight of lin goes in a mixture: "the linear components consistently receive a total weight above 50%"
(Gao et al. 2019, section 4.4). By position in the line and by frequency of the word. ``scripts/linear_weight.sh`` calls
it."""

from pathlib import Path
from typing import Dict, List, Tuple

import torch

from ..errors import mistake
from ..output_layers import GeneralizedSoftmax
from ..word_counts import word_counts
from .reading import read

LAST_POSITION = 20  # this one and all after it are one row


@torch.no_grad()
def linear_weight(data: Path, checkpoint: Path) -> List[Dict]:
    """Total weight of the lin components, sum_k pi_k (Eq. 2) over k with kernel lin, before each word of the test text.

    ``</s>`` counts as a word. Frequency is by rank in the training data, in decades: the 10 most frequent words, those
    from 11 to 100, and so on.

    Returns:
        As a record has them, its ``mean``, the share of words where it is ``above 0.5``, and its mean ``at word N`` of
        the line, from 0, and in each ``rank N-M``.
    """
    reading = read(checkpoint, data)
    layer = reading.layer
    kernels = [kernel.name for kernel in layer.kernels] if isinstance(layer, GeneralizedSoftmax) else []
    if len(kernels) < 2 or "lin" not in kernels:
        raise mistake(f"{checkpoint} is no mixture with lin; give one trained with, for instance, --kernels lin,log")
    weights = layer.mixture_weights(reading.features).double()
    total = weights[:, [kernel == "lin" for kernel in kernels]].sum(1)
    groups = {f"at word {place}": reading.positions == place for place in range(LAST_POSITION)}
    groups[f"at word {LAST_POSITION}+"] = reading.positions >= LAST_POSITION
    counts = torch.as_tensor(word_counts(Path(data, "train"), reading.dictionary))
    ranks = counts.argsort(descending=True, stable=True).argsort()[reading.words]  # (N,) from 0
    decades = [0, *(10**power for power in range(1, 1 + len(str(len(counts)))))]
    for start, end in zip(decades, decades[1:]):
        groups[f"rank {start + 1}-{end}"] = (ranks >= start) & (ranks < end)
    values = {"mean": float(total.mean()), "above 0.5": float((total > 0.5).double().mean())}
    values.update({name: float(total[chosen].mean()) for name, chosen in groups.items() if chosen.any()})
    return [{"split": "test", "metric": name, "value": value} for name, value in values.items()]


def compare(data: Path, checkpoints: Dict[str, Path]) -> Tuple[Dict[str, List[Dict]], Dict[str, str]]:
    """:func:`linear_weight` of each mixture by its name, and an empty dict, as there are no example sentences."""
    return {name: linear_weight(data, checkpoint) for name, checkpoint in checkpoints.items()}, {}
