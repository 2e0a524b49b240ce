"""Products with the words' vectors, through torch's own library and through oneDNN, against float64."""

import pytest
import torch

from fairseq_kernels.output_layers import matrix_products
from fairseq_kernels.output_layers.matrix_products import (
    SCORES,
    multiply,
    onednn_is_faster,
    pull_back_scores,
    scores_of,
)

SIZES = {"many rows": (70, 1300, 16), "few rows": (9, 700, 33), "one row": (1, 40, 3), "one word": (5, 1, 4)}


@pytest.fixture(params=["0", "1"], ids=["torch", "oneDNN"])
def library(request, monkeypatch):
    monkeypatch.setenv("FAIRSEQ_KERNELS_ONEDNN", request.param)
    onednn_is_faster.cache_clear()
    assert onednn_is_faster() == (request.param == "1" and torch.backends.mkldnn.is_available())
    yield request.param
    onednn_is_faster.cache_clear()


@pytest.fixture(params=SIZES.values(), ids=SIZES)
def tensors(request):
    rows, words, columns = request.param
    torch.manual_seed(0)
    return torch.randn(rows, columns), torch.randn(words, columns + 5), torch.randn(rows, words)


def close(result, expected):
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("gaps", [False, True], ids=["whole rows", "some columns"])
def test_products(library, tensors, gaps, monkeypatch):
    monkeypatch.setattr(matrix_products, "WORDS", 64)  # several blocks
    monkeypatch.setattr(matrix_products, "SCORES", 1)
    vectors, words, of_scores = tensors
    words = words[:, 2 : 2 + vectors.size(1)]
    words = words if gaps else words.contiguous()
    out = torch.full((len(vectors), len(words) + 3), torch.nan)
    scores_of(vectors, words, out=out[:, 1:-2])
    close(out[:, 1:-2], vectors.double() @ words.double().T)
    assert out[:, :1].isnan().all() and out[:, -2:].isnan().all()
    of_words = torch.ones(len(words), vectors.size(1) + 2)
    of_vectors = pull_back_scores(of_scores, vectors, words, of_words[:, : vectors.size(1)])
    close(of_vectors, of_scores.double() @ words.double())
    close(of_words[:, : vectors.size(1)], 1 + of_scores.double().T @ vectors.double())
    assert (of_words[:, vectors.size(1) :] == 1).all()


@pytest.mark.parametrize("left_turned", [False, True])
@pytest.mark.parametrize("right", ["whole", "turned", "gaps", "turned with gaps"])
def test_multiply_takes_any_layout(library, left_turned, right):
    torch.manual_seed(0)
    left = torch.randn(7, 30).T if left_turned else torch.randn(30, 7)
    wide = torch.randn(7, 20) if "turned" not in right else torch.randn(20, 7).T
    if "gaps" in right:
        wide = wide[:, 3:12] if "turned" not in right else torch.randn(20, 9)[:, 1:8].T
    close(multiply(left, wide), left.double() @ wide.double())


def test_double_precision_stays(library):
    left, right = torch.randn(3, 4).double(), torch.randn(4, 5).double()
    assert torch.equal(multiply(left, right), left @ right)


def test_blocks_cover_all_words():
    for words, rows in ((1, 1), (512, 10**6), (3 * SCORES, 1)):
        blocks = list(matrix_products.word_blocks(words, rows, torch.device("cpu")))
        assert [blocks[0].start, blocks[-1].stop] == [0, words]
        assert all(one.stop == other.start for one, other in zip(blocks, blocks[1:]))
    assert len(list(matrix_products.word_blocks(10**6, 10**6, torch.device("meta")))) == 1
