"""Every output layer against its plain formula in float64, for random sizes and options; what all of them share."""

import copy
import threading

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_settings import EVERY, FIXED, ids
from layer_checks import FAMILY, LAYERS, Memory, gradients, randomised, tokens
from torch import nn

from fairseq_kernels import KERNELS, GeneralizedSoftmax, KerBSoftmax, SphericalSoftmax, word_prior

OWN = {"spherical": {"epsilon": 0.3}, "softmax-bound": {"xi": 1.2}}  # the tightest xi has a test of its own
SENSES = {"kerbs": {}, "kerbs-positive": {"positive_only": True}, "kerbs-plain": {"kernel": False}}
@st.composite
def any_layer(draw):
    """A layer of any kind, with random sizes and options, and tokens for it."""
    kind = draw(st.sampled_from(["mixture"] * 4 + [*FAMILY, *SENSES]))
    words, dim, bias = draw(st.integers(2, 9)), draw(st.integers(6, 9)), draw(st.booleans())
    torch.manual_seed(draw(st.integers(0, 999)))
    if kind == "mixture":
        chosen = draw(st.lists(st.sampled_from(EVERY), min_size=1, max_size=3, unique_by=lambda pair: pair[0]))
        names = [f"{draw(st.integers(1, 2))}x{name}" for name, _ in chosen]
        options = {
            "untied": draw(st.booleans()),
            "latent_projection": draw(st.sampled_from([None, "tanh", "linear"])),
            "kernel_params": ",".join(filter(None, (params for _, params in chosen))),
        }
        if all(KERNELS[name].takes_step for name, _ in chosen):
            options["step"] = draw(st.sampled_from([1.0, 3.0]))
        layer = GeneralizedSoftmax(dim, words, ",".join(names), bias, **options)
    elif kind in FAMILY:
        layer = FAMILY[kind](dim, words, bias, **OWN.get(kind, {}))
    else:
        layer = KerBSoftmax(dim, words, words + draw(st.integers(0, 9)), bias, theta=0.7, **SENSES[kind])
    layer = randomised(layer)
    layer.memory_budget = draw(st.integers(1, 10)) * layer.work_space().numbers * 8
    number = draw(st.integers(0, 7))
    return layer, torch.randn(number, dim, dtype=torch.float64), torch.randint(words, (number,))


def check(layer, features, target, reduction, smoothing, weighted, ignored, z_loss=0.0):
    """Loss, metrics, gradients and those of a second backward, against the plain formula's."""
    features = features.detach().requires_grad_()
    weight = torch.rand(len(target), dtype=torch.float64).mul(2).clamp(0.1, 1).requires_grad_() if weighted else None
    counted = target != ignored
    plain = torch.zeros(len(target), dtype=torch.float64)
    each = reference.losses(layer, features[counted], target[counted], smoothing)
    each = each + z_loss * reference.z_loss(layer, features[counted]) if z_loss else each
    plain = plain.masked_scatter(counted, each)
    plain = plain if weight is None else plain * weight
    total = (counted.double() if weight is None else weight * counted).sum()
    plain = {"none": plain, "sum": plain.sum(), "mean": plain.sum() / total}[reduction]
    options = {"token_weight": weight, "z_loss": z_loss}
    loss, metrics = layer.nll(features, target, ignored, smoothing, reduction, return_metrics=True, **options)
    torch.testing.assert_close(loss, plain, rtol=1e-9, atol=1e-9, equal_nan=True)
    log_p = reference.log_probabilities(layer, features)
    if layer.loss_is_nll:
        own = -log_p.gather(1, target.unsqueeze(1)).squeeze(1) * counted
        torch.testing.assert_close(metrics.pop("nll"), own, rtol=1e-9, atol=1e-9)
    if layer.name == "kernels":
        weights, parts = reference.components(layer, features)
        partition = torch.stack([part.logsumexp(1) for part in parts], 1) * counted.unsqueeze(1)
        torch.testing.assert_close(metrics.pop("log_partition"), partition, rtol=1e-9, atol=1e-9)
        if len(parts) > 1:
            torch.testing.assert_close(metrics.pop("mixture_weights"), weights * counted.unsqueeze(1))
        else:
            best = log_p.gather(1, target.unsqueeze(1)).squeeze(1) >= log_p.amax(1) - 1e-12
            assert metrics.pop("correct").equal(best & counted)
    assert not metrics
    with torch.no_grad():
        again = layer.nll(features, target, ignored, smoothing, reduction, **options)
        torch.testing.assert_close(again, plain, rtol=1e-9, atol=1e-9, equal_nan=True)
        torch.testing.assert_close(layer.eval()(features), log_p, rtol=1e-9, atol=1e-9)
        layer.train()
    if not counted.any():
        return
    inputs = [features, *layer.parameters(), *([] if weight is None else [weight])]
    upstream = torch.linspace(1, 2, loss.numel(), dtype=torch.float64).view(loss.shape)
    wanted = gradients((plain * upstream).sum(), *inputs)
    for _ in range(2):  # the second backward too
        torch.testing.assert_close(gradients((loss * upstream).sum(), *inputs), wanted, rtol=1e-7, atol=1e-8)


@given(any_layer(), st.sampled_from(["sum", "mean", "none"]), st.sampled_from([0.0, 0.1]), st.booleans(),
       st.sampled_from([-100, 0, 1]), st.sampled_from([0.0, 0.01]))  # fmt: skip
def test_nll_is_the_plain_formula(case, reduction, smoothing, weighted, ignored, z_loss):
    layer, features, target = case
    if isinstance(layer, tuple(FAMILY.values())):
        for name in ("label_smoothing", "z_loss"):
            with pytest.raises(ValueError, match=f"^{name}=0.01 is not allowed: .* of every word .*layer$"):
                layer.nll(features, target, **{name: 0.01})
        smoothing = z_loss = 0.0
    check(layer, features, target, reduction, smoothing, weighted, ignored, z_loss)


@pytest.mark.parametrize("kernels, params", [*FIXED, (",".join(KERNELS), "")], ids=[*ids(FIXED), "all"])
def test_each_kernel_s_forward_and_nll(kernels, params):
    """Smoothed and not, log-probabilities with gradients."""
    torch.manual_seed(0)
    features, target = tokens()
    for smoothing, projection in ((0.1, "linear"), (0.1, "tanh"), (0.1, None), (0.0, None)):
        layer = randomised(GeneralizedSoftmax(6, 9, kernels, kernel_params=params, latent_projection=projection))
        check(layer, features, target, "sum", smoothing, False, -100)
    log_p, plain = layer(features), reference.log_probabilities(layer, features)
    torch.testing.assert_close(log_p, plain, rtol=1e-9, atol=1e-9)
    upstream, inputs = torch.randn_like(log_p), [features, *layer.parameters()]
    results = [gradients((result * upstream).sum(), *inputs) for result in (log_p, plain)]
    torch.testing.assert_close(*results, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", LAYERS)
def test_one_word(name):
    """Its probability is 1, with and without smoothing."""
    torch.manual_seed(0)
    layer = randomised(LAYERS[name](6, 1))
    features, target = tokens(3, words=1)
    assert layer(features).abs().max() < 1e-12
    for smoothing in (0.0, 0.1) if name not in FAMILY else (0.0,):
        loss = layer.nll(features, target, label_smoothing=smoothing)
        assert loss.abs() < 1e-10 and gradients(loss, features)[0].abs().max() < 1e-10


def test_evaluate(layer):
    """log p of the targets, and how many words are more probable."""
    features, target = tokens()
    log_p = reference.log_probabilities(layer, features)
    own = log_p.gather(1, target.unsqueeze(1))
    value, rank = layer.evaluate(features, target)
    torch.testing.assert_close(value, own.squeeze(1), rtol=1e-9, atol=1e-9)
    assert rank.equal((log_p > own).sum(1))
    _, metrics = layer.nll(features, target, return_metrics=True)
    assert metrics.get("correct", rank == 0).equal(rank == 0)
    with torch.no_grad():
        layer.weight.fill_(torch.nan)
    assert layer.evaluate(features, target)[1].tolist() == [9] * 7  # a broken model's rank is the worst


DIM, WORDS = 48, 400


@pytest.mark.parametrize("kernels", ["lin", "lin,log,rbf"])
@pytest.mark.parametrize("untied", [False, True])
def test_start_of_a_mixture(kernels, untied):
    """As fairseq's output_projection; each C_k is uniform by its own d x d, M by its d x K; biases are 0."""
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(DIM, WORDS, kernels, untied=untied, latent_projection="tanh")
    for matrix in layer.matrices():
        assert abs(matrix.std().item() * DIM**0.5 - 1) < 0.03 and abs(matrix.mean()) < 0.01
    assert not layer.bias.any()
    for projection in layer.latent_projection:
        bound = (6 / (2 * DIM)) ** 0.5
        assert 0.98 * bound < projection.abs().max() <= bound and abs(projection.std() / bound - 3**-0.5) < 0.03
    if layer.prior_projection is not None:
        bound = (6 / (DIM + 3)) ** 0.5
        assert 0.9 * bound < layer.prior_projection.abs().max() <= bound


def test_start_of_the_others():
    """The spherical family's matrix is 0 where its gradient is not; KerBS' as the mixtures', each theta as asked."""
    torch.manual_seed(0)
    for name, family in FAMILY.items():
        made = family(DIM, WORDS)
        assert not made.weight.any() and made.bias.eq(name == "spherical").all()
    for made in (SphericalSoftmax(DIM, WORDS, bias=False), KerBSoftmax(DIM, WORDS, theta=-2.0)):
        assert abs(made.weight.std().item() * DIM**0.5 - 1) < 0.03
    assert made.theta.eq(-2).all() and torch.bincount(made.sense_word).eq(3).all()


def test_start_from_the_prior():
    """A context vector of 0 has the words' frequencies; a word never seen has those of the rarest one."""
    counts = torch.tensor([5.0, 0, 2, 90, 1, 1, 3, 7, 2])
    words = torch.arange(9).repeat_interleave(counts.long())
    assert word_prior([words[:50].view(2, 25), [-100], words[50:].numpy()], 9).equal(word_prior(words, 9))
    prior = word_prior(words, 9, smoothing=0.5).float()
    torch.testing.assert_close(prior, (counts + 0.5) / (counts + 0.5).sum())
    with pytest.raises(ValueError, match="target 8 is not one of the 8 words"):
        word_prior(words, 8)
    for wrong in ([words, prior], {"labels": words}, prior):
        with pytest.raises(ValueError, match=r"a batch \((list|dict|Tensor)\) is not word indices"):
            word_prior([wrong], 9)
    layer = LAYERS["lin"]()
    layer.set_prior(word_prior(words, 9, smoothing=0.0))
    assert layer.bias[1] == layer.bias[4] < layer.bias[0]
    for made in (LAYERS["lin"](), KerBSoftmax(6, 9, senses=14, bias=True), *(layer(6, 9) for layer in FAMILY.values())):
        made.set_prior(prior)
        log_p = made(torch.zeros(1, 6))
        torch.testing.assert_close(log_p[0].exp(), prior, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="no bias"):
        SphericalSoftmax(6, 9, bias=False).set_prior(prior)
    with pytest.raises(ValueError, match=r"prior of shape \(8,\) and sum 0\.\d+ is not the 9 words' probabilities"):
        layer.set_prior(prior[:8])


@pytest.mark.parametrize("name", LAYERS)
def test_float32_agrees_with_float64(name):
    """The loss to 6 digits, its gradients to 4, results in float32; half-precision features too."""
    torch.manual_seed(0)
    layer = randomised(LAYERS[name](32, 300)).float()
    features = torch.randn(20, 32).requires_grad_()
    target = torch.randint(300, (20,))
    exact = copy.deepcopy(layer).double()
    wide = features.detach().double().requires_grad_()
    loss, wanted = layer.nll(features, target), exact.nll(wide, target)
    assert loss.dtype == layer(features).dtype == torch.float32
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-6, atol=0)
    found = gradients(loss, features, *layer.parameters())
    for ours, plain in zip(found, gradients(wanted, wide, *exact.parameters())):
        torch.testing.assert_close(ours.double(), plain, rtol=0, atol=1e-4 * float(plain.abs().max() + 1e-6))
    half = features.detach().bfloat16()
    torch.testing.assert_close(layer.nll(half, target), layer.nll(half.float(), target))
    with torch.no_grad():
        torch.testing.assert_close(layer(half), layer(half.float()), rtol=1e-5, atol=1e-5)


def test_four_threads_at_once(layer):
    """Each has the gradients of its own tokens, and the parameters stay parameters."""
    cases = [(torch.randn(5, 6, dtype=torch.float64), torch.randint(9, (5,))) for _ in range(4)]

    def work(case, found):
        for _ in range(10):
            losses = layer.nll(*case, reduction="none")
            found.append(gradients((losses * torch.arange(1, 6)).sum(), *layer.parameters()))

    wanted = [[], [], [], []]
    for case, found in zip(cases, wanted):
        work(case, found)
    results = [[], [], [], []]
    threads = [threading.Thread(target=work, args=pair) for pair in zip(cases, results)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(found) for found in results] == [10] * 4
    torch.testing.assert_close(results, wanted, rtol=1e-10, atol=1e-11)
    assert all(isinstance(parameter, nn.Parameter) for parameter in layer.parameters())


@pytest.mark.parametrize("name", ["mixture", "kerbs"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_barred_word(name, smoothing):
    """A bias of -inf: the word has probability 0, and no gradient is NaN."""
    torch.manual_seed(0)
    layer = randomised(LAYERS[name]())
    features, target = tokens()
    with torch.no_grad():
        layer.bias[8] = -torch.inf
    loss = layer.nll(features, target.clamp_max(7), label_smoothing=smoothing)
    assert all(gradient.isfinite().all() for gradient in gradients(loss, features, *layer.parameters()))
    assert layer(features).exp()[:, 8].max() == 0


def test_functional_call(layer):
    """The loss and its gradients are those of the given parameters."""
    features, target = tokens()
    given = {f"0.{name}": (1.7 * p.detach() + 0.1).requires_grad_() for name, p in layer.named_parameters()}

    class Loss(nn.Sequential):
        def forward(self, features):
            return self[0].nll(features, target)

    loss = torch.func.functional_call(Loss(layer), given, (features,))
    own = copy.deepcopy(layer)
    own.load_state_dict({**own.state_dict(), **{name[2:]: value.detach() for name, value in given.items()}})
    wanted = gradients(own.nll(features, target), features, *own.parameters())
    for _ in range(2):  # in the second backward the layer has its own parameters again
        torch.testing.assert_close(gradients(loss, features, *given.values()), wanted, rtol=1e-9, atol=1e-9)


# what version 0.2 wrote: (kind, settings), and the shapes
VERSION_0_2 = {
    "mixture": (
        "lin,lin,log; lin, scale=1 log, p=2, scale=1, gamma=learned",
        {"weight": (9, 6), "bias": (9,), "latent_projection": (3, 6, 6), "prior_projection": (6, 3),
         "kernels.2._real.gamma": ()},
    ),
    "untied": (
        "lin,ssg; lin, scale=1 ssg, floor=0.1, scale=1",
        {"weight": (9, 6), "bias": (9,), "latent_projection": (2, 6, 6), "prior_projection": (6, 2),
         "untied_weights.0": (9, 6)},
    ),
    "taylor": ("taylor; ", {"weight": (9, 6), "bias": (9,)}),
    "spherical": ("spherical; epsilon=0.0198", {"weight": (9, 6), "bias": (9,)}),
    "allocation": (
        "kerbs; ",
        {"weight": (27, 6), "theta": (27,), "bias": (9,), "sense_word": (27,), "allocation.updates": (),
         **{f"allocation.{kind}{name}": (size,) for kind in ("", "pending_")
            for name, size in (("log_probability", 9), ("occurrences", 9), ("usage", 27))}, "allocation.moves": ()},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VERSION_0_2)
def test_checkpoints_of_version_0_2(name, caplog):
    """Every tensor is taken, and nothing else is said."""
    kind, shapes = VERSION_0_2[name]
    layer = LAYERS[name]()
    state = {key: torch.full(shape, 0.5) for key, shape in shapes.items()}
    state["kind_version"] = torch.tensor(list(kind.encode()), dtype=torch.int32)
    if "sense_word" in state:
        state["sense_word"] = torch.arange(27) % 9
    layer.load_state_dict(state)
    for key, value in layer.state_dict().items():
        assert value.equal(state[key].to(value.dtype)), key
    assert not caplog.text


@pytest.mark.parametrize("name", LAYERS)
def test_no_tensor_of_tokens_by_words(name):
    """The loss takes the memory that it is given, and that of the features' gradients."""
    torch.manual_seed(0)
    layer = LAYERS[name](8, 1000, memory_budget=1 << 20)
    features, target = torch.randn(4000, 8, requires_grad=True), torch.randint(1000, (4000,))
    with Memory(features, target, *layer.parameters(), *layer.buffers()) as memory:
        layer.nll(features, target).backward()
    assert memory.numel < 4000 * 1000 / 2, memory.operation
    assert memory.peak < 1.4 * 2**20


def test_torch_jit_names_export(layer):
    for convert in (torch.jit.script, lambda layer: torch.jit.trace(layer, torch.randn(2, 6, dtype=torch.float64))):
        with pytest.raises(RuntimeError, match="torch.export"):
            convert(layer)


def test_a_step_is_a_larger_learning_rate(caplog):
    """With a step the layer is the one of a larger matrix; it starts as asked, from a linear layer as well."""
    torch.manual_seed(0)
    features, target = torch.randn(9, 8, dtype=torch.float64), torch.arange(9)
    linear = nn.Linear(8, 9, dtype=torch.float64)
    for kernels in ("lin", "pol", "pow", "2xsig,abs"):
        torch.manual_seed(1)
        plain = GeneralizedSoftmax.from_linear(linear, kernels=kernels)
        torch.manual_seed(1)
        layer = GeneralizedSoftmax.from_linear(linear, kernels=kernels, step=5)
        torch.testing.assert_close(layer(features), plain(features))
        for each in (plain, layer):
            each.nll(features, target).backward()
        torch.testing.assert_close(layer.weight.grad, 5 * plain.weight.grad)
        assert plain.weight is linear.weight is not layer.weight
        linear.weight.grad = None
    torch.testing.assert_close(5 * GeneralizedSoftmax.from_linear(linear, start=3, step=5).weight, 3 * linear.weight)
    again = GeneralizedSoftmax.from_linear(layer.requires_grad_(False), "2xsig,abs", step=5, start=2)
    assert again.weight.equal(2 * layer.weight) and not again.weight.requires_grad
    larger = GeneralizedSoftmax(8, 9, step=4, dtype=torch.float64)
    larger.load_state_dict(linear.state_dict(), strict=False)
    torch.testing.assert_close(larger(features), linear(features).log_softmax(-1))
    assert "output matrix is multiplied by 0.25, for step=4; embeddings can't share it any more" in caplog.text
    usual, larger = (torch.manual_seed(1) and GeneralizedSoftmax(8, 9, **how) for how in ({}, {"start": 3, "step": 5}))
    torch.testing.assert_close(5 * larger.weight, 3 * usual.weight)
    with pytest.raises(ValueError, match="step=2 doesn't fit the kernel log: it is for lin, "):
        GeneralizedSoftmax(8, 9, "lin,log", step=2)
    with pytest.raises(ValueError, match="start=0 is not allowed: it must be a number from 1e-12"):
        GeneralizedSoftmax(8, 9, start=0)
