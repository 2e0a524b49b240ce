"""Random cases: kernel specs, hyper-parameters, and small layers against the plain formulas and autograd.

    PYTHONPATH=. .venv/bin/python -m pytest --hypothesis-profile fuzz tests/numerics/test_properties.py

tries many more, others each time; by default they are few and always the same.
"""

import math

import pytest
import reference
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fairseq_kernels import KERNELS, GeneralizedSoftmax, KerBSoftmax, SphericalSoftmax, TaylorSoftmax
from fairseq_kernels.analysis.training_log import read_record
from fairseq_kernels.experiments.profiles import option_value
from fairseq_kernels.kernels import Learned
from fairseq_kernels.kernels.base import DOMAINS
from fairseq_kernels.kernels.spec import build_kernels, kernel_of, parse_kernels, parse_parameters

SPACE = st.sampled_from(["", " ", "  "])
NAMES = st.sampled_from(sorted(KERNELS))
NUMBERS = st.floats(1e-3, 1e3)


@st.composite
def values(draw, kernel):
    """Hyper-parameters of a kernel, all of them allowed; each a number, learned, or learned from a number."""
    chosen = {}
    for hyper in KERNELS[kernel].all_hyperparameters():
        number = {
            "count": st.integers(1, 3),
            "unit": st.floats(0.01, 0.99),
            "real": st.floats(-2, 2),
            "positive": st.floats(0.1, 4),
        }[hyper.domain]
        kinds = [number] if hyper.domain == "count" else [number, st.just(Learned()), st.builds(Learned, number)]
        value = draw(st.none() | st.one_of(kinds))
        if value is not None:
            chosen[hyper.name] = value
    return chosen


def written(value) -> str:
    if isinstance(value, Learned):
        return "learned" if value.start is None else f"learned:{value.start!r}"
    return repr(value)


# what users write


PARTS = st.tuples(SPACE, st.integers(0, 9), SPACE, st.sampled_from("x*"), NAMES, SPACE)


@given(st.lists(PARTS, min_size=1, max_size=6))
def test_mixtures(parts):
    """[Nx]NAME,..., with or without spaces, is N times NAME each; a list is the same."""
    words = [f"{a}{n}{b}{times}{name}{c}" if n else f"{a}{name}{c}" for a, n, b, times, name, c in parts]
    names = [name for _, n, _, _, name, _ in parts for _ in range(n or 1)]
    assert parse_kernels(",".join(words)) == parse_kernels(words) == parse_kernels(names) == names


@given(st.dictionaries(NAMES, st.just(None), max_size=4).flatmap(lambda names: st.fixed_dictionaries(
    {name: values(name) for name in names})), SPACE)
def test_hyperparameters(spec, space):
    """As text and as mappings the same; every kernel that can be built has the values."""
    spec = {kernel: own for kernel, own in spec.items() if own}
    pairs = {f"{kernel}.{name}": value for kernel, own in spec.items() for name, value in own.items()}
    text = f",{space}".join(f"{name}{space}={written(value)}" for name, value in pairs.items())
    for same in (text, spec, pairs, {name: written(value) for name, value in pairs.items()}):
        assert parse_parameters(same) == spec
    for kernel, own in spec.items():
        [built] = build_kernels(kernel, 6, text)
        for name, value in own.items():
            if not isinstance(value, Learned):
                assert built.value(name) == value
            elif value.start is not None:
                assert float(built.value(name)) == pytest.approx(value.start, rel=1e-5, abs=1e-6)
        assert len(list(built.parameters())) == sum(isinstance(value, Learned) for value in own.values())


PIECES = st.sampled_from(["lin", "log", "mog", "9", "x", "*", ",", ".", "=", ":", "learned", "p", "gamma", "components",
                          "-", "1e400", "nan", "inf", " ", "\n", "ﬁ", "٣", "\0", "e"])  # fmt: skip


@given(st.lists(PIECES | st.characters(), max_size=12).map("".join))
@example("9999999999999999999xlin")
@example("٣xlin")
@example("")
def test_any_kernels(text):
    """Names that are there, or one line that says what is wrong."""
    try:
        names = parse_kernels(text)
    except ValueError as error:
        assert str(error) and "\n" not in str(error)
    else:
        assert 1 <= len(names) <= 1000 and set(names) <= set(KERNELS)


@given(st.lists(PIECES | st.characters(), max_size=12).map("".join) | st.builds(
    "{}.{}={}".format, NAMES, st.sampled_from(["p", "gamma", "scale", "components", "cap"]),
    st.lists(PIECES, max_size=4).map("".join)))  # fmt: skip
@example("mog.components=1e300")
@example("log.p=learned:nan")
@example("log.p=\nlin")
@example("pol.p=1e309")
def test_any_hyperparameters(text):
    try:
        kernels = [kernel for name in parse_parameters(text) for kernel in build_kernels(kernel_of(name), 6, text)]
    except ValueError as error:
        assert str(error) and "\n" not in str(error)
    else:
        for kernel in kernels:
            for hyper in kernel.all_hyperparameters():
                assert DOMAINS[hyper.domain].contains(float(kernel.value(hyper.name)))


# logs and options, which interruptions cut anywhere


@given(st.text(st.sampled_from("0123456789.e+-naif ,|="), max_size=30), st.integers(0, 90))
@example("1e", 90)
@example("1-2", 90)
@example("inf", 90)
def test_any_line_of_a_log(number, end):
    """Cut or damaged, it has the values that can be read, or none."""
    line = f"2026-01-01 00:00:00 | INFO | train_inner | epoch 001: loss=5.5, num_updates={number}, ppl={number}"[:end]
    record = read_record(line)
    if record is not None:
        kind, actual = record
        assert kind == "train_inner" and isinstance(int(actual["num_updates"]), int)
        assert all(isinstance(value, float) for value in actual.values())


@given(st.lists(st.sampled_from(["--lr", "--lr=", "--lr=3", "4", "--other", "--lrs=5"]), max_size=6))
def test_the_last_value_of_an_option_counts(words):
    given_ = [words[n + 1] for n, word in enumerate(words[:-1]) if word == "--lr"]
    given_ += [word.partition("=")[2] for word in words if word.startswith("--lr=")]
    assert (option_value(words, "--lr") in given_) if given_ else option_value(words, "--lr") is None


# layers


@st.composite
def layers(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=3))
    params = {name: own for name in set(names) if (own := draw(values(name)))}
    dim, words = draw(st.integers(6, 8)), draw(st.integers(1, 9))
    options = {name: draw(st.booleans()) for name in ("bias", "untied")}
    options["latent_projection"] = draw(st.sampled_from([None, "tanh", "linear"]))
    torch.manual_seed(draw(st.integers(0, 99)))
    layer = GeneralizedSoftmax(dim, words, names, kernel_params=params, **options).double()
    with torch.no_grad():
        for weight in [*layer.matrices(), *([] if layer.bias is None else [layer.bias])]:
            weight.normal_(std=0.6)
    layer.memory_budget = draw(st.integers(1, 4)) * layer.row_bytes(torch.float64)
    return layer


@st.composite
def calls(draw, layer):
    """Features, targets, and what may follow them."""
    tokens = draw(st.integers(1, 6))
    features = 0.6 * torch.randn(tokens, layer.embed_dim, dtype=torch.float64)
    target = torch.tensor(draw(st.lists(st.integers(0, layer.num_embeddings - 1), min_size=tokens, max_size=tokens)))
    return features.requires_grad_(), target, draw(st.none() | st.integers(0, layer.num_embeddings - 1))


@given(layers().flatmap(lambda layer: st.tuples(st.just(layer), calls(layer))), st.sampled_from([0.0, 0.1, 0.9]))
def test_kernels_and_mixtures(case, smoothing):
    """Loss and all gradients are those that autograd finds of the papers' formulas."""
    layer, (features, target, ignored) = case
    # for p < 2 the gradient at W_v = h is unbounded, and polynomials of degree 3 leave float64's digits
    ours = layer.nll(features, target, ignored, smoothing)
    plain = reference.nll(layer, features, target, ignored, smoothing).sum()
    assume(math.isfinite(plain.item()) and abs(plain.item()) < 1e4)
    torch.testing.assert_close(ours, plain, rtol=1e-8, atol=1e-8)
    inputs = [features, *layer.parameters()]
    ours, plain = (torch.autograd.grad(loss, inputs, allow_unused=True) for loss in (ours, plain))
    for mine, theirs, value in zip(ours, plain, inputs):
        zero = torch.zeros_like(value)
        mine, theirs = (zero if gradient is None else gradient for gradient in (mine, theirs))
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)


@given(
    st.sampled_from([TaylorSoftmax, SphericalSoftmax, KerBSoftmax]),
    st.booleans(), st.integers(1, 5), st.integers(1, 9), st.integers(1, 6), st.integers(0, 99),
)  # fmt: skip
def test_other_layers(kind, bias, dim, words, tokens, seed):
    """The loss is minus the log-probability of forward, and its gradients are autograd's."""
    torch.manual_seed(seed)
    layer = kind(dim, words, bias=bias).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    features, target = torch.randn(tokens, dim, dtype=torch.float64), torch.randint(words, (tokens,))
    inputs = [features.requires_grad_(), *layer.parameters()]
    ours = layer.nll(features, target)
    plain = -layer(features).gather(1, target.unsqueeze(1)).sum()
    torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        torch.autograd.grad(ours, inputs), torch.autograd.grad(plain, inputs), rtol=1e-7, atol=1e-8
    )
