"""The weight of lin in a mixture against brute force over the test text."""

from collections import Counter

import pytest
import torch
from trained_models import load

from fairseq_kernels.analysis.linear_weight import linear_weight

BLOCK = 12  # words, as the models are trained with


def sentences(task, split):
    task.load_dataset(split)
    text = torch.cat([item["target"] for item in task.dataset(split)]).tolist()
    lines, end = [[]], task.target_dictionary.eos()
    for word in text:
        lines[-1].append(word)
        if word == end:
            lines.append([])
    return lines[:-1]


@pytest.fixture(scope="module")
def actual(lm_data, mixture_lm):
    return linear_weight(lm_data, mixture_lm.last)


@pytest.fixture(scope="module")
def expected(lm_data, mixture_lm):
    """(position, rank in training from 0, weights of lin, lin and log) of each test word, one block after the other
    through the model."""
    model, task = load(mixture_lm.folder)
    lines = sentences(task, "test")
    text = [word for line in lines for word in line]
    counts = Counter(word for line in sentences(task, "train") for word in line)
    ranks = sorted(range(len(task.target_dictionary)), key=lambda word: -counts[word])
    weights = []
    for start in range(0, len(text), BLOCK):
        block = text[start : start + BLOCK]
        previous = [text[start - 1] if start else task.target_dictionary.eos(), *block[:-1]]
        features, _ = model(torch.tensor([previous]), features_only=True)
        pi = torch.softmax(features[0] @ model.decoder.output_projection.prior_projection, dim=1)
        weights += pi.tolist()
    positions = [place for line in lines for place in range(len(line))]
    return [(place, ranks.index(word), pi) for place, word, pi in zip(positions, text, weights)]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def test_totals(actual, expected):
    total = sorted(pi[0] + pi[1] for *_, pi in expected)
    assert actual["words"] == len(total)
    assert actual["mean"] == pytest.approx(mean(total), rel=1e-5)
    assert actual["above_half"] == pytest.approx(mean(value > 0.5 for value in total))


def test_by_position(actual, expected):
    rows = {row["of"]: row for row in actual["by_position"]}
    assert sum(row["words"] for row in rows.values()) == actual["words"]
    for place in map(int, rows):  # sentences have 2 to 9 words
        totals = [pi[0] + pi[1] for position, _, pi in expected if position == place]
        assert rows[str(place)]["words"] == len(totals)
        assert rows[str(place)]["mean"] == pytest.approx(mean(totals), rel=1e-5)


def test_by_rank(actual, expected):
    assert [row["of"] for row in actual["by_rank"]] == ["1-10", "11-24"]
    for row, frequent in zip(actual["by_rank"], (True, False)):
        totals = [pi[0] + pi[1] for _, rank, pi in expected if (rank < 10) == frequent]
        assert row["words"] == len(totals) > 0
        assert row["mean"] == pytest.approx(mean(totals), rel=1e-5)


def test_no_mixture_with_lin(lm_data, transformer_lm):
    with pytest.raises(SystemExit, match="no mixture with lin"):
        linear_weight(lm_data, transformer_lm.last)
