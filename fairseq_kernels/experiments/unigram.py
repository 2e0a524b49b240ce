"""The perplexity of words drawn by their frequency in training, as a row of a table."""

from ..analysis.measurement import provenance
from ..word_counts import unigram_perplexities
from .files import write_json
from .runs import Run


class UnigramRun(Run):
    """The unigram as a run without a training."""

    def arguments(self):
        return ""

    def execute(self):
        perplexities = unigram_perplexities(self.corpus.binarised)
        command = f"fairseq_kernels.word_counts.unigram_perplexities({str(self.corpus.binarised)!r})"
        shared = {"metric": "ppl", "command": command}
        record = {
            "metrics": [
                {"split": split, **shared, "value": perplexities[split]}
                for split in ("valid", "test") if split in perplexities
            ],
            "provenance": {**provenance(), "data": self.corpus.fingerprint},
            "curves": {},
        }
        write_json(self.result, record)
        return record
