"""Models that take no more words in a row than they were trained with."""

import torch
from fairseq_commands import fairseq, lm_training
from trained_models import load

from fairseq_kernels.analysis.reading import read

TRAINED_WITH = 12  # words, as fairseq_commands' language models are


def test_blocks_of_the_training_s_length(lm_data, tmp_path):
    """As evaluate_lm.sh reads, whatever an LSTM could take."""
    fairseq(*lm_training(lm_data, tmp_path, "--kernels", "lin", "--tokens-per-sample", 5, "--max-update", 2))
    short = read(tmp_path / "checkpoint_last.pt", lm_data).features
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    state["cfg"]["task"]["tokens_per_sample"] = 12
    torch.save(state, tmp_path / "long.pt")
    long = read(tmp_path / "long.pt", lm_data).features
    assert torch.equal(short[:5], long[:5]) and not torch.equal(short[5:12], long[5:12])


@torch.no_grad()
def test_a_transformer_with_learned_positions(lm_data, tmp_path):
    options = ("--decoder-learned-pos", "--max-update", 2)
    fairseq(*lm_training(lm_data, tmp_path, *options, arch="kernel_transformer_lm"))
    reading = read(tmp_path / "checkpoint_last.pt", lm_data)
    model, task = load(tmp_path)
    task.load_dataset("test")
    text = torch.cat([task.dataset("test")[index]["target"] for index in range(len(task.dataset("test")))])
    assert reading.words.tolist() == text.tolist() and len(text) > 3 * TRAINED_WITH
    start = 2 * TRAINED_WITH
    previous = text[start - 1 : start + TRAINED_WITH - 1].unsqueeze(0)
    features, _ = model(previous, features_only=True)
    torch.testing.assert_close(reading.features[start : start + TRAINED_WITH], features[0])
