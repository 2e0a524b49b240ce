"""The element-wise part compiled, as on a GPU, gives what it gives eagerly; here with torch.compile's CPU code."""

import logging
import shutil

import pytest
import torch
from layer_checks import OnCuda

from fairseq_kernels.fused.mixture_nll import compiled_on_cuda, mixture_losses

ON_CUDA = OnCuda(torch.ones(1))
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="torch.compile needs a C++ compiler"
)


def scores(components, rows, words, seed):
    torch.manual_seed(seed)
    log_pi = torch.randn(rows, components).log_softmax(1) if components > 1 else None
    return [torch.randn(rows, words) for _ in range(components)], log_pi, torch.randint(words, (rows,))


@needs_compiler
@pytest.mark.parametrize("components,smoothing", [(1, 0.0), (3, 0.1)])
def test_compiled_is_eager(components, smoothing):
    """Losses and gradients, for chunks of several sizes from one compiled function."""
    by_compiler = torch.compile(mixture_losses.__wrapped__, dynamic=True)
    bias = torch.linspace(-1, 1, 50) if smoothing else None
    for rows in (5, 7, 3):
        values, log_pi, target = scores(components, rows, 50, rows)
        eager, result = (
            function(log_pi, bias, target, smoothing, 1e-2, True, [(v.clone(), True) for v in values])
            for function in (mixture_losses.__wrapped__, by_compiler)
        )
        torch.testing.assert_close(dict_of(result), dict_of(eager))


def dict_of(losses):
    """Without what is None in these losses."""
    values = {**losses._asdict(), "factors": [factor for factor in losses.factors if factor is not None]}
    return {name: value for name, value in values.items() if value is not None}


def test_the_cpu_stays_eager(monkeypatch):
    monkeypatch.setattr(torch, "compile", None)  # calling it would fail
    double = compiled_on_cuda(lambda x: x * 2)
    assert double(torch.ones(1)) == 2
    monkeypatch.setenv("FAIRSEQ_KERNELS_FUSE", "0")  # and so does a GPU then
    assert double(ON_CUDA) == 2


def test_what_does_not_compile_runs_eagerly(caplog, monkeypatch):
    """With one line in the log, however often it is called; other errors are not hidden."""

    def refused(*args):
        raise torch._dynamo.exc.TorchDynamoException("no Triton")

    monkeypatch.setattr(torch, "compile", lambda function, **options: refused)
    call = compiled_on_cuda(lambda x, tensor: x + 1)
    with caplog.at_level(logging.WARNING):
        assert [call(1, ON_CUDA), call(2, ON_CUDA)] == [2, 3]
    assert len(caplog.records) == 1 and "without torch.compile" in caplog.text
    monkeypatch.setattr(torch, "compile", lambda function, **options: lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        compiled_on_cuda(lambda x: x)(ON_CUDA)
