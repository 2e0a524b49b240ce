"""The spherical family: losses, gradients and distributions against the plain formulas over all V outputs."""

import math

import pytest
import torch
from layer_checks import Memory, gradcheck, gradients, inputs
from torch import nn

from fairseq_kernels import SoftmaxBound, SphericalSoftmax, SquaredError, TaylorSoftmax
from fairseq_kernels.output_layers import spherical_statistics

LAYERS = {layer.name: layer for layer in (TaylorSoftmax, SphericalSoftmax, SquaredError, SoftmaxBound)}
EPSILON = 0.3
OPTIONS = {"spherical": {"epsilon": EPSILON}, "softmax-bound": {"xi": 1.2}}  # the tightest xi has tests of its own
# tokens, words, dimension; the matrix of words' products is made in blocks of 128 columns
SHAPES = {
    "plain": (7, 9, 6),
    "fewer words than dimensions": (5, 3, 8),
    "two words": (4, 2, 3),
    "one dimension": (6, 5, 1),
    "a block": (4, 11, 128),
    "blocks and a rest": (6, 20, 300),
    "a block and one": (3, 140, 129),
}

each_layer = pytest.mark.parametrize("name", LAYERS)
each_softmax = pytest.mark.parametrize("name", ["taylor", "spherical"])
with_and_without_bias = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])


def make(name, dim=6, words=9, bias=True, dtype=torch.float64, seed=0, **options):
    """A layer all of whose parameters are random, outputs of some 1."""
    torch.manual_seed(seed)
    layer = LAYERS[name](dim, words, bias=bias, **{**OPTIONS.get(name, {}), **options}).to(dtype)
    with torch.no_grad():
        layer.weight.normal_(std=dim**-0.5)
        if bias:
            layer.bias.normal_()
    return layer


def outputs(layer, features):
    """o = W h + beta, (N, V)."""
    result = torch.einsum("nd,vd->nv", features, layer.weight)
    return result if layer.bias is None else result + layer.bias


NUMERATORS = {
    "taylor": lambda o: 1 + o + o**2 / 2,
    "spherical": lambda o: o**2 + EPSILON,
    "squared-error": lambda o: o.clamp_min(1e-8),
    "softmax-bound": lambda o: o.exp(),
}


def probabilities(layer, features):
    """The numerators of all words, divided by their sum."""
    scores = NUMERATORS[layer.name](outputs(layer, features))
    return scores / scores.sum(1, keepdim=True)


def picked(values, target):
    """The targets' entries of (N, V)."""
    return values[torch.arange(len(target)), target]


def plain_loss(layer, features, target):
    """-log p(y), ||o - e_y||^2, or Bouchard's bound minus o_y."""
    o = outputs(layer, features)
    if layer.name == "squared-error":
        return (o - nn.functional.one_hot(target, layer.num_embeddings)).square().sum(1)
    if layer.name == "softmax-bound":
        return bouchard(o, torch.tensor([layer.function.xi], dtype=o.dtype))[0] - picked(o, target)
    return -picked(probabilities(layer, features), target).log()


def bouchard(o, xi):
    """Bouchard's (2007) bound of log sum_v exp(o_v), its alpha at the minimum: (N, V) and (X,) to (X, N)."""
    xi = xi.view(-1, 1, 1)
    slope = (1 / (1 + torch.exp(-xi)) - 0.5) / (2 * xi)

    def at(alpha):
        shifted = o - alpha
        parts = (shifted - xi) / 2 + slope * (shifted**2 - xi**2) + nn.functional.softplus(xi)
        return alpha + parts.sum(2)

    low, middle, high = at(-1), at(0), at(1)  # a parabola in alpha
    return middle - (high - low) ** 2 / (8 * (high + low - 2 * middle))


def log_softmax_loss(layer, features, target):
    return -picked(torch.log_softmax(outputs(layer, features), 1), target)


def check(layer, features, target, ignore_index=None):
    """The loss and its gradients, as a sum and token by token."""
    real = torch.ones_like(target, dtype=torch.bool) if ignore_index is None else target != ignore_index
    expected = torch.zeros(len(target), dtype=torch.float64).masked_scatter(
        real, plain_loss(layer, features[real], target[real])
    )
    total = layer.nll(features, target, ignore_index=ignore_index)
    each = layer.nll(features, target, ignore_index=ignore_index, reduction="none")
    torch.testing.assert_close(total, expected.sum(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(each, expected, rtol=1e-10, atol=1e-10)
    weighting = torch.linspace(-1, 2, len(target), dtype=torch.float64)
    for result, wanted in ((total, expected.sum()), ((each * weighting).sum(), (expected * weighting).sum())):
        pairs = zip(gradients(result, features, layer), gradients(wanted, features, layer))
        for actual, exact in pairs:
            exact = torch.zeros_like(actual) if exact is None else exact
            torch.testing.assert_close(actual, exact, rtol=1e-8, atol=1e-10)


# the distribution


@with_and_without_bias
@each_layer
def test_forward_is_the_plain_formula(name, bias):
    """Log-probabilities with gradients; the same without, in chunks."""
    layer = make(name, bias=bias)
    features, _ = inputs(layer)
    log_p, expected = layer(features), probabilities(layer, features).log()
    torch.testing.assert_close(log_p, expected, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(7, dtype=torch.float64), rtol=0, atol=1e-12)
    weighting = torch.randn_like(log_p)
    actual, wanted = (gradients((result * weighting).sum(), features, layer) for result in (log_p, expected))
    torch.testing.assert_close(actual, wanted, rtol=1e-8, atol=1e-9)
    layer.memory_budget = 3 * layer.row_bytes(torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(layer(features), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("shape", [(6,), (0, 6), (2, 3, 6), (2, 0, 6)])
@each_layer
def test_shapes(name, shape):
    """Any leading dimensions, none and empty ones included."""
    layer = make(name)
    features, target = torch.randn(shape, dtype=torch.float64), torch.zeros(shape[:-1], dtype=torch.long)
    assert layer(features).shape == (*shape[:-1], 9)
    assert all(values.shape == target.shape for values in layer.evaluate(features, target))
    assert layer.nll(features, target).shape == ()
    assert layer.nll(features, target, reduction="none").shape == target.shape


@pytest.mark.parametrize("budget", [1, None])
@each_layer
def test_log_probability_and_rank(name, budget):
    """log p(y), and how many words are more probable, whatever the chunks; words alike are not."""
    layer = make(name, memory_budget=budget)
    features, target = inputs(layer, tokens=30)
    p = probabilities(layer, features)
    better = [sum(q > row[y] for q in row) for row, y in zip(p.tolist(), target)]
    log_probability, rank = layer.evaluate(features, target)
    torch.testing.assert_close(log_probability, picked(p, target).log())
    assert rank.tolist() == better
    assert len(set(better)) > 4
    with torch.no_grad():
        layer.weight[3], layer.bias[3] = layer.weight[5], layer.bias[5]
    threes, fives = (layer.evaluate(features, torch.full((30,), word))[1] for word in (3, 5))
    assert threes.equal(fives)


# the start of a layer


@pytest.mark.parametrize("name,bias", [*((name, True) for name in LAYERS), ("taylor", False)])
def test_a_new_layer_is_uniform_and_can_learn(name, bias):
    """W = 0: every word has 1 / V, and W has a gradient."""
    layer = LAYERS[name](6, 9, bias=bias)
    features, target = inputs(layer)
    torch.testing.assert_close(layer(features).exp(), torch.full((7, 9), 1 / 9))
    layer.nll(features, target).backward()
    assert all(p.grad.abs().max() > 1e-3 for p in layer.parameters())


def test_a_new_spherical_layer_without_bias_can_learn():
    """W = 0 would have no gradient at all."""
    layer = SphericalSoftmax(6, 9, bias=False)
    features, target = inputs(layer)
    layer.nll(features, target).backward()
    assert layer.weight.grad.abs().max() > 1e-3
    assert features.grad.abs().max() > 1e-3


@pytest.mark.parametrize("layer, deviation", [(SphericalSoftmax, 64**-0.5), (TaylorSoftmax, 0.0)])
def test_the_start_without_a_bias(layer, deviation):
    """Random for the spherical softmax, whose o^2 has no gradient at o = 0."""
    start = layer(64, 2000, bias=False).weight
    assert start.std().item() == pytest.approx(deviation, rel=0.02)  # of 128,000 draws: 0.2 % deviation


@with_and_without_bias
@each_layer
def test_learning(name, bias):
    """Adam brings a new layer to the words that go with each context; reset_parameters brings it back."""
    torch.manual_seed(0)
    layer = LAYERS[name](4, 6, bias=bias)
    start = layer.nll(torch.eye(4), torch.arange(4)).item()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        layer.nll(torch.eye(4), torch.arange(4)).backward()
        optimizer.step()
    assert layer.nll(torch.eye(4), torch.arange(4)).item() < 0.5 * start
    layer.reset_parameters()
    assert layer.nll(torch.eye(4), torch.arange(4)).item() == pytest.approx(start, rel=0.3)


@each_layer
def test_log_prior(name):
    """A context of 0 has the prior of the counts, one added to each; so has every context of a new layer."""
    counts = [0, 2, 5, 90, 0]
    prior = torch.tensor([1, 3, 6, 91, 1]) / 102
    layer = make(name, words=5, dtype=torch.float32)
    layer.set_log_prior(counts)
    torch.testing.assert_close(layer(torch.zeros(6)).exp(), prior)
    new = LAYERS[name](6, 5)
    new.set_log_prior(counts)
    features, _ = inputs(new)
    torch.testing.assert_close(new(features).exp(), prior.expand(7, 5))


@pytest.mark.parametrize("word", [0, 3])
@each_layer
def test_the_prior_leaves_every_word_a_gradient(name, word):
    """The rarest word and the most frequent one: nothing starts at a minimum of its probability."""
    layer = LAYERS[name](6, 5)
    layer.set_log_prior([0, 2, 5, 90, 3])
    features, _ = inputs(layer)
    layer.nll(features, torch.full((7,), word)).backward()
    assert layer.bias.grad[word] < -0.01 and layer.weight.grad[word].abs().max() > 0.01


# the loss


@with_and_without_bias
@pytest.mark.parametrize("shape", SHAPES)
@each_layer
def test_loss_is_the_plain_formula(name, shape, bias):
    """Loss and gradients of features, weight and bias."""
    tokens, words, dim = SHAPES[shape]
    layer = make(name, dim, words, bias)
    check(layer, *inputs(layer, tokens))


@with_and_without_bias
@pytest.mark.parametrize("target", [[2, 2, 2, 2, 2, 2, 2], [4, 1, 4, 4, 1, 0, 8], [1, 1, 1, 1, 1, 1, 1]])
@each_layer
def test_repeated_and_ignored_targets(name, target, bias):
    """Word 1 is padding: none, some or all of the tokens."""
    layer = make(name, bias=bias)
    features, _ = inputs(layer)
    check(layer, features, torch.tensor(target), ignore_index=1)


@pytest.mark.parametrize("seed", range(8))
@each_layer
def test_random_shapes(name, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens, words, dim = (int(torch.randint(1, 40, (1,), generator=generator)) for _ in range(3))
    layer = make(name, dim, words, bias=bool(seed % 2), seed=seed)
    check(layer, *inputs(layer, tokens, seed), ignore_index=0 if seed % 3 else None)


@pytest.mark.parametrize("tokens,ignored", [(0, False), (3, True)], ids=["no tokens", "all ignored"])
@with_and_without_bias
@each_layer
def test_nothing_to_learn_from(name, bias, tokens, ignored):
    """No tokens, or padding only: loss 0 and gradients 0."""
    layer = make(name, bias=bias)
    features, target = inputs(layer, tokens)
    target.fill_(4)
    loss = layer.nll(features, target, ignore_index=4 if ignored else None)
    assert loss.item() == 0
    assert all(gradient.eq(0).all() for gradient in gradients(loss, features, layer))


@with_and_without_bias
@each_softmax
def test_one_word(name, bias):
    """V = 1: certain."""
    layer = make(name, words=1, bias=bias)
    features, target = inputs(layer)
    assert layer(features).abs().max() < 1e-12
    loss = layer.nll(features, target)
    assert abs(loss.item()) < 1e-12
    assert all(gradient.abs().max() < 1e-12 for gradient in gradients(loss, features, layer))


def test_ignored_targets_need_not_be_words():
    layer = make("taylor")
    features, target = inputs(layer)
    wanted = plain_loss(layer, features[1:], target[1:]).sum().item()
    target[0] = -100
    assert layer.nll(features, target, ignore_index=-100).item() == pytest.approx(wanted, rel=1e-12)


@with_and_without_bias
@pytest.mark.parametrize("name,options", [*((name, {}) for name in LAYERS), ("softmax-bound", {"xi": None})])
def test_gradcheck(name, options, bias):
    """Against finite differences; the bound's xi given, and at its best for every example."""
    layer = make(name, dim=3, words=4, bias=bias, **options)
    features, target = inputs(layer, tokens=3)
    assert gradcheck(layer, features, lambda layer, features: layer.nll(features, target, reduction="none"))


@each_layer
def test_weighted_losses(name):
    """By factors of the tokens, with a gradient; the mean is over their sum, metrics are without them."""
    layer = make(name)
    features, target = inputs(layer)
    weight = torch.linspace(-1, 3, 7, dtype=torch.float64, requires_grad=True)
    each = plain_loss(layer, features, target)
    expected = {"none": each * weight, "sum": each @ weight, "mean": each @ weight / weight.sum()}
    for reduction, wanted in expected.items():
        loss, metrics = layer.nll(features, target, reduction=reduction, token_weight=weight, return_metrics=True)
        torch.testing.assert_close(loss, wanted)
        given = [features, weight, *layer.parameters()]
        torch.testing.assert_close(
            *(torch.autograd.grad(value.sum(), given, retain_graph=True) for value in (loss, wanted))
        )
        torch.testing.assert_close(metrics, {"nll": each.detach()} if layer.loss_is_nll else {})


# autograd's uses of the loss


@each_layer
def test_gradients_accumulate(name):
    """Two backward passes add up in .grad, as of --update-freq 2; so does a second one on a kept graph."""
    layer = make(name)
    features, target = inputs(layer)
    once = gradients(plain_loss(layer, features, target).sum(), features, layer)
    layer.nll(features, target).backward()
    loss = layer.nll(features, target)
    loss.backward(retain_graph=True)
    (10 * loss).backward()
    for tensor, gradient in zip([features, *layer.parameters()], once):
        torch.testing.assert_close(tensor.grad, 12 * gradient)


@pytest.mark.parametrize("frozen", ["weight", "bias", "features"])
@each_layer
def test_frozen_parts(name, frozen):
    """What doesn't ask for a gradient gets none; the others get theirs."""
    layer = make(name)
    features, target = inputs(layer)
    named = {"features": features, **dict(layer.named_parameters())}
    wanted = dict(zip(named, gradients(plain_loss(layer, features, target).sum(), features, layer)))
    named[frozen].requires_grad_(False)
    layer.nll(features, target).backward()
    for part, tensor in named.items():
        if part == frozen:
            assert tensor.grad is None
        else:
            torch.testing.assert_close(tensor.grad, wanted[part])


@each_layer
def test_everything_frozen(name):
    layer = make(name).requires_grad_(False)
    features, target = inputs(layer)
    assert not layer.nll(features.detach(), target).requires_grad
    layer.nll(features, target).backward()
    assert features.grad.abs().sum() > 0


@each_layer
def test_no_second_derivative(name):
    """Taking it says so; a gradient with a graph is as without."""
    layer = make(name)
    features, target = inputs(layer)
    [wanted] = torch.autograd.grad(layer.nll(features, target), features)
    [gradient] = torch.autograd.grad(layer.nll(features, target), features, create_graph=True)
    torch.testing.assert_close(gradient, wanted)
    with pytest.raises(RuntimeError, match="nll has no second derivative.*log-probabilities"):
        gradient.sum().backward()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@each_layer
def test_validation_builds_no_graph(name, training, mode):
    layer = make(name).train(training)
    features, target = inputs(layer)
    expected = plain_loss(layer, features, target).sum().item()
    with mode():
        results = [layer.nll(features, target), layer(features)]
    assert results[0].item() == pytest.approx(expected, rel=1e-12)
    assert all(not result.requires_grad and result.grad_fn is None for result in results)


@each_layer
def test_weight_shared_with_an_embedding(name):
    """The gradient of the shared matrix is the sum of both uses'."""
    layer = make(name)
    embedding = nn.Embedding(9, 6, dtype=torch.float64)
    layer.weight = embedding.weight
    words, target = torch.tensor([3, 1, 8, 3]), torch.tensor([2, 1, 4, 3])
    features = torch.tanh(embedding(words))
    loss, plain = layer.nll(features, target), plain_loss(layer, features, target).sum()
    actual, wanted = (torch.autograd.grad(value, layer.parameters(), retain_graph=True) for value in (loss, plain))
    torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-10)


# memory


@with_and_without_bias
@each_layer
def test_no_tensor_of_tokens_by_words(name, bias):
    """Loss and backward make nothing larger than the features or the weights, and few of these."""
    tokens, words, dim = 400, 500, 8
    layer = make(name, dim, words, bias, dtype=torch.float32)
    features, target = inputs(layer, tokens)
    known = [features, *layer.parameters()]
    with Memory(*known, target) as memory:
        layer.nll(features, target, ignore_index=1).backward()
    assert memory.numel <= max(tokens, words) * dim, memory.operation
    assert memory.peak < 4 * sum(4 * tensor.numel() for tensor in known) + 100 * tokens


@each_layer
def test_decoding_keeps_within_the_budget(name):
    """Without gradients, forward makes the (N, V) result and no other tensor of its size; evaluate makes none."""
    tokens, words, budget = 600, 200, 40_000
    layer = make(name, dim=4, words=words, dtype=torch.float32, memory_budget=budget).eval()
    features, target = inputs(layer, tokens)
    with torch.no_grad(), Memory(features, *layer.parameters()) as memory:
        layer(features)
    assert memory.peak < 4 * tokens * words + 6 * budget
    with Memory(features, target, *layer.parameters()) as memory:
        layer.evaluate(features, target)
    assert memory.peak < 6 * budget


# the bound's own parameter


@with_and_without_bias
@pytest.mark.parametrize("xi", [0.01, 1.0, 7.5])
@pytest.mark.parametrize("words", [1, 2, 3, 9, 50])
def test_softmax_bound_of_a_given_xi(words, xi, bias):
    """Bouchard's, its other parameter at the minimum; above the loss of the softmax."""
    layer = make("softmax-bound", words=words, bias=bias, xi=xi)
    features, target = inputs(layer)
    check(layer, features, target, ignore_index=0 if words > 1 else None)
    bound = layer.nll(features, target, reduction="none")
    assert bound.ge(log_softmax_loss(layer, features, target) - 1e-9).all()


@pytest.mark.parametrize("scale", [0.01, 1, 10, 60])
@pytest.mark.parametrize("words", [2, 3, 9, 200])
def test_softmax_bound_is_the_tightest(words, scale):
    """The minimum over a fine grid of xi, above the loss of the softmax."""
    layer = make("softmax-bound", words=words, xi=None)
    features, target = inputs(layer)
    with torch.no_grad():
        features = features * scale
        o = outputs(layer, features)
        grid = torch.logspace(-3, 4, 3001, dtype=torch.float64)
        best = bouchard(o, grid).min(0).values - picked(o, target)
        bound = layer.nll(features, target, reduction="none")
    assert bound.le(best + 1e-9 * best.abs() + 1e-9).all()
    torch.testing.assert_close(bound, best, rtol=1e-4, atol=1e-4)
    assert bound.ge(log_softmax_loss(layer, features, target) - 1e-9).all()
    for xi in (0.5, 2.0, 30.0):
        other = make("softmax-bound", words=words, xi=xi)
        assert other.nll(features, target, reduction="none").ge(bound - 1e-9).all()


def test_softmax_bound_of_one_word():
    """V = 1: no smaller than the loss, 0, and of the tightest xi no larger than of another."""
    layers = [make("softmax-bound", words=1, xi=xi) for xi in (None, 0.1, 30.0)]
    tightest, small, large = (layer.nll(*inputs(layer), reduction="none") for layer in layers)
    assert min(bound.min() for bound in (tightest, small, large)) > -1e-9
    assert tightest.le(small + 1e-6).all() and tightest.le(large + 1e-6).all()


def test_the_tightest_bound_in_float32():
    double, single = (make("softmax-bound", words=50, xi=None, dtype=dtype) for dtype in (torch.float64, torch.float32))
    single.load_state_dict(double.state_dict())
    features, target = inputs(double)
    bound = single.nll(features.float(), target)
    assert bound.dtype == torch.float32
    torch.testing.assert_close(bound.double(), double.nll(features, target), rtol=1e-5, atol=0)


def test_the_tightest_bound_of_many_words_in_float32():
    """Its terms of the size of V cancel."""
    double, single = (SoftmaxBound(16, 30_000).to(dtype) for dtype in (torch.float64, torch.float32))
    features, target = inputs(double)
    losses = single.nll(features.float(), target).double(), double.nll(features, target)
    torch.testing.assert_close(*losses, rtol=1e-6, atol=0)


@pytest.mark.parametrize("xi", [0, -2.0, 1e-50, math.inf, math.nan])
def test_wrong_xi(xi):
    with pytest.raises(ValueError, match=f"xi={xi:g} is not allowed.*> 0"):
        SoftmaxBound(4, 5, xi=xi)


# precision


@pytest.mark.parametrize("shape", SHAPES)
@with_and_without_bias
@each_layer
def test_float32_loss_and_gradients_agree_with_float64(name, bias, shape):
    tokens, words, dim = SHAPES[shape]
    double, single = (make(name, dim, words, bias, dtype) for dtype in (torch.float64, torch.float32))
    single.load_state_dict(double.state_dict())
    features, target = inputs(double, tokens)
    low = features.detach().float().requires_grad_()
    loss, expected = single.nll(low, target), double.nll(features, target)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), expected, rtol=2e-5, atol=1e-6)
    for actual, exact in zip(gradients(loss, low, single), gradients(expected, features, double)):
        torch.testing.assert_close(actual.double(), exact, rtol=1e-3, atol=2e-5 * float(exact.abs().max()))


@pytest.mark.parametrize("given,result", [(torch.float64, torch.float64), (torch.float16, torch.float32),
                                          (torch.bfloat16, torch.float32)])  # fmt: skip
@each_layer
def test_precision_of_the_results(name, given, result):
    """Half precision gives float32, its gradients in its own."""
    layer = make(name, dtype=given)
    features, target = inputs(layer)
    for reduction in ("sum", "none"):
        assert layer.nll(features, target, reduction=reduction).dtype == result
    actual = gradients(layer.nll(features, target), features, layer)
    assert [gradient.dtype for gradient in actual] == [given] * 3
    with torch.no_grad():
        assert layer(features).dtype == layer.nll(features, target).dtype == result


@pytest.mark.parametrize("given", [torch.float16, torch.bfloat16])
@each_layer
def test_half_precision_features_of_a_float32_layer(name, given):
    """As under autocast: computed in float32 from the features as they are."""
    layer = make(name, dtype=torch.float32)
    features, target = inputs(layer, dtype=given)
    with torch.autocast("cpu", dtype=given):
        loss, log_p = layer.nll(features, target), layer(features)
    loss.backward()
    torch.testing.assert_close(loss, layer.nll(features.float(), target), rtol=1e-6, atol=0)
    torch.testing.assert_close(log_p, layer(features.float()), rtol=1e-6, atol=1e-6)
    exact = features.detach().float().requires_grad_()
    [wanted] = torch.autograd.grad(layer.nll(exact, target), exact)
    assert features.grad.dtype == given
    torch.testing.assert_close(features.grad, wanted.to(given))


@with_and_without_bias
@each_layer
def test_backward_under_autocast(name, bias):
    """In float32, as the loss was."""
    layer = make(name, bias=bias, dtype=torch.float32)
    features, target = inputs(layer)
    wanted = gradients(layer.nll(features, target), features, layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = gradients(layer.nll(features, target), features, layer)
    torch.testing.assert_close(actual, wanted)


@each_layer
def test_extreme_norms(name):
    """Words, contexts and biases of 0, small and large: finite losses and gradients."""
    norms = torch.tensor([0, 1e-4, 1e-2, 1.0, 30.0, 1e3]).repeat(2).unsqueeze(1)
    layer = make(name, words=12, dtype=torch.float32)
    with torch.no_grad():
        layer.weight.copy_(nn.functional.normalize(layer.weight, dim=1) * norms)
    features = layer.weight.detach().clone().requires_grad_()
    for target in (torch.arange(12), torch.arange(12).flip(0)):
        loss = layer.nll(features, target)
        assert loss.isfinite() and layer(features).isfinite().all()
        assert all(gradient.isfinite().all() for gradient in gradients(loss, features, layer))


# the words' sums that evaluation keeps between batches


def change_by_optimizer(layer):
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    for parameter in layer.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()


def change_data(layer):
    """As fairseq's optimisers write."""
    for parameter in layer.parameters():
        parameter.data.mul_(1.5)


def change_bias_data(layer):
    layer.bias.data.mul_(1.5)


def change_weight_in_place(layer):
    with torch.no_grad():
        layer.weight[-1, -1] += 1


def change_by_load_state_dict(layer):
    layer.load_state_dict(make(layer.name, seed=5).state_dict())


def change_by_assignment(layer):
    layer.load_state_dict(make(layer.name, seed=5).state_dict(), assign=True)


def change_prior(layer):
    layer.set_log_prior(range(9))


CHANGES = [
    *(change_by_optimizer, change_data, change_bias_data, change_weight_in_place, change_by_load_state_dict),
    *(change_by_assignment, change_prior),
]


@pytest.mark.parametrize("trains", [False, True], ids=["stays in evaluation", "trains in between"])
@pytest.mark.parametrize("change", CHANGES)
@each_layer
def test_evaluation_after_a_change_of_the_parameters(name, change, trains):
    """Losses are those of the parameters as they are now."""
    layer = make(name).eval()
    features, target = inputs(layer)
    with torch.no_grad():
        before = layer.nll(features, target)
        if trains:
            layer.train()
        change(layer)
        if trains:
            layer.eval()
        expected = plain_loss(layer, features, target).sum()
        assert not before.isclose(expected)
        for _ in range(2):
            torch.testing.assert_close(layer.nll(features, target), expected)
            torch.testing.assert_close(layer(features), probabilities(layer, features).log())


@each_layer
def test_training_sees_every_change_of_data(name):
    """A row far down the matrix, written as fairseq's optimisers write: between evaluations, and in no_grad passes."""
    layer = make(name, words=40).eval()
    features, target = inputs(layer)
    target[0] = 39
    with torch.no_grad():
        layer.nll(features, target)
        layer.train()
        layer.weight.data[39] += 1
        torch.testing.assert_close(layer.eval().nll(features, target), plain_loss(layer, features, target).sum())
        layer.train()
        for _ in range(2):
            layer.weight.data[39] += 1
            torch.testing.assert_close(layer.nll(features, target), plain_loss(layer, features, target).sum())


def test_the_words_sums_are_computed_once_in_evaluation(monkeypatch):
    """And anew at every training step, and for another precision."""
    calls, gram = [], spherical_statistics.gram

    def counted(weight):
        calls.append(weight.dtype)
        return gram(weight)

    monkeypatch.setattr(spherical_statistics, "gram", counted)
    layer = make("taylor", dtype=torch.float32).eval()
    features, target = inputs(layer)
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


# checkpoints


def test_checkpoint_of_another_layer_is_refused():
    with pytest.raises(ValueError, match="'taylor'.*'spherical'"):
        make("spherical").load_state_dict(make("taylor").state_dict())


def test_checkpoint_of_another_epsilon_is_loaded_with_a_warning(caplog):
    """It is no parameter: the model's own is kept."""
    layer, other = make("spherical", seed=3), make("spherical", epsilon=0.5)
    layer.load_state_dict(other.state_dict())
    assert "epsilon=0.5" in caplog.text and f"epsilon={EPSILON}" in caplog.text
    assert layer.weight.equal(other.weight) and layer.function.epsilon == EPSILON
    assert layer.kind_version.equal(make("spherical").kind_version)


# wrong input


@each_layer
def test_label_smoothing_is_refused(name):
    layer = make(name)
    with pytest.raises(ValueError) as error:
        layer.nll(*inputs(layer), label_smoothing=0.1)
    said = str(error.value)
    assert "label_smoothing=0.1 is not allowed" in said and "every word" in said and "\n" not in said


@pytest.mark.parametrize("epsilon", [0, -1, 1e-50, math.inf, math.nan])
def test_wrong_epsilon(epsilon):
    with pytest.raises(ValueError, match=f"epsilon={epsilon:g} is not allowed.*> 0"):
        SphericalSoftmax(4, 5, epsilon=epsilon)


def test_epsilon():
    """The paper's for text by default; it is what an output of 0 has."""
    assert SphericalSoftmax(4, 5).function.epsilon == 0.0198
    layer = SphericalSoftmax(1, 2, bias=False, epsilon=3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0], [1.0]]))
    torch.testing.assert_close(layer(torch.ones(1)).exp(), torch.tensor([3 / 7, 4 / 7]))


@pytest.mark.parametrize(
    "features,target,options,said",
    [
        ((3, 5), [0, 1, 2], {}, ["(3, 5)", "embed_dim=6"]),
        ((3, 6), [0, 1], {}, ["(2,)", "(3, 6)"]),
        ((3, 6), [0, 9, 2], {}, ["target 9", "9"]),
        ((3, 6), [0, -1, 2], {"ignore_index": 1}, ["target -1", "9"]),
        ((3, 6), [0, 1, 2], {"reduction": "average"}, ["reduction='average'", "'sum'", "'mean'", "'none'"]),
    ],
)
def test_wrong_arguments(features, target, options, said):
    with pytest.raises(ValueError) as error:
        make("taylor").nll(torch.zeros(features, dtype=torch.float64), torch.tensor(target), **options)
    assert all(part in str(error.value) for part in said), str(error.value)


@each_layer
def test_wrong_sizes_and_counts(name):
    with pytest.raises(ValueError, match="embed_dim=0"):
        LAYERS[name](0, 5)
    with pytest.raises(ValueError, match="num_embeddings=2.5"):
        LAYERS[name](4, 2.5)
    with pytest.raises(ValueError, match="bias=True"):
        make(name, bias=False).set_log_prior([1] * 9)
    with pytest.raises(ValueError, match="4 counts.*9 words"):
        make(name).set_log_prior([1] * 4)
    with pytest.raises(ValueError, match="-3"):
        make(name).set_log_prior([-3] * 9)
