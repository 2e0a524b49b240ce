"""The kernels S(W_v, h): values, gradients, extreme inputs, and how users name and set them."""

import pytest
import reference
import torch
from kernel_settings import EVERY, FIXED, LEARNED, build, ids
from layer_checks import leaves

from fairseq_kernels import KERNELS, GeneralizedSoftmax
from fairseq_kernels.kernels.base import DOMAINS
from fairseq_kernels.kernels.spec import build_kernels

DIM = 6  # three Gaussians of a mean and a variance fit
POSITIVE = "from 1e-12 to 1e10"  # as messages have it


def vectors(words=5, contexts=3, dim=DIM, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(words + contexts, dim, generator=generator, dtype=torch.float64)
    return draw[:words], draw[words:]


# defaults

DEFAULTS = {
    "log": {"p": 2, "gamma": 1}, "pow": {"p": 2, "gamma": 1}, "pol": {"alpha": 1, "c": 1, "p": 2}, "rbf": {"gamma": 1},
    "ssg": {"floor": 0.1}, "mog": {"components": 2, "floor": 0.1}, "hpb": {"gamma": 1, "cap": 0.999},
    "wav": {"a": 1, "b": 1}, "cap": {"c": 30, "alpha": 1},
}  # fmt: skip
# of those that are learned from another value than their default, at d = 8
STARTS = {"log.gamma": 1 / 8, "pow.gamma": 1 / 8, "rbf.gamma": 1 / 8, "wav.a": 8, "wav.b": 8, "cos.scale": 10}


@pytest.mark.parametrize("name", KERNELS)
def test_defaults(name):
    """Those that tables and documents state, and where learning starts: it never leaves the domain."""
    wanted = {**DEFAULTS.get(name, {}), "scale": 1}
    fixed = build(name, "", 8)
    assert {h.name: fixed.value(h.name) for h in fixed.all_hyperparameters()} == wanted
    learned = build(name, dict(LEARNED)[name], 8)
    starts = {x: STARTS.get(f"{name}.{x}", value) for x, value in wanted.items()}
    assert {x: float(learned.value(x)) for x in wanted} == pytest.approx(starts)
    real = [hyper for hyper in learned.all_hyperparameters() if hyper.domain != "count"]
    assert len(list(learned.parameters())) == len(real) and set(learned.learned()) == {hyper.name for hyper in real}
    with torch.no_grad():
        for parameter in learned.parameters():
            parameter -= 5.0  # as far as an optimizer may go
    assert all(DOMAINS[hyper.domain].contains(float(learned.value(hyper.name))) for hyper in real)


@pytest.mark.parametrize("name,params", EVERY, ids=ids(EVERY))
def test_value_is_the_direct_formula_s(name, params):
    """S without Eq. 13's detour, to float64's rounding."""
    kernel = build(name, params, DIM)
    weight, contexts = vectors()
    direct = reference.scores(kernel, weight, contexts)
    torch.testing.assert_close(kernel(weight, contexts), direct, rtol=1e-11, atol=1e-11)


def test_gaussian_mixture_leaves_a_remainder_of_the_dimensions_unused():
    """7 dimensions shared out among 2 components: 3 each, the last one is free."""
    whole, part = (build("mog", "mog.components=2", dim) for dim in (7, 6))
    weight, contexts = vectors(dim=7, seed=9)
    torch.testing.assert_close(whole(weight, contexts), part(weight[:, :6], contexts[:, :6]))


NORMS = (0.0, 1e-4, 1e-2, 1.0, 30.0, 1e3)  # 0: the padding row of a shared embedding


def extreme(dtype=torch.float32, dim=8, norms=NORMS):
    """Words of all norms, two a norm and nearly parallel; the contexts are words exactly, and their opposites."""
    generator = torch.Generator().manual_seed(10)
    direction = torch.randn(dim, generator=generator, dtype=torch.float64)
    near = direction + 1e-4 * torch.randn(dim, generator=generator, dtype=torch.float64)
    units = torch.stack([direction / direction.norm(), near / near.norm()])
    weight = torch.cat([norm * units for norm in norms]).to(dtype)
    return weight, torch.cat([weight, -weight[2:]])


@pytest.mark.parametrize("name,params", EVERY, ids=ids(EVERY))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_finite_at_coincidence_and_at_all_norms(name, params, dtype):
    """W_v = h exactly, W_v and h nearly so, norms 0 and 1e-4 to 1e3: finite scores and gradients."""
    [kernel] = build_kernels(name, 8, params)
    weight, contexts = leaves(*extreme(dtype))
    scores = kernel.to(dtype)(weight, contexts)
    gradients = torch.autograd.grad(scores.sum(), [weight, contexts, *kernel.parameters()])
    assert scores.dtype == dtype and scores.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)


HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def finite_loss(layer, weight, contexts, **options):
    """Log-probabilities, and gradients of the loss: all finite, the results in float32."""
    with torch.no_grad():
        layer.weight.copy_(weight)
    contexts.requires_grad_()
    log_p, loss = layer(contexts), layer.nll(contexts, torch.arange(len(contexts)) % len(weight), **options)
    assert log_p.dtype == loss.dtype == torch.float32
    found = torch.autograd.grad(loss, [contexts, *layer.parameters()])
    assert all(tensor.isfinite().all() for tensor in (log_p, loss, *found))
    return log_p, found


@pytest.mark.parametrize("name,params", EVERY, ids=ids(EVERY))
@pytest.mark.parametrize("dtype", HALF.values(), ids=HALF)
def test_half_precision(name, params, dtype):
    """Under autocast at all norms; and weights of half precision, with which a layer computes in float32 as the float32
    layer of the same weights."""
    layer, (weight, contexts) = GeneralizedSoftmax(8, 12, kernels=name, kernel_params=params), extreme()
    with torch.autocast("cpu", dtype=dtype):
        log_p, _ = finite_loss(layer, weight, contexts, label_smoothing=0.1)
    gradients = torch.autograd.grad(log_p.sum(), [contexts, *layer.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)
    layer = GeneralizedSoftmax(8, 6, kernels=name, kernel_params=params).to(dtype)
    # pow's p = 8 has gradients beyond float16 from norm 30 on: there no way of computing them can help
    weight, contexts = extreme(dtype, norms=(1e-4, 1e-2, 1.0))
    log_p, gradients = finite_loss(layer, weight, contexts)
    assert [g.dtype for g in gradients] == [dtype, *(parameter.dtype for parameter in layer.parameters())]
    assert all(parameter.dtype == torch.float32 for parameter in layer.kernels.parameters())
    full = GeneralizedSoftmax(8, 6, kernels=name, kernel_params=params)
    full.load_state_dict(layer.state_dict())
    torch.testing.assert_close(log_p, full(contexts.float()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", [1e-4, 1.0, 1e3])
def test_distance_keeps_float32_s_digits(norm):
    """Eq. 13's D = a + b - 2g is off by a few roundings of a + b, not more."""
    [kernel] = build_kernels("pow", 64)
    generator = torch.Generator().manual_seed(11)
    weight, contexts = (norm / 8 * torch.randn(n, 64, generator=generator) for n in (20, 10))
    exact = reference.distances(weight.double(), contexts.double()) ** 2
    size = weight.double().square().sum(1) + contexts.double().square().sum(1, keepdim=True)
    # 64 products are summed up: sqrt(64) roundings expected, 4 times that allowed
    assert ((-kernel(weight, contexts).double() - exact).abs() / size).max() < 32 * torch.finfo(torch.float32).eps


DISTANCE_KERNELS = [(name, params) for name, params in FIXED if name in ("log", "pow", "rbf", "hpb", "wav")]


@pytest.mark.parametrize("name,params", DISTANCE_KERNELS, ids=ids(DISTANCE_KERNELS))
def test_a_word_at_the_context_has_the_top_score(name, params):
    """Where W_v = h, a kernel of the distance takes its bound: 0, or the scale."""
    kernel = build(name, params, DIM)
    weight, _ = vectors()
    top = kernel.value("scale") if name in ("rbf", "wav") else 0.0
    scores = kernel(weight, weight)
    # D is 0 to some 1e-15. pow and log with p = 1 take its root, and so does hpb, after dividing it by the squared
    # gap to the ball's rim, down to 4e-6
    tolerance = 1e-4 if name == "hpb" else 1e-6
    expected = torch.full((5,), top, dtype=torch.float64)
    torch.testing.assert_close(scores.diagonal(), expected, rtol=0, atol=tolerance)
    assert (scores <= top + tolerance).all()


def test_no_distance_is_negative():
    """Rounding may leave less than 0 of ||W_v||^2 + ||h||^2 - 2 W_v . h where the two are the same; D is 0 then."""
    [kernel] = build_kernels("log", 64, "log.gamma=1000")
    weight = 30 * torch.randn(200, 64, generator=torch.Generator().manual_seed(3))
    own = kernel(weight, weight).diagonal()
    assert own.isfinite().all() and own.max() <= 0


def test_cosines_of_zero_vectors():
    """They are 0 and have no gradient, which would be infinite; tiny vectors have theirs."""
    layer = GeneralizedSoftmax(4, 3, "cos", kernel_params="cos.scale=20")
    with torch.no_grad():
        layer.weight[0], layer.weight[1] = 0, 1e-18
    features = torch.tensor([[0.0] * 4, [3e-18, 0, 0, 0], [1, 1, 1, 1]], requires_grad=True)
    scores = layer.kernels[0](layer.weight, features)
    torch.testing.assert_close(scores[:, :2], torch.tensor([[0.0, 0], [0, 10], [0, 20]]))
    layer.nll(features, torch.tensor([1, 0, 2])).backward()
    assert layer.weight.grad.isfinite().all() and features.grad.isfinite().all()
    assert not layer.weight.grad[0].any() and not features.grad[0].any() and layer.weight.grad[1].any()


def test_parameters_of_a_component():
    """They win over their kernel's; names are those of component_names; each learns values of its own."""
    params = "rbf{}.gamma=10,rbf.gamma=0.5,rbf{}.scale=3,lin.scale=2"
    layer, swapped = (
        GeneralizedSoftmax(DIM, 5, "2xrbf,lin", kernel_params=params.format(*order)) for order in ((2, 1), (1, 2))
    )
    assert swapped.settings != layer.settings
    values = [[kernel.value(name) for name in ("gamma", "scale")] for kernel in layer.kernels[:2]]
    assert values == [[0.5, 3], [10, 1]] and layer.kernels[2].value("scale") == 2
    learned = build_kernels("2xrbf", DIM, "rbf.gamma=learned")
    assert len({id(p) for kernel in learned for p in kernel.parameters()}) == 2
    assert len({GeneralizedSoftmax(DIM, 5, latent_projection=way).settings for way in ("tanh", "linear")}) == 2
    for kernels, wrong, instead in (("2xrbf,lin", "rbf3.scale=2", "rbf"), ("2xlin,log", "rbf.gamma=0.1", "rbf")):
        with pytest.raises(ValueError, match=f"belongs to no component of kernels='{kernels}'; .* add {instead}"):
            GeneralizedSoftmax(DIM, 5, kernels, kernel_params=wrong)
    with pytest.raises(ValueError, match="kernel rbf has no hyper-parameter 'gama'; it has gamma, scale"):
        KERNELS["rbf"](DIM, gama=2.0)


@pytest.mark.parametrize("kernels,params,embed_dim,said", [
    # the message names what was given and what is allowed
    ("gauss", None, DIM, ["gauss", *KERNELS]),
    ("", None, DIM, ["kernels=", "3xlin,log"]),
    ("0xlin", None, DIM, ["0xlin", "1 to 1000"]),
    ("lin log", None, DIM, ["lin log", "3xlin,log"]),
    ("log", "log.q=2", DIM, ["log.q", "log.p", "log.gamma", "log.scale"]),
    ("2xrbf", "rbf2.gamma=0", DIM, ["rbf.gamma=0", POSITIVE]),
    ("log", "foo2.p=2", DIM, ["foo2", *KERNELS]),
    ("log", "p=2", DIM, ["write 'KERNEL.p'"]),
    ("rbf", {"gamma": 2}, DIM, ["write 'KERNEL.gamma'"]),
    ("log", "log.p", DIM, ["log.p", "KERNEL.NAME=VALUE"]),
    ("log", "log.p=two", DIM, ["log.p=two", "a number", "learned"]),
    ("log", "log.p=learned:x", DIM, ["log.p=learned:x", "a number"]),
    ("pow", "pow.p=nan", DIM, ["pow.p=nan", POSITIVE]),
    ("pol", "pol.p=1.5", DIM, ["pol.p=1.5", "integer >= 1"]),
    ("pol", "pol.p=learned", DIM, ["pol.p", "can't be learned", "integer >= 1"]),
    ("pol", "pol.c=inf", DIM, ["pol.c=inf", "finite"]),
    ("rbf", "rbf.gamma=1e400", DIM, ["rbf.gamma=inf", POSITIVE]),
    ("hpb", "hpb.cap=1", DIM, ["hpb.cap=1", "between 0 and 1"]),
    ("mog", "mog.components=4", 7, ["mog", "4 component", ">= 8", "7"]),
    ("mog", None, 3, ["mog", ">= 4", "3"]),
    ("log", "log.p=2,log.p=3", DIM, ["log.p", "twice"]),
    ("log", {"log.p": 2, "log": {"p": 2}}, DIM, ["log.p", "twice"]),
    ("pol", "pol.p=1000000", DIM, ["pol.p=1e+06", "at most 1000"]),
])  # fmt: skip
def test_wrong_specs_are_named(kernels, params, embed_dim, said):
    with pytest.raises(ValueError) as error:
        GeneralizedSoftmax(embed_dim, 5, kernels=kernels, kernel_params=params)
    for part in said:
        assert part in str(error.value), str(error.value)
    assert "\n" not in str(error.value)
