"""Where the weight of lin goes in a mixture: "the linear components consistently receive a total weight above 50%"
(Gao et al. 2019, section 4.4). By position in the line, by frequency of the word, and as a distribution.

``scripts/linear_weight.sh`` calls it.
"""

from pathlib import Path
from typing import Dict, List

import torch

from ..errors import mistake
from ..output_layers import GeneralizedSoftmax
from ..word_counts import word_counts
from .plotting import file_pyplot
from .reading import Reading, read

CHUNK = 4096  # words whose weights are computed at a time
LAST_POSITION = 20  # this one and all after it are one row


@torch.no_grad()
def linear_weight(data: Path, checkpoint: Path, split: str = "test") -> Dict:
    """Total weight of the lin components, sum_k pi_k (Eq. 2) over k with kernel lin, before each word of a text.

    ``</s>`` counts as a word. Frequency is by rank in the training data, in decades: the 10 most frequent words, those
    from 11 to 100, and so on.

    Returns:
        ``words`` N, ``mean``, ``above_half``: share of words with a weight above 0.5, ``by_position`` and ``by_rank``:
        rows with ``words`` and ``mean`` (None without words).
    """
    reading = read(checkpoint, data, split)
    layer = reading.layer
    kernels = [kernel.name for kernel in layer.kernels] if isinstance(layer, GeneralizedSoftmax) else []
    if len(kernels) < 2 or "lin" not in kernels:
        raise mistake(f"{checkpoint} is no mixture with lin, as of --kernels lin,log")
    weights = torch.cat([layer.mixture_weights(chunk) for chunk in reading.features.split(CHUNK)]).double()
    total = weights[:, [kernel == "lin" for kernel in kernels]].sum(1)
    return {
        "checkpoint": str(checkpoint),
        "split": split,
        "words": len(total),
        "mean": float(total.mean()),
        "above_half": float((total > 0.5).double().mean()),
        "by_position": by_position(reading, total),
        "by_rank": by_rank(reading, total, data),
    }


def by_position(reading: Reading, total: torch.Tensor) -> List[Dict]:
    """A row for each place in the line, from 0; the later ones in one."""
    names = [*map(str, range(LAST_POSITION)), f"{LAST_POSITION}+"]
    return means(total, reading.positions.clamp_max(LAST_POSITION), names)


def by_rank(reading: Reading, total: torch.Tensor, data: Path) -> List[Dict]:
    """A row for each decade of the target word's rank in the training data."""
    counts = word_counts(Path(data, "train"), reading.dictionary)
    ranks = torch.empty(len(counts), dtype=torch.long)
    ranks[torch.as_tensor(counts).argsort(descending=True, stable=True)] = torch.arange(1, len(counts) + 1)
    ends = [10**n for n in range(1, len(str(len(counts) - 1)) + 1)]  # the last one is V or more
    names = [f"{start + 1}-{min(end, len(counts))}" for start, end in zip([0, *ends], ends)]
    return means(total, torch.bucketize(ranks[reading.words], torch.tensor(ends)), names)


def means(values: torch.Tensor, groups: torch.Tensor, names: List[str]) -> List[Dict]:
    """Number and mean of the values (N,) in each group, from the groups' numbers (N,)."""
    words = torch.bincount(groups, minlength=len(names)).tolist()
    sums = torch.bincount(groups, values, minlength=len(names)).tolist()
    return [{"of": n, "words": w, "mean": s / w if w else None} for n, w, s in zip(names, words, sums)]


VIEWS = {"by_position": "position in the line", "by_rank": "rank of the word in training"}


def plot(mixtures: Dict[str, Dict], path: Path) -> None:
    """Mean total weight by position and by frequency, one line a mixture."""
    pyplot = file_pyplot()
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, constrained_layout=True)
    for axis, (view, title) in zip(axes, VIEWS.items()):
        for name, mixture in mixtures.items():
            rows = [row for row in mixture[view] if row["words"]]
            axis.plot([row["of"] for row in rows], [row["mean"] for row in rows], marker="o", markersize=3, label=name)
        axis.axhline(0.5, color="grey", linestyle="--", linewidth=0.5)
        axis.set(xlabel=title, ylim=(0, 1.02))
        axis.tick_params(axis="x", labelsize=8)
    axes[0].set_ylabel("mean total weight of lin")
    axes[0].legend(loc="lower left")
    figure.savefig(path)
    pyplot.close(figure)
