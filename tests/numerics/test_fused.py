"""The fused Functions against their kernels' formulas; the buffer rule; kernels that are formulas alone."""

import pytest
import torch
from kernel_settings import EVERY, build, ids
from layer_checks import gradients, leaves

from fairseq_kernels import KERNELS, GeneralizedSoftmax, Hyperparameter, Kernel, register_kernel
from fairseq_kernels.kernels import Linear, Logarithm
from fairseq_kernels.kernels.spec import build_kernels

DIM = 6


def terms_of(kernel, words=5, contexts=3, seed=4):
    """Products, word terms and context terms of random vectors, as leaves."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(words + contexts, DIM, generator=generator, dtype=torch.float64)
    weight, contexts = draw[:words], draw[words:]
    with torch.no_grad():
        products = [query @ weight[:, columns].T for query, columns in kernel.queries(contexts)]
        groups = products, kernel.word_terms(weight), kernel.context_terms(contexts)
    return [leaves(*group) for group in groups]


@pytest.mark.parametrize("name,params", EVERY, ids=ids(EVERY))
def test_fused_scores_are_the_formula_s(name, params):
    """Scores, and gradients of products, word terms, context terms and learned values; the terms are left alone."""
    kernel = build(name, params, DIM)
    groups, copies = terms_of(kernel), terms_of(kernel)
    expected = kernel.scores(*groups)
    upstream = torch.randn(expected.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    wanted = gradients((expected * upstream).sum(), *sum(groups, []), *kernel.parameters())
    # products that are no leaves: Functions may overwrite them
    products = [product * 1 for product in copies[0]]
    scores = kernel.fused_scores(products, *copies[1:], [])
    torch.testing.assert_close(scores.values, expected, rtol=1e-13, atol=1e-14)
    ours = gradients((scores.values * upstream).sum(), *sum(copies, []), *kernel.parameters())
    torch.testing.assert_close(ours, wanted, rtol=1e-10, atol=1e-12)
    for group, untouched in zip(copies[1:], terms_of(kernel)[1:]):
        torch.testing.assert_close(group, untouched, rtol=0, atol=0)


# kernels that are formulas alone: tanh, exp and products keep what they have computed for backward


class Tanh(Kernel):
    """tanh(g), which autograd's backward reads."""

    name = "tanh"

    def similarity(self, products, words, contexts):
        return torch.tanh(products[0])


class Laplace(Kernel):
    """exp(-gamma ||W - h||): as the docstring of Kernel says, with learned values."""

    name = "laplace"
    hyperparameters = (Hyperparameter("gamma", 0.5, "positive"),)

    def word_terms(self, weight):
        return (weight.square().sum(1),)

    def context_terms(self, contexts):
        return (contexts.square().sum(1, keepdim=True),)

    def similarity(self, products, words, contexts):
        distance = (words[0] + contexts[0] - 2 * products[0]).clamp_min(1e-9).sqrt()
        return torch.exp(-self.value("gamma") * distance)


class Twice(Kernel):
    """Two products, one of half the coordinates."""

    name = "twice"

    def queries(self, contexts):
        return [(contexts, slice(None)), (contexts[:, :3], slice(0, 3))]

    def similarity(self, products, words, contexts):
        return products[0] * torch.sigmoid(products[1])


class Changed(Logarithm):
    """A subclass that changes the formula alone: its parent's fused Function must not be used."""

    name = "changed"

    def similarity(self, products, words, contexts):
        return -torch.log1p(words[0] + contexts[0] - 2 * products[0]) / 3


class Same(Linear):
    """The product itself."""

    name = "same"


class Counted(Kernel):
    """A word term of integers: how many coordinates are positive."""

    name = "counted"

    def word_terms(self, weight):
        return ((weight > 0).sum(1),)

    def similarity(self, products, words, contexts):
        return products[0] * words[0] / 3


class Frequency(Kernel):
    """A word's own number, whatever the context."""

    name = "frequency"

    def word_terms(self, weight):
        return (weight.square().sum(1),)

    def similarity(self, products, words, contexts):
        return words[0].expand_as(products[0])


class Cosine(Kernel):
    """W_v . h / ||W_v||"""

    name = "cosine"

    def word_terms(self, weight):
        return (weight.norm(dim=1),)

    def similarity(self, products, words, contexts):
        return products[0] / words[0]


class InPlace(Cosine):
    """The same, in the products' place."""

    name = "inplace"

    def similarity(self, products, words, contexts):
        return products[0].div_(words[0])


OWN = [Tanh, Laplace, Twice, Changed, Same, Counted, Frequency, InPlace]


@pytest.fixture(params=OWN, ids=lambda kernel: kernel.name)
def own(request, monkeypatch):
    """A kernel of a user's, registered for the test."""
    monkeypatch.setattr("fairseq_kernels.kernels.base.KERNELS", KERNELS)
    monkeypatch.setitem(KERNELS, request.param.name, request.param)
    return request.param


def layer_and_input(kernels, params=None, bias=True, **options):
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(DIM, 9, kernels, kernel_params=params, bias=bias, **options).double()
    layer.memory_budget = 3 * layer.work_space().numbers * 8
    return layer, torch.randn(7, DIM, dtype=torch.float64, requires_grad=True), torch.randint(9, (7,))


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("mixture", ["{}", "2x{}", "lin,{},rbf", "log,2x{},mog,lin"])
def test_own_kernels_loss_is_autograd_s(own, mixture, smoothing, bias):
    """nll against the log-probabilities of forward, alone and beside kernels with fused Functions."""
    layer, features, target = layer_and_input(mixture.format(own.name), bias=bias)
    inputs = [features, *layer.parameters()]
    log_p = layer(features)
    plain = -(1 - smoothing - smoothing / 8) * log_p.gather(1, target.unsqueeze(1)).sum() - smoothing / 8 * log_p.sum()
    loss = layer.nll(features, target, label_smoothing=smoothing)
    torch.testing.assert_close(loss, plain, rtol=1e-11, atol=1e-11)
    wanted, ours = gradients(plain, *inputs), gradients(loss, *inputs)
    torch.testing.assert_close(ours, wanted, rtol=1e-8, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(layer.nll(features, target, label_smoothing=smoothing), plain, rtol=1e-11, atol=0)
        torch.testing.assert_close(layer.eval()(features), log_p, rtol=1e-11, atol=1e-11)


class Precise(Kernel):
    """Computes in float64, whatever the layer does."""

    name = "precise"

    def queries(self, contexts):
        return [(contexts.double(), slice(None))]

    def similarity(self, products, words, contexts):
        return products[0].double().tanh()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("mixture", ["precise", "log,precise"])
def test_a_formula_in_another_precision(mixture, smoothing, monkeypatch):
    monkeypatch.setitem(KERNELS, "precise", Precise)
    layer, features, target = layer_and_input(mixture)
    wanted = layer.nll(features, target, label_smoothing=smoothing)
    layer, features = layer.float(), features.detach().float().requires_grad_()
    loss = layer.nll(features, target, label_smoothing=smoothing)
    loss.backward()
    assert loss.dtype == layer(features).dtype == torch.float32
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-6, atol=0)


def test_decoding_notices_a_changed_buffer(monkeypatch):
    class Annealed(Cosine):
        def __init__(self, embed_dim, **values):
            super().__init__(embed_dim, **values)
            self.register_buffer("temperature", torch.tensor(1.0))

        def word_terms(self, weight):
            return (weight.norm(dim=1) * self.temperature,)

    monkeypatch.setitem(KERNELS, "cosine", Annealed)
    layer, features, target = layer_and_input("cosine")
    with torch.no_grad():
        layer.eval()(features)
        layer.kernels[0].temperature.fill_(5.0)
        decoded = -layer(features).gather(1, target.unsqueeze(1)).sum()
        torch.testing.assert_close(decoded, layer.nll(features, target))


# NaN


@pytest.mark.parametrize("name,params", EVERY, ids=ids(EVERY))
def test_nan_stays_nan(name, params):
    """A broken word vector, or a counted token's features, give NaN; an ignored token's harms nobody."""
    layer, features, target = layer_and_input(name, params)
    for mask in ("features", "weight"):
        broken = features.detach().clone()
        if mask == "features":
            broken[2, 0] = torch.nan
        else:
            with torch.no_grad():
                layer.weight[4] = torch.nan
        loss = layer.nll(broken.requires_grad_(), target)
        with torch.no_grad():
            assert loss.isnan() and layer.nll(broken, target).isnan()
            assert layer(broken)[2].isnan().all()
        [gradient] = torch.autograd.grad(loss, broken)
        assert gradient[2].isnan().any()
        if mask == "features":
            ignored = target.clone()
            ignored[2] = -1
            assert layer.nll(broken, ignored, ignore_index=-1).isfinite()


@pytest.mark.parametrize("name,params", [("rbf", "gamma"), ("wav", "a"), ("wav", "b")])
def test_learned_values_far_from_all_words(name, params):
    """The exponential stands for 0 there, times whichever distance."""
    layer = GeneralizedSoftmax(DIM, 9, name, kernel_params={name: {params: "learned"}})
    with torch.no_grad():
        layer.weight *= 1e14
    layer.nll(torch.randn(7, DIM), torch.arange(7)).backward()
    [learned] = layer.kernels.parameters()
    assert abs(learned.grad) < 1e-12


@pytest.mark.parametrize("shift", [-40.0, 40.0])
def test_small_and_large_variances(shift):
    """Products of precisions that float32 can't hold are not taken."""
    layer = GeneralizedSoftmax(8, 12, "mog", kernel_params="mog.floor=1e-12")
    torch.manual_seed(0)
    with torch.no_grad():
        layer.weight[:, 3::4] = shift
    features, target = torch.randn(5, 8), torch.randint(12, (5,))
    features[:, 3::4] = shift
    plain = -layer.double()(features.double().requires_grad_()).gather(1, target.unsqueeze(1)).sum()
    loss = layer.float().nll(features, target)
    assert loss.isfinite() and loss.item() == pytest.approx(plain.item(), rel=1e-3)


def test_small_arguments_of_log_keep_their_digits():
    double, single = (GeneralizedSoftmax(8, 50, "log", kernel_params="log.gamma=1e-4,log.scale=1e4") for _ in range(2))
    double.double().load_state_dict(single.state_dict())
    features, target = torch.randn(6, 8), torch.arange(6)
    losses = single.nll(features, target).double(), double.nll(features.double(), target)
    torch.testing.assert_close(*losses, rtol=1e-6, atol=0)


def test_register_kernel(monkeypatch):
    monkeypatch.setattr("fairseq_kernels.kernels.base.KERNELS", registry := dict(KERNELS))

    @register_kernel("mat52")
    class Matern(Kernel):
        hyperparameters = (Hyperparameter("nu", 2.5, "positive", learn_from=4),)

        def similarity(self, products, words, contexts):
            return products[0]

    assert registry["mat52"] is Matern and Matern.name == "mat52"
    monkeypatch.setattr("fairseq_kernels.kernels.spec.KERNELS", registry)
    assert [kernel.value("scale") for kernel in build_kernels("2xmat52", 4, "mat521.scale=3")] == [3, 1]
    [learned] = build_kernels("mat52", 4, "mat52.nu=learned")
    assert float(learned.value("nu")) == pytest.approx(4) and "nu=learned" in repr(learned)
    assert register_kernel("mat52")(Other := type("Other", (Matern,), {})) is registry["mat52"] is Other


WRONG = {
    "no comma": {"word_terms": lambda self, W: W.norm(dim=1)},
    "columns": {"word_terms": lambda self, W: (W.norm(dim=1, keepdim=True),)},
    "rows": {"context_terms": lambda self, h: (h.norm(dim=1),)},
    "no terms": {"context_terms": lambda self, h: None},
    "a step": {"queries": lambda self, h: [(h, slice(0, None, 2))]},
    "a part": {"queries": lambda self, h: [(h, slice(0, 2))]},
    "constant": {"queries": lambda self, h: [(h.detach(), slice(None))]},
    "a word": {"similarity": lambda self, g, w, c: g[0].sum(1, keepdim=True)},
    "no gradient": {"similarity": lambda self, g, w, c: g[0].detach()},
}


@pytest.mark.parametrize("method", WRONG.values(), ids=WRONG)
def test_what_a_kernel_must_return(method, monkeypatch):
    """Said when the layer is built: broadcasting would make a loss of most of it."""
    monkeypatch.setitem(KERNELS, "cosine", type("Wrong", (Cosine,), method))
    with pytest.raises(TypeError, match=rf"Wrong\.{next(iter(method))} must return"):
        GeneralizedSoftmax(6, 9, "lin,cosine")
