"""The spherical family's own: the bound's parameter, starts that can learn, sums kept in evaluation."""

import math

import pytest
import reference
import torch
from layer_checks import FAMILY as LAYERS
from layer_checks import gradients, randomised, tokens
from torch import nn

from fairseq_kernels import SoftmaxBound, SphericalSoftmax
from fairseq_kernels.fused import matrix_products
from fairseq_kernels.output_layers import spherical

each_layer = pytest.mark.parametrize("name", LAYERS)


def make(name, dim=6, words=9, seed=0, **options):
    torch.manual_seed(seed)
    return randomised(LAYERS[name](dim, words, **options))


@pytest.mark.parametrize("words, dim", [(3, 8), (5, 1), (11, 128), (20, 300), (140, 129)])
@each_layer
def test_blocks_of_the_words_products(name, words, dim, monkeypatch):
    """W^T W is made in blocks of 128 columns, half of them mirror images; words and tokens come a few at a time."""
    monkeypatch.setattr(spherical, "STATISTICS_TOKENS", 3)
    monkeypatch.setattr(matrix_products, "WORDS", 4)
    monkeypatch.setattr(matrix_products, "SCORES", 1)
    options = {"xi": 1.2} if name == "softmax-bound" else {}
    layer = make(name, dim, words, **options)
    features, target = tokens(dim=dim, words=words)
    loss, plain = layer.nll(features, target), reference.losses(layer, features, target).sum()
    torch.testing.assert_close(loss, plain, rtol=1e-9, atol=1e-9)
    found, wanted = (gradients(value, features, *layer.parameters()) for value in (loss, plain))
    torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("word", [0, 3])
@each_layer
def test_the_prior_leaves_every_word_a_gradient(name, word):
    """The rarest word and the most frequent one: nothing starts at a minimum of its probability."""
    layer = LAYERS[name](6, 5)
    layer.set_prior([1, 3, 6, 91, 4])
    features = torch.randn(7, 6)
    layer.nll(features, torch.full((7,), word)).backward()
    assert layer.bias.grad[word] < -0.01 and layer.weight.grad[word].abs().max() > 0.01


@pytest.mark.parametrize("scale", [0.01, 1, 10, 60])
@pytest.mark.parametrize("words", [2, 3, 9, 200])
def test_softmax_bound_is_the_tightest(words, scale):
    """The minimum over a fine grid of xi, above the loss of the softmax."""
    layer = make("softmax-bound", words=words, xi=None)
    features, target = tokens(words=words)
    with torch.no_grad():
        features = features * scale
        o = reference.outputs(layer, features)
        grid = torch.logspace(-3, 4, 3001, dtype=torch.float64)
        best = reference.bouchard(o, grid).min(0).values - o.gather(1, target.unsqueeze(1)).squeeze(1)
        bound = layer.nll(features, target, reduction="none")
    assert bound.le(best + 1e-9 * best.abs() + 1e-9).all()
    torch.testing.assert_close(bound, best, rtol=1e-4, atol=2e-4)
    loss = nn.functional.cross_entropy(o, target, reduction="none")
    assert bound.ge(loss - 1e-9).all()
    for xi in (0.5, 2.0, 30.0):
        other = make("softmax-bound", words=words, xi=xi)
        assert other.nll(features, target, reduction="none").ge(bound - 1e-9).all()


def test_softmax_bound_of_one_word():
    """V = 1: no smaller than the loss, 0, and of the tightest xi no larger than of another."""
    layers = [make("softmax-bound", words=1, xi=xi) for xi in (None, 0.1, 30.0)]
    tightest, small, large = (layer.nll(*tokens(words=1), reduction="none") for layer in layers)
    assert min(bound.min() for bound in (tightest, small, large)) > -1e-9
    assert tightest.le(small + 1e-6).all() and tightest.le(large + 1e-6).all()


def test_the_tightest_bound_of_many_words_in_float32():
    """Its terms of the size of V cancel."""
    double, single = (SoftmaxBound(16, 30_000).to(dtype) for dtype in (torch.float64, torch.float32))
    torch.manual_seed(0)
    features, target = torch.randn(7, 16, dtype=torch.float64), torch.randint(30_000, (7,))
    losses = single.nll(features.float(), target).double(), double.nll(features, target)
    torch.testing.assert_close(*losses, rtol=1e-6, atol=0)


@pytest.mark.parametrize("value", [0, -2.0, 1e-50, math.inf, math.nan])
def test_wrong_xi_and_epsilon(value):
    for layer, name in ((SoftmaxBound, "xi"), (SphericalSoftmax, "epsilon")):
        with pytest.raises(ValueError, match=f"{name}={value:g} is not allowed: it must be a number from 1e-12"):
            layer(4, 5, **{name: value})


@each_layer
def test_extreme_norms(name):
    """Words, contexts and biases of 0, small and large: finite losses and gradients."""
    norms = torch.tensor([0, 1e-4, 1e-2, 1.0, 30.0, 1e3]).repeat(2).unsqueeze(1)
    layer = make(name, words=12).float()
    with torch.no_grad():
        layer.weight.copy_(nn.functional.normalize(layer.weight, dim=1) * norms)
    features = layer.weight.detach().clone().requires_grad_()
    for target in (torch.arange(12), torch.arange(12).flip(0)):
        loss = layer.nll(features, target)
        assert loss.isfinite() and layer(features).isfinite().all()
        assert all(gradient.isfinite().all() for gradient in gradients(loss, features, *layer.parameters()))


def test_the_words_sums_are_computed_once_in_evaluation(monkeypatch):
    """And anew at every training step, and for another precision."""
    calls, gram = [], spherical.gram

    def counted(weight):
        calls.append(weight.dtype)
        return gram(weight)

    monkeypatch.setattr(spherical, "gram", counted)
    layer = make("taylor").float().eval()
    features, target = tokens()
    features = features.float()
    with torch.no_grad():
        for _ in range(3):
            layer.nll(features, target)
        assert calls == [torch.float32]
        layer.nll(features.double(), target)
        assert calls == [torch.float32, torch.float64]
    layer.train()
    for _ in range(2):
        layer.nll(features, target)
    assert len(calls) == 4


def test_checkpoint_of_another_epsilon_is_loaded_with_a_warning(caplog):
    """It is no parameter: the model's own is kept."""
    layer, other = make("spherical", seed=3), make("spherical", epsilon=0.5)
    layer.load_state_dict(other.state_dict())
    assert "epsilon=0.5" in caplog.text and "epsilon=0.0198" in caplog.text
    SoftmaxBound(4, 5, xi=2.0).load_state_dict(SoftmaxBound(4, 5).state_dict())
    assert "xi=2" in caplog.text
    assert layer.weight.equal(other.weight) and layer.epsilon == 0.0198
    assert layer.kind_version.equal(make("spherical").kind_version)
