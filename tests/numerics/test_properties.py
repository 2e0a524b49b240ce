"""Random cases: kernel specs, hyper-parameters, and small layers against the plain formulas and autograd.

    PYTHONPATH=. .venv/bin/python -m pytest --hypothesis-profile fuzz tests/numerics/test_properties.py

tries many more, others each time; by default they are few and always the same.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairseq_kernels import KERNELS
from fairseq_kernels.kernels import Learned
from fairseq_kernels.kernels.base import DOMAINS
from fairseq_kernels.kernels.spec import build_kernels, kernel_of, parse_kernels, parse_parameters

SPACE = st.sampled_from(["", " ", "  "])
NAMES = st.sampled_from(sorted(KERNELS))


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
    text = f",{space}".join(f"{name}{space}={space}{written(value)}" for name, value in pairs.items())
    for same in (text, f"{text},", spec, pairs, {name: written(value) for name, value in pairs.items()}):
        assert parse_parameters(same) == spec
    for built, own in zip(build_kernels(list(spec), 6, text) if spec else (), spec.values()):
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
