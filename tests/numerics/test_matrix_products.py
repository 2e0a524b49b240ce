"""Products with the words' vectors, through torch's own library and through oneDNN, against float64."""

import pytest
import torch

from fairseq_kernels import GeneralizedSoftmax
from fairseq_kernels.fused import matrix_products
from fairseq_kernels.fused.matrix_products import backward_products, bfloat16_is_faster, onednn_is_faster, word_products

SIZES = {"many rows": (70, 1300, 16), "few rows": (9, 700, 33), "one row": (1, 40, 3), "one word": (5, 1, 4)}
SIZES["no rows"] = (0, 40, 3)  # of a batch whose targets are all ignored


@pytest.fixture(params=["0", "1"], ids=["torch", "oneDNN"])
def library(request, monkeypatch):
    monkeypatch.setenv("FAIRSEQ_KERNELS_ONEDNN", request.param)
    if request.param == "1" and not hasattr(torch.backends.mkldnn, "matmul"):
        pytest.skip("this torch doesn't let one choose oneDNN")
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
    vectors, words, grad = tensors
    words = words[:, 2 : 2 + vectors.size(1)]
    words = words if gaps else words.contiguous()
    out = torch.full((len(vectors), len(words) + 3), torch.nan)
    word_products(vectors, words, out=out[:, 1:-2])
    close(out[:, 1:-2], vectors.double() @ words.double().T)
    assert out[:, :1].isnan().all() and out[:, -2:].isnan().all()
    grad_words = torch.ones(len(words), vectors.size(1) + 2)
    grad_vectors = backward_products(grad, vectors, words, grad_words[:, : vectors.size(1)])
    close(grad_vectors, grad.double() @ words.double())
    close(grad_words[:, : vectors.size(1)], 1 + grad.double().T @ vectors.double())
    assert (grad_words[:, vectors.size(1) :] == 1).all()


def test_words_are_one_block_where_there_is_no_cache():
    assert len(list(matrix_products.word_blocks(10**6, 10**6, torch.device("meta")))) == 1


# words in half precision

HALF = pytest.mark.parametrize("dtype,tolerance", [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])


def error(result, exact):
    """Relative, of the whole tensor."""
    return float((result.double() - exact).norm() / exact.norm())


@HALF
def test_half_precision_products(dtype, tolerance):
    """Scores, and the gradients of a softmax over 30,000 words, most of whose entries are below 1e-7."""
    torch.manual_seed(0)
    vectors, words = torch.randn(2, 8), torch.randn(30_000, 8).to(dtype)
    scores = torch.full((2, 30_000), torch.nan)
    word_products(vectors, words, out=scores)
    exact = vectors.double() @ words.double().T
    assert error(scores, exact) < tolerance
    grad = (1.5 * exact).softmax(1)
    grad[[0, 1], [0, 1]] -= 1
    grad_words = torch.zeros(30_000, 8)
    grad_vectors = backward_products(grad.float(), vectors, words, grad_words)
    assert grad_words.dtype == grad_vectors.dtype == torch.float32
    expected = grad.T @ vectors.double()
    assert error(grad_words, expected) < tolerance
    assert error(grad_vectors, grad @ words.double()) < tolerance
    norms = expected.norm(dim=1)
    rare = norms < norms.median()  # beside the others' gradients an error in these would not show
    assert error(grad_words[rare], expected[rare]) < tolerance


@pytest.mark.parametrize("largest", [1.0, 1e-9, 1e-30, 1e30])
def test_small_gradients_survive_float16(largest):
    """1e-9 of the largest entry is not lost to zero; a gradient of zeros stays one."""
    grad = largest * torch.tensor([[-1.0, 1e-9], [0.5, 0.0]])
    grad_words = torch.zeros(2, 2)
    grad_vectors = backward_products(grad, torch.eye(2), torch.eye(2, dtype=torch.float16), grad_words)
    for result in (grad_vectors, grad_words.T):
        torch.testing.assert_close(result, grad, rtol=1e-2, atol=0)
    assert not backward_products(0 * grad, torch.eye(2), torch.eye(2, dtype=torch.float16), grad_words).any()


@pytest.mark.skipif(not bfloat16_is_faster(), reason="a processor without products of bfloat16")
@pytest.mark.parametrize("kernels", ["2xlin", "log"])
def test_autocast_on_the_cpu_multiplies_bfloat16(kernels):
    """For the gradients alone, which are near those of float32 and not the same; of distances, not at all."""
    torch.manual_seed(0)
    layer, target = GeneralizedSoftmax(32, 300, kernels), torch.randint(300, (40,))
    features = torch.randn(40, 32, requires_grad=True)
    results = []
    for low in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
            loss = layer.nll(features, target)
        results.append([loss.detach(), *torch.autograd.grad(loss, [features, layer.weight])])
    assert results[0][0].equal(results[1][0])
    for exact, rounded in list(zip(*results))[1:]:
        assert rounded.dtype == torch.float32
        assert 0 < error(rounded, exact.double()) < 1e-2 if kernels == "2xlin" else rounded.equal(exact)
