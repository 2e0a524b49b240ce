"""Models that take no more words in a row than they were trained with."""

import torch
from fairseq_commands import fairseq, lm_training

from fairseq_kernels.analysis.reading import read


def test_blocks_of_the_training_s_length(lm_data, tmp_path):
    """As evaluate_lm.sh reads, whatever an LSTM could take."""
    fairseq(*lm_training(lm_data, tmp_path, "--kernels", "lin", "--tokens-per-sample", 5, "--max-update", 2))
    short = read(tmp_path / "checkpoint_last.pt", lm_data).features
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    state["cfg"]["task"]["tokens_per_sample"] = 12
    torch.save(state, tmp_path / "long.pt")
    long = read(tmp_path / "long.pt", lm_data).features
    assert torch.equal(short[:5], long[:5]) and not torch.equal(short[5:12], long[5:12])
