"""How often a binarised text has each word."""

from pathlib import Path
from typing import Optional

import numpy as np
from fairseq.data import Dictionary, data_utils


def word_counts(prefix: Path, dictionary: Dictionary) -> Optional[np.ndarray]:
    """Counts (V,), ``</s>`` and ``<unk>`` included, of the binarised text ``PREFIX.idx``; None if there is none."""
    dataset = data_utils.load_indexed_dataset(str(prefix), dictionary)
    if dataset is None:
        return None
    counts = np.zeros(len(dictionary), dtype=np.int64)
    for sentence in range(len(dataset)):
        np.add.at(counts, dataset[sentence].numpy(), 1)
    return counts
