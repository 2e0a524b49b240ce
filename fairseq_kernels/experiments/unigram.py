"""The perplexity of words drawn by their frequency in training: what a model without contexts can reach."""

from pathlib import Path
from typing import Dict

import numpy as np
from fairseq.data import Dictionary

from ..analysis.measurement import provenance
from ..word_counts import word_counts
from .files import write_json
from .runs import Run


class UnigramRun(Run):
    """The unigram as a run without a training."""

    def arguments(self):
        return ""

    def execute(self):
        found = unigram_perplexities(self.corpus.binarised)
        command = f"fairseq_kernels.experiments.unigram.unigram_perplexities({str(self.corpus.binarised)!r})"
        shared = {"metric": "ppl", "command": command}
        record = {
            "metrics": [{"split": split, **shared, "value": value} for split, value in found.items()],
            "provenance": {**provenance(), "data": self.corpus.fingerprint},
            "curves": {},
        }
        write_json(self.result, record)
        return record


def unigram_perplexities(binarised: Path) -> Dict[str, float]:
    """Of the valid and test texts of a data-bin folder, ``</s>`` counted; one is added to the count of every word that
    a text can have."""
    dictionary = Dictionary.load(str(binarised / "dict.txt"))
    counts = word_counts(binarised / "train", dictionary) + 1
    counts[[dictionary.bos(), dictionary.pad()]] = 0
    log_prior = np.log(np.maximum(counts, 1) / counts.sum())
    found = {}
    for split in ("valid", "test"):
        occurrences = word_counts(binarised / split, dictionary)
        if occurrences is not None:
            found[split] = round(float(np.exp(-(occurrences * log_prior).sum() / occurrences.sum())), 2)
    return found
