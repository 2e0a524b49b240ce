"""The element-wise part compiled, as on a GPU, gives what it gives eagerly; here with torch.compile's CPU code."""

import logging
import shutil

import pytest
import torch

from fairseq_kernels.output_layers import fusion, mixture_loss

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="torch.compile needs a C++ compiler"
)


def scores(components, rows, words, seed):
    torch.manual_seed(seed)
    log_pi = torch.randn(rows, components).log_softmax(1) if components > 1 else None
    return [torch.randn(rows, words) for _ in range(components)], log_pi, torch.randint(words, (rows,))


@needs_compiler
@pytest.mark.parametrize("components,smoothing", [(1, 0.0), (1, 0.1), (3, 0.0), (3, 0.1)])
def test_compiled_is_eager(components, smoothing):
    """Losses and gradients, for chunks of several sizes from one compiled function."""
    compiled = torch.compile(mixture_loss.weigh.__wrapped__, dynamic=True)
    for rows in (5, 7, 3):
        values, log_pi, target = scores(components, rows, 50, rows)
        eager = mixture_loss.weigh([(v.clone(), True) for v in values], log_pi, target, smoothing, True)
        found = compiled([(v.clone(), True) for v in values], log_pi, target, smoothing, True)
        torch.testing.assert_close(found.loss, eager.loss)
        torch.testing.assert_close(found.nll, eager.nll)
        for one, other in zip(found.scores, eager.scores, strict=True):
            torch.testing.assert_close(one, other)
        if components > 1:
            torch.testing.assert_close(found.log_pi, eager.log_pi)


def test_the_cpu_stays_eager(monkeypatch):
    monkeypatch.setattr(torch, "compile", None)  # calling it would fail
    double = fusion.fused(lambda x: x * 2)
    assert double(torch.ones(1)) == 2


def test_what_does_not_compile_runs_eagerly(caplog):
    """With one line in the log, however often it is called."""

    def refused(*args):
        raise torch._dynamo.exc.BackendCompilerFailed(lambda: None, RuntimeError("no Triton"), None)

    call = fusion.guarded(lambda x: x + 1, refused)
    with caplog.at_level(logging.WARNING):
        assert [call(1), call(2)] == [2, 3]
    assert len(caplog.records) == 1 and "without torch.compile" in caplog.text


def test_other_errors_are_not_hidden():
    def broken(*args):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fusion.guarded(lambda x: x, broken)(1)
