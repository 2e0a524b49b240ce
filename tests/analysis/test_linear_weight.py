"""The weight of lin in a mixture against brute force over the test text."""

from collections import Counter
from statistics import fmean as mean

import pytest
import torch
from trained_models import load

from fairseq_kernels.analysis import linear_weight as module
from fairseq_kernels.analysis.linear_weight import linear_weight

BLOCK = 12  # words, as the models are trained with


def test_weights(monkeypatch, lm_data, mixture_lm):
    """Of all words, by place in the line, those far in it together, and by rank: one block after the other through the
    model."""
    model, task = load(mixture_lm.folder)
    train, lines = ([task.target_dictionary.encode_line(line, add_if_not_exist=False).tolist() for line in
                     (lm_data.parent / split).read_text().splitlines()] for split in ("train", "test"))  # fmt: skip
    text = [word for line in lines for word in line]
    counts = Counter(word for line in train for word in line)
    ranks = sorted(range(len(task.target_dictionary)), key=lambda word: -counts[word])
    weights = []
    for start in range(0, len(text), BLOCK):
        block = text[start : start + BLOCK]
        previous = [text[start - 1] if start else task.target_dictionary.eos(), *block[:-1]]
        features, _ = model(torch.tensor([previous]), features_only=True)
        pi = torch.softmax(features[0] @ model.decoder.output_projection.prior_projection, dim=1)
        weights += pi.tolist()
    positions = [place for line in lines for place in range(len(line))]
    monkeypatch.setattr(module, "LAST_POSITION", 3)
    total = [(place, ranks.index(word), pi[0] + pi[1]) for place, word, pi in zip(positions, text, weights)]
    means = {
        "mean": mean(weight for *_, weight in total),
        "above 0.5": mean(weight > 0.5 for *_, weight in total),
        **{f"at word {n}": mean(weight for place, _, weight in total if place == n) for n in range(3)},
        "at word 3+": mean(weight for place, _, weight in total if place >= 3),
        "rank 1-10": mean(weight for _, rank, weight in total if rank < 10),
        "rank 11-100": mean(weight for _, rank, weight in total if rank >= 10),
    }
    measured = {metric["metric"]: metric["value"] for metric in linear_weight(lm_data, mixture_lm.last)}
    assert measured == pytest.approx(means, rel=1e-5)


def test_no_mixture_with_lin(lm_data, transformer_lm):
    with pytest.raises(SystemExit, match="no mixture with lin"):
        linear_weight(lm_data, transformer_lm.last)
