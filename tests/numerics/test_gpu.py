"""On a GPU the layers give what they give on the CPU in float64.

Skipped but for TEST_GPU=0 bash scripts/test.sh tests/numerics/test_gpu.py
"""

import contextlib
import copy
import functools
import itertools

import pytest
import torch
from layer_checks import FAMILY, LAYERS, gradients, randomised, tokens

from fairseq_kernels import GeneralizedSoftmax
from fairseq_kernels.fused import mixture_nll
from fairseq_kernels.kernels import PAPER_KERNELS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU, or TEST_GPU isn't set")
KERNELS = (*PAPER_KERNELS, "abs", "sig", ",".join(PAPER_KERNELS))
EVERY = {
    **{name: (lambda d, v, kernels=name: GeneralizedSoftmax(d, v, kernels)) for name in KERNELS},
    **FAMILY,
    **LAYERS,
}
PRECISIONS = {  # of the parameters, of autocast, and the error allowed
    "float64": (torch.float64, None, 1e-10),
    "float32": (torch.float32, None, 1e-4),
    "autocast to bfloat16": (torch.float32, torch.bfloat16, 4e-2),
    "autocast to float16": (torch.float32, torch.float16, 4e-3),
    "float16": (torch.float16, None, 4e-3),
}
CASES = [
    (name, precision, smoothing)
    for name, precision, smoothing in itertools.product(EVERY, PRECISIONS, (0.0, 0.1))
    if not (smoothing and name in FAMILY)  # a spherical loss has no label smoothing
    and not (precision == "float16" and name in ("rbf", "wav"))  # whose gradients are below its range
]


def results(layer, features, target, smoothing, autocast):
    """Losses, log-probabilities, ranks and gradients."""
    weight = torch.linspace(0.5, 2, len(target), dtype=torch.float64).to(features)
    options = {"ignore_index": 3, "label_smoothing": smoothing, "token_weight": weight}
    with autocast:
        loss, outputs = layer.nll(features, target, **options, return_metrics="entropy")
        outputs |= {"loss": loss, "each loss": layer.nll(features, target, reduction="none"), "log p": layer(features)}
        outputs["log p of the target"] = layer.evaluate(features, target)[0]
        divergence = layer.distill(features, features.detach(), lambda given: given.repeat(1, 32)[:, :1001])
    named = {"features": features, **dict(layer.named_parameters())}
    learned = {name: tensor for name, tensor in named.items() if tensor.requires_grad}
    values = {"loss": loss, "log p": outputs["log p"].gather(1, target.unsqueeze(1)).sum()}
    if layer.loss_is_nll:  # else p is clamped, with kinks
        values["divergence"] = divergence.sum()
    for name, value in values.items():
        outputs |= {f"{of} by {name}": grad for of, grad in zip(learned, gradients(value, *learned.values()))}
    return outputs


@functools.cache
def on_the_cpu(name, smoothing):
    """A layer, features and targets of numbers that all precisions have, and their results in float64."""
    torch.manual_seed(0)
    layer = randomised(EVERY[name](32, 1001)).half().double()
    layer.memory_budget = 300 * layer.work_space().numbers * 4  # several chunks of unlike size
    features, target = tokens(700, 32, 1001)
    features = features.detach().half().double().requires_grad_()
    expected = results(copy.deepcopy(layer), features, target, smoothing, contextlib.nullcontext())
    return layer, features.detach(), target, {of: value.detach() for of, value in expected.items()}


@pytest.mark.parametrize("name,precision,smoothing", CASES)
def test_as_on_the_cpu(name, precision, smoothing, monkeypatch, caplog):
    """Without ``torch.compile`` and with it. All cases share what is compiled, once a kind of input."""
    dtype, autocast_dtype, allowed = PRECISIONS[precision]
    layer, features, target, expected = on_the_cpu(name, smoothing)
    layer = copy.deepcopy(layer).to("cuda", dtype)
    features = features.to(layer.weight).requires_grad_()
    autocast = torch.autocast("cuda", autocast_dtype, enabled=autocast_dtype is not None)
    monkeypatch.setattr(torch._dynamo.config, "cache_size_limit", 100)  # kinds of input; the default is eight
    compiled = mixture_nll.mixture_losses
    for function in compiled.__wrapped__, compiled:
        monkeypatch.setattr(mixture_nll, "mixture_losses", function)
        actual = results(layer, features, target.cuda(), smoothing, autocast)
        assert actual.keys() == expected.keys()
        for of, value in expected.items():
            error = (actual[of].cpu().double() - value.double()).norm() / value.double().norm().clamp(min=1e-30)
            assert error < allowed, f"{of}, {'compiled' if function is compiled else 'eager'}: {error:.1e}"
    assert "without torch.compile" not in caplog.text
