"""How often a binarised text has each word, and the perplexity of words drawn by that frequency."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Optional

import numpy as np

if TYPE_CHECKING:  # its import takes seconds, and tables need no counts to be planned
    from fairseq.data import Dictionary


def word_counts(prefix: Path, dictionary: Dictionary) -> Optional[np.ndarray]:
    """Counts (V,), ``</s>`` and ``<unk>`` included, of the binarised text ``PREFIX.idx``; None if there is none. As in
    fairseq's trainings, ``train1.idx`` and so on are further parts of ``train``, ``train1.de-en.en`` of
    ``train.de-en.en``."""
    from fairseq.data import MMapIndexedDataset, data_utils
    from fairseq.data.indexed_dataset import infer_dataset_impl

    split, dot, languages = prefix.name.partition(".")
    later = (prefix.with_name(f"{split}{part}{dot}{languages}") for part in itertools.count(1))
    there = itertools.takewhile(lambda path: Path(f"{path}.idx").is_file(), later if split == "train" else ())
    counts = None
    for path in (prefix, *there):
        kind = infer_dataset_impl(str(path))
        kind = "lazy" if kind == "cached" else kind  # the same files, read a sentence at a time
        dataset = data_utils.load_indexed_dataset(str(path), dictionary, kind)
        if dataset is None:
            return None
        counts = np.zeros(len(dictionary), dtype=np.int64) if counts is None else counts
        pieces = (dataset[sentence].numpy() for sentence in range(len(dataset)))
        if isinstance(dataset, MMapIndexedDataset):  # not by sentence: two million of them took 35 s
            words = np.frombuffer(dataset._bin_buffer, dataset._index.dtype)
            pieces = (words[start : start + (1 << 20)] for start in range(0, len(words), 1 << 20))
        for piece in pieces:
            np.add.at(counts, piece, 1)
    return counts


def unigram_perplexities(binarised: Path) -> Dict[str, float]:
    """Perplexity of the splits of a data-bin folder under the training text's word frequencies: what a model without
    contexts can reach.

    ``</s>`` and ``<unk>`` count like words. One is added to the count of every word that a text can have, so that
    none has probability 0.
    """
    from fairseq.data import Dictionary

    dictionary = Dictionary.load(str(binarised / "dict.txt"))
    counts = {split: word_counts(binarised / split, dictionary) for split in ("train", "valid", "test")}
    smoothed = counts["train"] + 1
    smoothed[[dictionary.bos(), dictionary.pad()]] = 0
    log_prior = np.log(np.maximum(smoothed, 1) / smoothed.sum())
    return {
        split: round(float(np.exp(-(occurrences * log_prior).sum() / occurrences.sum())), 2)
        for split, occurrences in counts.items()
        if occurrences is not None
    }
