"""Factored spherical layers: the steps of ``FactoredSGD`` against torch's SGD on the dense matrix."""

import copy
from functools import partial

import pytest
import torch
from layer_checks import Memory

from fairseq_kernels import FactoredSGD, GeneralizedSoftmax, SoftmaxBound, SphericalSoftmax, SquaredError, TaylorSoftmax
from fairseq_kernels.output_layers.factored import factored

# epsilon so large that rounding doesn't grow from step to step
LAYERS = {
    "taylor": TaylorSoftmax,
    "spherical": partial(SphericalSoftmax, epsilon=1.0),
    "squared-error": SquaredError,
    "softmax-bound": SoftmaxBound,
}
DIM, WORDS = 6, 11
# how often the factors are folded: options of factored, and whether the last of 12 steps does
FOLDS = {
    "never": ({}, False),
    "every step": ({"condition_limit": 0}, True),
    "every fourth": ({"fold_every": 4}, True),
    "every fifth": ({"fold_every": 5}, False),
}
FEW, MANY = 3, 25  # tokens, fewer and more than dimensions

each_layer = pytest.mark.parametrize("name", LAYERS)
each_softmax = pytest.mark.parametrize("name", ["taylor", "spherical"])  # stable at the rates of SGD here
with_and_without_bias = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])


def pair(name="taylor", dim=DIM, words=WORDS, bias=True, dtype=torch.float64, **options):
    """A dense layer of random parameters, and the same in factors."""
    torch.manual_seed(0)
    layer = LAYERS[name](dim, words, bias=bias).to(dtype)
    with torch.no_grad():
        layer.weight.normal_(std=dim**-0.5)
        if bias:
            layer.bias.normal_()
    return layer, factored(layer, **options)


def matrix(layer):
    """W, with the bias as its last column."""
    weight = layer.weight.detach()
    return weight.clone() if layer.bias is None else torch.cat([weight, layer.bias.detach().unsqueeze(1)], 1)


def batch(tokens, generator, dim=DIM, words=WORDS, dtype=torch.float64):
    features = torch.randn(tokens, dim, generator=generator, dtype=torch.float64)
    return features.to(dtype).requires_grad_(), torch.randint(words, (tokens,), generator=generator)


def step(layer, optimizer, batches):
    """A step on the sum of the batches' losses; the losses, and the gradients of the features."""
    optimizer.zero_grad()
    losses, gradients = [], []
    for features, target in batches:
        features = features.detach().to(next(layer.parameters()).dtype).requires_grad_()
        losses.append(layer.nll(features, target))
        losses[-1].backward()
        gradients.append(features.grad)
    optimizer.step()
    return losses, gradients


def assert_same(dense, factors, **tolerances):
    """Matrix, forward, and what the factored layer keeps beside it."""
    wanted = matrix(dense)
    torch.testing.assert_close(factors.dense(), wanted, **tolerances)
    torch.testing.assert_close(factors.gram, wanted.T @ wanted, **tolerances)
    torch.testing.assert_close(factors.total, wanted.sum(0), **tolerances)
    identity = torch.eye(wanted.size(1), dtype=wanted.dtype)
    torch.testing.assert_close(factors.inverse @ factors.map, identity, **tolerances)
    features = torch.linspace(-1, 1, 4 * dense.embed_dim, dtype=wanted.dtype).view(4, -1)
    torch.testing.assert_close(factors(features), dense(features), **tolerances)


TIGHT = {"rtol": 1e-8, "atol": 1e-9}


@pytest.mark.parametrize("tokens", [FEW, MANY])
@pytest.mark.parametrize("folds", FOLDS)
@with_and_without_bias
@each_layer
def test_steps_are_those_of_sgd(name, bias, folds, tokens):
    """Losses, gradients of the features and the matrix after each of many steps, of two micro-batches each."""
    options, folded = FOLDS[folds]
    dense, factors = pair(name, bias=bias, **options)
    start, rate = matrix(dense), 0.1 if dense.loss_is_nll else 1e-3
    optimizers = torch.optim.SGD(dense.parameters(), lr=rate), FactoredSGD([factors], lr=rate)
    generator = torch.Generator().manual_seed(1)
    for _ in range(12):
        batches = [batch(tokens, generator), batch(2, generator)]
        wanted, actual = (step(layer, sgd, batches) for layer, sgd in zip((dense, factors), optimizers))
        torch.testing.assert_close(actual, wanted, **TIGHT)
        assert_same(dense, factors, **TIGHT)
    assert factors.map.equal(torch.eye(DIM + bias, dtype=torch.float64)) == folded
    assert (matrix(dense) - start).abs().max() > rate and factors.loss_is_nll == dense.loss_is_nll


@pytest.mark.parametrize("options", [{"condition_limit": 1.01}, {"condition_limit": 3.0}, {"fold_every": 30}, {}])
@each_softmax
def test_hundreds_of_steps(name, options):
    """Large steps, folded where the factors' condition asks for it."""
    dense, factors = pair(name, **options)
    optimizers = torch.optim.SGD(dense.parameters(), lr=0.3), FactoredSGD([factors], lr=0.3)
    generator = torch.Generator().manual_seed(2)
    for number in range(200):
        batches = [batch((FEW, MANY)[number % 2], generator)]
        for layer, sgd in zip((dense, factors), optimizers):
            step(layer, sgd, batches)
    assert_same(dense, factors, rtol=1e-6, atol=1e-7)
    condition = torch.linalg.matrix_norm(factors.map) * torch.linalg.matrix_norm(factors.inverse) / (DIM + 1)
    assert condition <= options.get("condition_limit", 1e6)


@each_softmax
def test_float32_stays_close(name):
    """Over several hundred steps, to what SGD in float64 finds; no farther than dense SGD in float32, nearly."""
    exact, _ = pair(name)
    dense, factors = pair(name, dtype=torch.float32)
    exact.load_state_dict(dense.state_dict())
    layers = exact, dense, factors
    rate = 0.05
    optimizers = [*(torch.optim.SGD(layer.parameters(), lr=rate) for layer in layers[:2]), FactoredSGD([factors], rate)]
    generator = torch.Generator().manual_seed(6)
    for _ in range(400):
        batches = [batch(8, generator)]
        for layer, sgd in zip(layers, optimizers):
            step(layer, sgd, batches)
    assert factors.dense().dtype == torch.float32
    torch.testing.assert_close(factors.dense().double(), matrix(exact), rtol=1e-3, atol=1e-3)
    losses = [layer.nll(*batch(50, torch.Generator().manual_seed(7), dtype=layer.gram.dtype
              if layer is factors else layer.weight.dtype)).item() for layer in layers]  # fmt: skip
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-4)


@pytest.mark.parametrize("tokens", [FEW, MANY])
def test_only_rows_of_targets_change(tokens):
    """Between folds; every row of the matrix itself changes."""
    _, factors = pair(words=40)
    before, start = factors.base.detach().clone(), factors.dense()
    features, target = batch(tokens, torch.Generator().manual_seed(8), words=40)
    step(factors, FactoredSGD([factors], lr=0.1), [(features, target)])
    changed = factors.base.ne(before).any(1)
    assert changed.nonzero().squeeze(1).tolist() == sorted(set(target.tolist()))
    assert factors.dense().ne(start).any(1).all()


def test_no_tensor_that_grows_with_the_words():
    """Loss, backward and step, without a fold."""
    words = 50_000
    _, factors = pair(dim=4, words=words, dtype=torch.float32)
    features, target = batch(10, torch.Generator().manual_seed(9), 4, words, torch.float32)
    optimizer = FactoredSGD([factors], lr=0.1)
    with Memory(features, target, *factors.parameters(), *factors.buffers()) as memory:
        factors.nll(features, target).backward()
        optimizer.step()
    assert 0 < memory.peak < 4 * words / 5


def test_zero_grad_drops_gradients():
    dense, factors = pair()
    optimizer = FactoredSGD([factors], lr=0.1)
    factors.nll(*batch(5, torch.Generator().manual_seed(10))).backward()
    optimizer.zero_grad()
    optimizer.step()
    assert_same(dense, factors, **TIGHT)


def test_gradients_stay_until_the_step():
    """Two backward passes on one graph count twice."""
    dense, factors = pair()
    features, target = batch(5, torch.Generator().manual_seed(11))
    for layer, sgd in ((dense, torch.optim.SGD(dense.parameters(), lr=0.1)), (factors, FactoredSGD([factors], lr=0.1))):
        loss = layer.nll(features.clone().requires_grad_() * 1.0, target)
        loss.backward(retain_graph=True)
        (3 * loss).backward()
        copy.deepcopy(layer)  # they hold no graph
        sgd.step()
    assert_same(dense, factors, **TIGHT)


def test_a_gradient_of_the_features_alone():
    """As with other parameters, torch.autograd.grad leaves the next step as it is."""
    dense, factors = pair()
    features, target = batch(5, torch.Generator().manual_seed(23))
    features.requires_grad_()
    wanted, actual = (torch.autograd.grad(layer.nll(features, target), features)[0] for layer in (dense, factors))
    torch.testing.assert_close(actual, wanted, **TIGHT)
    with pytest.raises(RuntimeError, match="no second derivative; use the layer without factored"):
        torch.autograd.grad(factors.nll(features, target), features, create_graph=True)
    FactoredSGD([factors], lr=0.1).step()
    assert_same(dense, factors, **TIGHT)
    late = factors.nll(features, target)
    step(factors, FactoredSGD([factors], lr=0.1), [(features, target)])
    with pytest.raises(RuntimeError, match="call backward before step"):
        late.backward()


def test_contexts_without_a_gradient():
    """The layer learns where nothing in front of it does."""
    dense, factors = pair()
    features, target = batch(5, torch.Generator().manual_seed(13))
    losses = []
    for layer, sgd in ((dense, torch.optim.SGD(dense.parameters(), lr=0.1)), (factors, FactoredSGD([factors], lr=0.1))):

        def closure(layer=layer):
            loss = layer.nll(features.detach(), target)
            loss.backward()
            return loss

        losses.append(sgd.step(closure))
    assert_same(dense, factors, **TIGHT)
    torch.testing.assert_close(*losses, **TIGHT)


def test_a_step_that_solves_an_example_exactly():
    """I - 2 lr h h^T is singular at lr = 1 / (2 ||h||^2), where SGD's step on the squared error is Newton's."""
    dense, factors = pair("squared-error", dim=2, bias=False)
    features, target = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.tensor([3])
    batches = [(features, target)]
    for layer, sgd in ((dense, torch.optim.SGD(dense.parameters(), lr=0.5)), (factors, FactoredSGD([factors], lr=0.5))):
        step(layer, sgd, batches)
    torch.testing.assert_close(factors.dense(), matrix(dense), **TIGHT)


@pytest.mark.parametrize("fold_every", [3, 10_000])
def test_state_dict_round_trip(fold_every):
    """Layer and optimizer, saved between steps and loaded into new ones, go on as if nothing had been."""
    _, unbroken = pair(fold_every=fold_every)
    _, other = pair("taylor", fold_every=fold_every)
    with torch.no_grad():
        other.base.normal_()
    sgd, new_sgd = FactoredSGD([unbroken], lr=0.2), FactoredSGD([other], lr=0.7)
    generator = torch.Generator().manual_seed(17)
    for _ in range(4):
        step(unbroken, sgd, [batch(FEW, generator)])
    other.load_state_dict(unbroken.state_dict())
    new_sgd.load_state_dict(sgd.state_dict())
    assert new_sgd.param_groups[0]["lr"] == 0.2
    for _ in range(4):
        batches = [batch(FEW, generator)]
        wanted, actual = step(unbroken, sgd, batches), step(other, new_sgd, batches)
        torch.testing.assert_close(actual, wanted, **TIGHT)
    torch.testing.assert_close(other.dense(), unbroken.dense(), **TIGHT)


@with_and_without_bias
@each_layer
def test_a_factored_layer_is_its_dense_one(name, bias):
    """Losses, log-probabilities and ranks; a copy, which leaves the dense one alone."""
    dense, factors = pair(name, bias=bias)
    start = matrix(dense)
    features, target = batch(MANY, torch.Generator().manual_seed(18))
    assert_same(dense, factors, **TIGHT)
    for mode in (torch.enable_grad, torch.no_grad):
        with mode():
            wanted, result = (layer.nll(features, target, reduction="none") for layer in (dense, factors))
            torch.testing.assert_close(result, wanted, **TIGHT)
    torch.testing.assert_close(factors.evaluate(features, target), dense.evaluate(features, target))
    step(factors, FactoredSGD([factors], lr=0.1), [(features, target)])
    assert matrix(dense).equal(start)


def test_what_can_be_factored():
    """Dense spherical layers, once."""
    with pytest.raises(ValueError, match="GeneralizedSoftmax can't be factored"):
        factored(GeneralizedSoftmax(4, 5))
    with pytest.raises(ValueError, match="FactoredSpherical can't be factored"):
        factored(factored(TaylorSoftmax(4, 5)))
    with pytest.raises(ValueError, match="vocabulary of a factored layer"):
        factored(TaylorSoftmax(4, 5)).extend_vocabulary(1)


def test_one_process_only(monkeypatch):
    sgd = FactoredSGD([factored(TaylorSoftmax(4, 5))], lr=0.1)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    sgd.step()
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(RuntimeError, match="one process"):
        sgd.step()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_factors_keep_their_precision(dtype):
    """torch inverts no matrices of half precision."""
    torch.manual_seed(0)
    before, after = factored(TaylorSoftmax(4, 10)).to(dtype), factored(TaylorSoftmax(4, 10).to(dtype))
    for layer in (before, after):
        optimizer = FactoredSGD([layer], lr=0.1)
        start = layer.dense().clone()
        layer.nll(torch.randn(5, 4, dtype=dtype), torch.arange(5)).backward()
        optimizer.step()
        assert layer.base.dtype == layer.gram.dtype == torch.float32
        assert (layer.dense() - start).abs().max() > 0.01
