"""The output layer: log-probabilities and loss against the plain formula, memory, precision, and wrong input."""

import math
import subprocess
import sys

import pytest
import reference
import torch
import torch.nn.functional as F
from kernel_settings import EVERY, LEARNED, ids
from layer_checks import Memory, gradcheck, gradients, inputs
from torch import nn

from fairseq_kernels import KERNELS, GeneralizedSoftmax

ALL_LEARNED = ",".join(params for _, params in LEARNED)
# kernels, hyper-parameters, untied
MIXTURES = [
    ("3xlin,log", None, False),
    ("2xlin", None, True),
    ("lin,log,rbf", None, True),
    (",".join(KERNELS), None, False),
    (",".join(KERNELS), ALL_LEARNED, True),
    ("2xlog,mog,pol", ALL_LEARNED, False),
    ("2xrbf,3xlin", "rbf2.gamma=3,rbf1.scale=learned:2,lin1.scale=2,lin3.scale=4", False),
]
LAYERS = [*((name, params, False) for name, params in EVERY), *MIXTURES]
LAYER_IDS = [*ids(EVERY), *(f"{k}-{'untied' if u else 'tied'}{'-settings' if p else ''}" for k, p, u in MIXTURES)]
SOME = [("lin", None, False), ("log", "log.p=1.5", False), ("3xlin,log", None, False), ("lin,rbf,mog", None, True)]


def make(kernels="lin", params=None, untied=False, dim=6, words=9, dtype=torch.float64, seed=0, **options):
    """A layer all of whose parameters are random, the bias too."""
    torch.manual_seed(seed)
    layer = GeneralizedSoftmax(dim, words, kernels, untied=untied, kernel_params=params, **options).to(dtype)
    with torch.no_grad():
        for weight in layer.matrices():
            weight.mul_(1.5)
        if layer.bias is not None:
            layer.bias.normal_()
    return layer


# the distribution


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("kernels,params,untied", LAYERS, ids=LAYER_IDS)
def test_forward_is_the_plain_formula(kernels, params, untied, bias):
    """Log-probabilities of Eq. 1-3 with gradients, the rows of probabilities summing to 1."""
    layer = make(kernels, params, untied, bias=bias)
    features, _ = inputs(layer)
    log_p = layer(features)
    expected = reference.log_probabilities(layer, features)
    torch.testing.assert_close(log_p, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(7, dtype=torch.float64), rtol=0, atol=1e-12)
    weighting = torch.randn_like(log_p)
    ours, plain = (gradients((result * weighting).sum(), features, layer) for result in (log_p, expected))
    torch.testing.assert_close(ours, plain, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kernels,params", [("lin", None), ("ssg", "ssg.scale=learned"), ("log", "log.p=1.5")])
def test_a_single_kernel_with_a_latent_projection(kernels, params):
    """Log-probabilities, loss and gradients of S(W_v, tanh(C^T h)); no mixture weights."""
    layer = make(kernels, params, latent_projection="tanh")
    assert layer.latent_projection.shape == (1, 6, 6) and layer.prior_projection is None
    features, target = inputs(layer)
    torch.testing.assert_close(layer(features), reference.log_probabilities(layer, features), rtol=1e-10, atol=1e-10)
    ours, plain = layer.nll(features, target), reference.nll(layer, features, target).sum()
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(*(gradients(loss, features, layer) for loss in (ours, plain)), rtol=1e-8, atol=1e-9)
    assert layer.mixture_weights(features).equal(torch.ones(7, 1, dtype=torch.float64))


@pytest.mark.parametrize("kernels,params,untied", SOME)
def test_forward_without_gradients_is_the_same(kernels, params, untied):
    """In decoding, whatever the chunks."""
    layer = make(kernels, params, untied, memory_budget=1)
    features, _ = inputs(layer)
    with torch.no_grad():
        torch.testing.assert_close(layer(features), layer(features.detach().requires_grad_()), rtol=1e-12, atol=1e-12)
        expected = reference.log_probabilities(layer, features)
        torch.testing.assert_close(layer.eval()(features), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [(6,), (0, 6), (4, 6), (2, 3, 6), (2, 0, 6), (2, 1, 3, 6)])
def test_shapes(shape):
    """Any leading dimensions, none and empty ones included."""
    layer = make("2xlin,log")
    features = torch.randn(shape, dtype=torch.float64)
    target = torch.zeros(shape[:-1], dtype=torch.long)
    assert layer(features).shape == (*shape[:-1], 9)
    assert layer.mixture_weights(features).shape == (*shape[:-1], 3)
    assert layer.nll(features, target).shape == ()
    assert layer.nll(features, target, reduction="none").shape == target.shape


def test_non_contiguous_features():
    """As the LSTM gives them, (T, B, d) transposed."""
    layer = make("lin,log")
    features = torch.randn(4, 3, 6, dtype=torch.float64).transpose(0, 1)
    target = torch.randint(9, (4, 3)).t()
    torch.testing.assert_close(layer(features), layer(features.contiguous()))
    torch.testing.assert_close(layer.nll(features, target), layer.nll(features.contiguous(), target.contiguous()))


def test_mixture_weights():
    """pi = softmax(M^T h), ones for a single kernel."""
    layer = make("2xlin,log")
    features, _ = inputs(layer)
    torch.testing.assert_close(layer.mixture_weights(features), torch.softmax(features @ layer.prior_projection, -1))
    assert make("log").mixture_weights(features).equal(torch.ones(7, 1, dtype=torch.float64))


@pytest.mark.parametrize("name", KERNELS)
def test_single_kernels_have_as_many_parameters_as_lin(name):
    """Section 4.2: "the exact same number of parameters"."""

    def size(kernels, bias):
        return sum(p.numel() for p in GeneralizedSoftmax(8, 10, kernels, bias=bias).parameters())

    assert size(name, True) == size("lin", True) == 10 * 8 + 10
    assert size(name, False) == 10 * 8


def test_parameters_of_mixtures():
    """K maps d x d and M (d, K); one matrix if tied, K if not."""
    sizes = [sum(p.numel() for p in GeneralizedSoftmax(8, 10, "3xlin", untied=u).parameters()) for u in (False, True)]
    assert sizes == [80 + 10 + 3 * 64 + 24, 3 * 80 + 10 + 3 * 64 + 24]


def test_initialisation_is_the_stock_layer_s():
    """Deviation d^-1/2 as fairseq's output_projection, biases 0."""
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(64, 2000, "2xlin", untied=True)
    for matrix in layer.matrices():
        assert matrix.std().item() == pytest.approx(64**-0.5, rel=0.02)  # of 128,000 draws: 0.2 % deviation
    assert layer.bias.eq(0).all()


def test_component_names():
    assert GeneralizedSoftmax(4, 5, "2xlin,log").component_names() == ["lin1", "lin2", "log"]
    assert GeneralizedSoftmax(4, 5, "lin,log,lin").component_names() == ["lin1", "log", "lin2"]


def test_log_prior():
    """With W = 0, p is the prior of the counts, one added to each."""
    layer = GeneralizedSoftmax(4, 3)
    layer.set_log_prior([0, 2, 5])
    nn.init.zeros_(layer.weight)
    torch.testing.assert_close(layer(torch.ones(4)).exp(), torch.tensor([0.1, 0.3, 0.6]))


# the loss


def check_nll(layer, features, target, smoothing=0.0, ignore_index=None):
    """nll and its gradients against the plain formula's, as a sum and token by token."""
    expected = reference.nll(layer, features.view(-1, layer.embed_dim), target.view(-1), ignore_index, smoothing)
    total = layer.nll(features, target, ignore_index=ignore_index, label_smoothing=smoothing)
    each = layer.nll(features, target, ignore_index=ignore_index, label_smoothing=smoothing, reduction="none")
    torch.testing.assert_close(total, expected.sum(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(each.view(-1), expected, rtol=1e-10, atol=1e-10)
    weighting = torch.linspace(-1, 2, each.numel(), dtype=torch.float64)
    pairs = [(total, expected.sum()), ((each.view(-1) * weighting).sum(), (expected * weighting).sum())]
    for ours, plain in pairs:
        actual, wanted = gradients(ours, features, layer), gradients(plain, features, layer)
        actual, wanted = ([torch.zeros(()) if g is None else g for g in group] for group in (actual, wanted))
        torch.testing.assert_close(actual, wanted, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("kernels,params,untied", LAYERS, ids=LAYER_IDS)
def test_nll_is_the_plain_formula(kernels, params, untied, bias, smoothing):
    """Loss and gradients, with padding and label smoothing, in chunks that don't divide the tokens."""
    layer = make(kernels, params, untied, bias=bias)
    layer.memory_budget = 3 * layer.row_bytes(torch.float64)
    features, target = inputs(layer)
    target[2] = target[5] = 1
    check_nll(layer, features, target, smoothing, ignore_index=1)


@pytest.mark.parametrize("seed", range(8))
def test_nll_of_random_shapes(seed):
    generator = torch.Generator().manual_seed(seed)

    def draw(low, high):
        return int(torch.randint(low, high, (1,), generator=generator))

    kernels, params, untied = MIXTURES[draw(0, len(MIXTURES))] if seed % 2 else LAYERS[draw(0, len(EVERY))]
    layer = make(kernels, params, untied, dim=draw(6, 12), words=draw(2, 30), seed=seed)
    layer.memory_budget = draw(1, 10) * layer.row_bytes(torch.float64)
    shape = (draw(1, 6), draw(1, 6))
    features = torch.randn(*shape, layer.embed_dim, dtype=torch.float64, generator=generator).requires_grad_()
    target = torch.randint(layer.num_embeddings, shape, generator=generator)
    check_nll(layer, features, target, smoothing=(0.0, 0.05, 0.7)[seed % 3])


@pytest.mark.parametrize("rows", [1, 2, 7, 14, 1000])
@pytest.mark.parametrize("kernels,params,untied", SOME)
def test_the_memory_budget_changes_nothing(kernels, params, untied, rows):
    """Chunks of one token, that divide N, and larger than N."""
    layer, whole = (make(kernels, params, untied) for _ in range(2))
    layer.memory_budget = rows * layer.row_bytes(torch.float64)
    features, target = inputs(layer, tokens=14)
    for smoothing in (0.0, 0.1):
        ours, plain = (a.nll(features, target, label_smoothing=smoothing) for a in (layer, whole))
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            gradients(ours, features, layer), gradients(plain, features, whole), rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kernels,params,untied", SOME)
def test_nll_is_minus_the_gathered_log_probabilities(kernels, params, untied, smoothing):
    """... and fairseq's own label-smoothed loss of them."""
    from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

    layer = make(kernels, params, untied)
    features, target = inputs(layer)
    target[3] = 0
    loss, metrics = layer.nll(features, target, ignore_index=0, label_smoothing=smoothing, return_metrics=True)
    nll = metrics["nll"].sum()
    log_p = layer(features)
    real = target != 0
    torch.testing.assert_close(nll, -log_p[real].gather(1, target[real].unsqueeze(1)).sum(), rtol=1e-11, atol=0)
    stock = label_smoothed_nll_loss(log_p, target, smoothing, ignore_index=0)
    torch.testing.assert_close((loss, nll), stock, rtol=1e-11, atol=0)
    torch.testing.assert_close(
        gradients(loss, features, layer), gradients(stock[0], features, layer), rtol=1e-8, atol=1e-10
    )
    assert not nll.requires_grad


@pytest.mark.parametrize("kernels", ["pow", "2xlin,mog"])
@pytest.mark.parametrize("smoothing,reduction", [(0.0, "sum"), (0.2, "sum"), (0.2, "none")])
def test_gradcheck_of_nll(kernels, smoothing, reduction):
    """Against finite differences, learned hyper-parameters included."""
    layer = make(kernels, "pow.p=learned,pow.gamma=learned,mog.floor=learned,lin.scale=learned", dim=4, words=4)
    layer.memory_budget = 2 * layer.row_bytes(torch.float64)
    features, target = inputs(layer, tokens=3)
    options = {"label_smoothing": smoothing, "reduction": reduction}
    assert gradcheck(layer, features, lambda layer, features: layer.nll(features, target, **options))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kernels,params,untied", SOME)
@pytest.mark.parametrize("tokens,ignored", [(0, False), (3, True)], ids=["no tokens", "all ignored"])
def test_nothing_to_learn_from(kernels, params, untied, tokens, ignored, smoothing):
    """No tokens, or padding only (fairseq's dummy batches): loss 0 and gradients 0."""
    layer = make(kernels, params, untied)
    features, target = inputs(layer, tokens=tokens)
    target.fill_(4)
    loss = layer.nll(features, target, ignore_index=4 if ignored else None, label_smoothing=smoothing)
    assert loss.item() == 0
    loss.backward()
    assert all(tensor.grad.eq(0).all() for tensor in [features, *layer.parameters()])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", KERNELS)
def test_one_word(name, smoothing):
    """V = 1: the word is certain, its log-probability 0, and so are the loss, however smoothed, and its gradients."""
    layer = make(name, words=1)
    features, _ = inputs(layer)
    assert layer(features).abs().max() < 1e-12
    loss = layer.nll(features, torch.zeros(7, dtype=torch.long), label_smoothing=smoothing)
    assert abs(loss.item()) < 1e-12
    assert all(g is None or g.abs().max() < 1e-12 for g in gradients(loss, features, layer))


def test_one_word_of_a_mixture():
    layer = make("2xlin,log", words=1)
    features, target = inputs(layer)
    for smoothing in (0.0, 0.1):
        loss = layer.nll(features, target, label_smoothing=smoothing)
        assert abs(loss.item()) < 1e-12
        assert all(g.abs().max() < 1e-12 for g in gradients(loss, features, layer))


# autograd's uses of the loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kernels,params,untied", SOME)
def test_incoming_gradients_scale(kernels, params, untied, smoothing):
    """(1000 loss).backward(), as of a loss scaler, and a second backward on the same graph."""
    layer = make(kernels, params, untied)
    features, target = inputs(layer)
    loss = layer.nll(features, target, label_smoothing=smoothing)
    once = [g.clone() for g in torch.autograd.grad(loss, [features, *layer.parameters()], retain_graph=True)]
    again = torch.autograd.grad(1000 * loss, [features, *layer.parameters()])
    torch.testing.assert_close(again, tuple(1000 * g for g in once), rtol=1e-10, atol=1e-10)
    fresh = torch.autograd.grad(
        1000 * layer.nll(features, target, label_smoothing=smoothing), [features, *layer.parameters()]
    )
    torch.testing.assert_close(fresh, again, rtol=1e-10, atol=1e-10)


def test_gradients_accumulate():
    """Two backward passes add up in .grad, as of --update-freq 2; so does a second one on a kept graph."""
    layer = make("lin,log")
    features, target = inputs(layer)
    once = gradients(layer.nll(features, target), features, layer)
    layer.nll(features, target).backward()
    loss = layer.nll(features, target)
    loss.backward(retain_graph=True)
    loss.backward()
    for tensor, gradient in zip([features, *layer.parameters()], once):
        torch.testing.assert_close(tensor.grad, 3 * gradient)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kernels,params,untied", SOME)
def test_validation_computes_no_gradients(kernels, params, untied, mode):
    """The same loss and log-probabilities, without a graph."""
    layer = make(kernels, params, untied)
    features, target = inputs(layer)
    expected = layer.nll(features, target, label_smoothing=0.1).item()
    with mode():
        loss = layer.nll(features, target, label_smoothing=0.1)
        log_p = layer(features)
    assert not loss.requires_grad and not log_p.requires_grad
    assert loss.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("frozen", ["weight", "bias", "latent_projection", "features"])
def test_frozen_parts(frozen):
    """What doesn't ask for a gradient gets none; the others get theirs."""
    layer = make("2xlin,log")
    features, target = inputs(layer)
    named = {"features": features, **dict(layer.named_parameters())}
    wanted = dict(zip(named, torch.autograd.grad(layer.nll(features, target), list(named.values()))))
    named[frozen].requires_grad_(False)
    layer.nll(features, target).backward()
    for name, tensor in named.items():
        if name == frozen:
            assert tensor.grad is None
        else:
            torch.testing.assert_close(tensor.grad, wanted[name])


def test_components_that_share_a_kernel():
    """With one learned value: the plain formula's gradient, and it goes on being learned."""
    layer = make("2xrbf", "rbf.gamma=learned")
    layer.kernels[1] = layer.kernels[0]
    gamma = layer.kernels[0]._real.gamma
    features, target = inputs(layer)
    for reduction in ("sum", "none"):
        loss = layer.nll(features, target, reduction=reduction).sum()
        plain = F.nll_loss(layer(features), target, reduction="sum")
        torch.testing.assert_close(gradients(loss, features, layer), gradients(plain, features, layer))
        assert layer.kernels[0]._real.gamma is gamma


def test_everything_frozen(monkeypatch):
    layer = make("lin,log").requires_grad_(False)
    features, target = inputs(layer)
    with monkeypatch.context() as patched:  # nor is a gradient computed
        patched.setattr(torch.autograd, "grad", None)
        assert not layer.nll(features.detach(), target).requires_grad
    layer.nll(features, target).backward()
    assert features.grad.abs().sum() > 0


def test_weight_shared_with_an_embedding():
    """The gradient of the shared matrix is the sum of both uses'."""
    layer = make("log,lin")
    embedding = nn.Embedding(9, 6, dtype=torch.float64)
    layer.weight = embedding.weight
    words, target = torch.tensor([3, 1, 8, 3]), torch.tensor([2, 1, 4, 3])
    features = torch.tanh(embedding(words))
    loss, plain = layer.nll(features, target), reference.nll(layer, features, target).sum()
    actual, wanted = (torch.autograd.grad(value, layer.parameters(), retain_graph=True) for value in (loss, plain))
    torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-10)


def test_training_moves_every_parameter():
    """A few steps of Adam lower the loss; learned hyper-parameters move too."""
    layer = make("lin,rbf,wav", "rbf.gamma=learned,rbf.scale=learned:10,wav.a=learned")
    features, target = inputs(layer, tokens=30)
    before = {name: p.detach().clone() for name, p in layer.named_parameters()}
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = layer.nll(features.detach(), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(not p.equal(before[name]) for name, p in layer.named_parameters())


# precision


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_learned_values_keep_their_precision(precision):
    """Their gradients, sums over all tokens, overflow float16."""
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(16, 50, "lin", kernel_params="lin.scale=learned:0.3")
    layer.weight.data.mul_(30)
    features, target = 30 * torch.randn(2000, 16), torch.randint(50, (2000,))
    before = [value.item() for value in layer.kernels.parameters()]
    layer.to(precision).nll(features, target).backward()
    for value, number in zip(layer.kernels.parameters(), before):
        assert value.dtype == torch.float32 and value.item() == number and value.grad.isfinite()
    assert max(value.grad.abs() for value in layer.kernels.parameters()) > 65504
    assert layer.double().kernels[0].value("scale").dtype == torch.float64


@pytest.mark.parametrize("given,result", [(torch.float64, torch.float64), (torch.float32, torch.float32),
                                          (torch.float16, torch.float32), (torch.bfloat16, torch.float32)])  # fmt: skip
@pytest.mark.parametrize("kernels", ["lin", "2xlin,log"])
def test_precision_of_the_results(kernels, given, result):
    """float64 stays float64; half precision gives float32."""
    layer = make(kernels, dtype=given)
    features, target = inputs(layer)
    assert layer(features).dtype == result
    assert layer.mixture_weights(features).dtype == result
    for reduction in ("sum", "none"):
        loss = layer.nll(features, target, label_smoothing=0.1, reduction=reduction)
        assert loss.dtype == result
    assert [g.dtype for g in gradients(layer.nll(features, target), features, layer)] == [given] * (
        1 + len(list(layer.parameters()))
    )
    with torch.no_grad():
        assert layer(features).dtype == result


@pytest.mark.parametrize("given", [torch.float16, torch.bfloat16])
def test_half_precision_features_of_a_float32_layer(given):
    """As under autocast: computed in float32 from the features as they are."""
    layer = make("2xlin,log", dtype=torch.float32)
    features, target = inputs(layer, dtype=given)
    with torch.autocast("cpu", dtype=given):
        loss, log_p = layer.nll(features, target), layer(features)
    torch.testing.assert_close(loss, layer.nll(features.float(), target), rtol=1e-6, atol=0)
    torch.testing.assert_close(log_p, layer(features.float()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kernels,params,untied", LAYERS, ids=LAYER_IDS)
def test_float32_loss_and_gradients_agree_with_float64(kernels, params, untied):
    """At ordinary norms, to some 100 roundings."""
    double = make(kernels, params, untied)
    single = make(kernels, params, untied, dtype=torch.float32)
    single.load_state_dict(double.state_dict())
    features, target = inputs(double, tokens=20)
    for smoothing in (0.0, 0.1):
        expected = double.nll(features, target, label_smoothing=smoothing)
        low = features.detach().float().requires_grad_()
        loss = single.nll(low, target, label_smoothing=smoothing)
        torch.testing.assert_close(loss.double(), expected, rtol=2e-5, atol=0)
        actual, wanted = gradients(loss, low, single), gradients(expected, features, double)
        # pow's p = 8 has gradients up to 1e5, and a sum over tokens may cancel: relative to the largest entry
        largest = max(float(gradient.abs().max()) for gradient in wanted)
        for ours, exact in zip(actual, wanted):
            torch.testing.assert_close(ours.double(), exact, rtol=1e-3, atol=1e-5 * largest)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kernels,params,untied", LAYERS, ids=LAYER_IDS)
def test_extreme_norms(kernels, params, untied, smoothing):
    """Norms 0 and 1e-4 to 1e3 of words and contexts, and contexts that are words: finite loss and gradients."""
    layer = make(kernels, params, untied, words=12, dtype=torch.float32)
    norms = torch.tensor([0, 1e-4, 1e-2, 1.0, 30.0, 1e3]).repeat(2).unsqueeze(1)
    with torch.no_grad():
        for matrix in layer.matrices():
            matrix.copy_(nn.functional.normalize(matrix, dim=1) * norms)
    features = layer.weight.detach().clone().requires_grad_()
    for target in (torch.arange(12), torch.arange(12).flip(0)):  # the likely word and a most unlikely one
        for reduction in ("sum", "none"):
            loss = layer.nll(features, target, label_smoothing=smoothing, reduction=reduction)
            assert loss.isfinite().all()
            actual = gradients(loss.sum(), features, layer)
            assert all(gradient.isfinite().all() for gradient in actual)
    with torch.no_grad():
        assert layer(features).isfinite().all()


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("kernels", ["lin", "2xlin"])
def test_large_scores_lose_no_digits(kernels, learns):
    """Of words that are all alike each has 1 / V, however large its score."""
    layer = GeneralizedSoftmax(6, 7, kernels, bias=False)
    nn.init.constant_(layer.weight, 1e5)
    with torch.set_grad_enabled(learns):
        nll = layer.nll(torch.randn(9, 6), torch.arange(9) % 7, reduction="none")
    torch.testing.assert_close(nll, torch.full((9,), math.log(7)))


def test_fp16_loss_scale_comes_before_rounding():
    """Gradients that would underflow float16 survive when the loss is scaled, as fairseq's trainer does."""
    layer = make("lin,log", dtype=torch.float16)
    features, target = inputs(layer)
    (layer.nll(features, target) * 1e-7 * 2.0**23).backward()
    exact = make("lin,log", dtype=torch.float32)
    exact.load_state_dict(layer.state_dict())
    reference_features = features.detach().float().requires_grad_()
    exact.nll(reference_features, target).backward()
    wanted = reference_features.grad * 1e-7 * 2.0**23
    torch.testing.assert_close(features.grad.float(), wanted, rtol=2e-3, atol=1e-6)  # float16's 2^-11


# memory


@pytest.mark.parametrize("smoothing,reduction", [(0.0, "sum"), (0.1, "sum"), (0.1, "none")])
@pytest.mark.parametrize(
    "kernels,untied", [*((name, False) for name in KERNELS), ("3xlin,log", False), ("lin,log,mog", True)]
)
def test_no_tensor_of_tokens_by_words(kernels, untied, reduction, smoothing):
    """Loss and backward make no tensor larger than the budget or the features, and keep within the budget nearly."""
    tokens, words, dim, budget = 400, 200, 4, 60_000
    layer = make(kernels, untied=untied, dim=dim, words=words, dtype=torch.float32, memory_budget=budget)
    features, target = inputs(layer, tokens=tokens)
    known = [features, *layer.parameters()]
    with Memory(*known, target) as memory:
        loss = layer.nll(features, target, ignore_index=1, label_smoothing=smoothing, reduction=reduction)
        loss.sum().backward()
    assert 4 * tokens * words > 5 * budget  # the test can tell
    assert memory.numel <= max(budget // 4, tokens * dim), memory.operation
    # copies and gradients of what is given; and the budget is an estimate of what a kernel holds
    assert memory.peak < 3 * sum(4 * tensor.numel() for tensor in known) + 4 * budget


@pytest.mark.parametrize("kernels,params", [*((name, "") for name in KERNELS), ("mog", "mog.components=3")])
def test_a_token_s_share_of_the_budget(kernels, params):
    """As many scores as ``score_buffers`` says: a kernel may hold one more, and not many fewer."""
    words, peaks = 2000, []
    for rows in (8, 16):
        layer = make(kernels, params, dim=13, words=words, dtype=torch.float32)
        layer.memory_budget = rows * layer.row_bytes(torch.float32)
        features, target = inputs(layer, tokens=64)
        with Memory(features, target, *layer.parameters()) as memory:
            layer.nll(features, target)
        peaks.append(memory.peak)
    buffers = (peaks[1] - peaks[0]) / (8 * words * 4)
    assert -3.5 < buffers - sum(kernel.score_buffers() for kernel in layer.components()) < 1.5


@pytest.mark.parametrize("kernels", [*KERNELS, "3xlin,log"])
def test_decoding_keeps_within_the_budget_too(kernels):
    """Without gradients, forward makes the (N, V) result and no other tensor of its size."""
    tokens, words, budget = 600, 200, 40_000
    layer = make(kernels, dim=4, words=words, dtype=torch.float32, memory_budget=budget).eval()
    features, _ = inputs(layer, tokens=tokens)
    with torch.no_grad(), Memory(features, *layer.parameters()) as memory:
        layer(features)
    assert memory.peak < 4 * tokens * words + 6 * budget


# the word terms that decoding keeps between steps


def change_by_optimizer(layer):
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def change_by_adam(layer):
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.5)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def change_by_fairseq_adam(layer):
    """Which, as fairseq's other optimisers and its fp16 ones, writes through ``parameter.data``."""
    from fairseq.optim.adam import Adam

    optimizer = Adam(layer.parameters(), lr=0.5)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def change_in_place(layer):
    with torch.no_grad():
        layer.weight.mul_(2)


def change_by_load_state_dict(layer):
    layer.load_state_dict(make("log,rbf,hpb", "rbf.gamma=learned", seed=5, dtype=layer.weight.dtype).state_dict())


def change_by_assignment(layer):
    layer.load_state_dict(
        make("log,rbf,hpb", "rbf.gamma=learned", seed=5, dtype=layer.weight.dtype).state_dict(), assign=True
    )


def change_precision(layer):
    layer.double()


def change_learned(layer):
    with torch.no_grad():
        for kernel in layer.kernels:
            for parameter in kernel.parameters():
                parameter.add_(1)


CHANGES = [
    *(change_by_optimizer, change_by_adam, change_by_fairseq_adam, change_in_place, change_learned),
    *(change_by_load_state_dict, change_by_assignment, change_precision),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("trains", [False, True], ids=["stays in eval", "trains in between"])
def test_decoding_after_a_change_of_the_parameters(change, trains):
    """Decoding uses the parameters as they are now; ``eval()`` is called after what writes through ``.data``."""
    trains |= change is change_by_fairseq_adam
    layer = make("log,rbf,hpb", "rbf.gamma=learned", dtype=torch.float32).eval()
    features, _ = inputs(layer)
    with torch.no_grad():
        layer(features)
    if trains:
        layer.train()
    change(layer)
    if trains:
        layer.eval()
    features = features.detach().to(layer.weight.dtype)
    with torch.no_grad():
        decoded = layer(features)
    torch.testing.assert_close(decoded, layer(features).detach(), rtol=1e-5, atol=1e-5)


def test_decoding_of_half_precision_after_a_change():
    layer = make("log", dtype=torch.float16).eval()
    features, _ = inputs(layer)
    with torch.no_grad():
        layer(features)
        layer.weight.mul_(2)
        decoded = layer(features)
    torch.testing.assert_close(decoded, layer(features).detach(), rtol=1e-5, atol=1e-5)


# wrong input


@pytest.mark.parametrize(
    "options,said",
    [
        ({"embed_dim": 0}, ["embed_dim=0", ">= 1"]),
        ({"embed_dim": 2.5}, ["embed_dim=2.5", "integer"]),
        ({"embed_dim": 6.0}, ["embed_dim=6.0", "integer"]),
        ({"memory_budget": 1e6}, ["memory_budget=1000000.0", "integer"]),
        ({"num_embeddings": float("nan")}, ["num_embeddings=nan", "integer"]),
        ({"num_embeddings": -3}, ["num_embeddings=-3", ">= 1"]),
        ({"memory_budget": 0}, ["memory_budget=0", ">= 1"]),
        ({"memory_budget": -1}, ["memory_budget=-1", ">= 1"]),
    ],
)
def test_wrong_sizes(options, said):
    with pytest.raises(ValueError) as error:
        GeneralizedSoftmax(**{"embed_dim": 4, "num_embeddings": 5, **options})
    assert all(part in str(error.value) for part in said), str(error.value)


@pytest.mark.parametrize(
    "features,target,options,said",
    [
        ((3, 5), [0, 1, 2], {}, ["(3, 5)", "embed_dim=6"]),
        ((), [], {}, ["()"]),
        ((3, 6), [0, 1], {}, ["(2,)", "(3, 6)"]),
        ((3, 6), [[0, 1, 2]], {}, ["(1, 3)", "(3, 6)"]),
        ((3, 6), [0, 9, 2], {}, ["target 9", "9"]),
        ((3, 6), [0, -1, 2], {}, ["target -1", "9"]),
        ((3, 6), [0, -100, 2], {"ignore_index": 1}, ["target -100", "9"]),
        ((3, 6), [0, 1, 2], {"label_smoothing": 1.0}, ["label_smoothing=1", "below 1"]),
        ((3, 6), [0, 1, 2], {"label_smoothing": -0.1}, ["label_smoothing=-0.1", "at least 0"]),
        ((3, 6), [0, 1, 2], {"label_smoothing": float("nan")}, ["label_smoothing=nan"]),
        ((3, 6), [0, 1, 2], {"reduction": "average"}, ["reduction='average'", "'sum'", "'mean'", "'none'"]),
    ],
)
def test_wrong_arguments_of_the_loss(features, target, options, said):
    layer = make()
    with pytest.raises(ValueError) as error:
        layer.nll(torch.zeros(features, dtype=torch.float64), torch.tensor(target, dtype=torch.long), **options)
    assert all(part in str(error.value) for part in said), str(error.value)


def test_wrong_shape_of_forward():
    with pytest.raises(ValueError, match=r"\(3, 5\).*embed_dim=6"):
        make()(torch.zeros(3, 5, dtype=torch.float64))


def test_wrong_counts():
    with pytest.raises(ValueError, match="bias=True"):
        make(bias=False).set_log_prior([1] * 9)
    with pytest.raises(ValueError, match="4 counts.*9 words"):
        make().set_log_prior([1] * 4)


def test_ignored_targets_need_not_be_words():
    """-100, as of torch's losses."""
    layer = make("lin,log")
    features, target = inputs(layer)
    wanted = layer.nll(features[1:], target[1:]).item()
    target[0] = -100
    assert layer.nll(features, target, ignore_index=-100).item() == pytest.approx(wanted, rel=1e-12)


# without fairseq


def test_layers_import_without_fairseq():
    """In a plain PyTorch program, where fairseq is not installed."""
    program = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("fairseq", "fairseq_cli", "omegaconf", "hydra"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
sys.modules["fairseq"] = None
import torch
from fairseq_kernels import KERNELS, GeneralizedSoftmax
layer = GeneralizedSoftmax(8, 11, "3xlin,log")
loss = layer.nll(torch.randn(4, 8), torch.arange(4))
loss.backward()
assert layer(torch.randn(4, 8)).exp().sum(-1).allclose(torch.ones(4))
assert not [name for name in sys.modules if name.startswith(("fairseq.", "omegaconf", "hydra"))]
print(len(KERNELS))
"""
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(len(KERNELS))
