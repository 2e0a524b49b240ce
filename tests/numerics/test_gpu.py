"""On a GPU the layers give what they give on the CPU in float64.

Skipped but for TEST_GPU=0 bash scripts/test.sh tests/numerics/test_gpu.py
"""

import contextlib

import pytest
import torch
from layer_checks import FAMILY, LAYERS, gradients, inputs, randomised

from fairseq_kernels import GeneralizedSoftmax
from fairseq_kernels.kernels import PAPER_KERNELS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU, or TEST_GPU isn't set")
KERNELS = (*PAPER_KERNELS, "abs", "sig", ",".join(PAPER_KERNELS))
EVERY = {
    **{name: (lambda d, v, kernels=name: GeneralizedSoftmax(d, v, kernels)) for name in KERNELS},
    **{name: FAMILY[name] for name in FAMILY},
    **LAYERS,
}
ERROR = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 4e-3}


def results(layer, features, target, smoothing, autocast):
    """Losses, log-probabilities, ranks and gradients."""
    weight = torch.linspace(0.5, 2, len(target), dtype=torch.float64).to(features)
    options = {"ignore_index": 3, "label_smoothing": smoothing, "token_weight": weight}
    with autocast:
        loss, found = layer.nll(features, target, **options, return_metrics="entropy")
        found |= {"loss": loss, "each loss": layer.nll(features, target, reduction="none"), "log p": layer(features)}
        found["log p of the target"] = layer.evaluate(features, target)[0]
        divergence = layer.distill(features, features.detach(), lambda given: given.repeat(1, 32)[:, :1001])
    named = {"features": features, **dict(layer.named_parameters())}
    learned = {name: tensor for name, tensor in named.items() if tensor.requires_grad}
    of_target = found["log p"].gather(1, target.unsqueeze(1))
    values = {"loss": loss, "log p": of_target.sum()}
    if layer.loss_is_nll:  # else p is clamped, with kinks
        values["divergence"] = divergence.sum()
    for name, value in values.items():
        found |= {f"{of} by {name}": grad for of, grad in zip(learned, gradients(value, *learned.values()))}
    return found


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", ERROR)
@pytest.mark.parametrize("name", EVERY)
def test_as_on_the_cpu(name, dtype, smoothing):
    """In several chunks of unlike size; bfloat16 and float16 by autocast."""
    torch._dynamo.reset()  # a function is compiled for eight kinds of input at most
    torch.manual_seed(0)
    layer = randomised(EVERY[name](32, 1001))
    if smoothing and name in FAMILY:
        pytest.skip("a spherical loss has no label smoothing")
    layer.memory_budget = 300 * layer.work_space().numbers * (8 if dtype == torch.float64 else 4)
    features, target = inputs(layer, 700)
    wanted = results(layer, features, target, smoothing, contextlib.nullcontext())
    half = dtype in (torch.bfloat16, torch.float16)
    layer.to("cuda", torch.float32 if half else dtype)
    features = features.detach().to(layer.weight).requires_grad_()
    found = results(layer, features, target.cuda(), smoothing, torch.autocast("cuda", dtype, enabled=half))
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        error = (found[name].cpu().double() - value.double()).norm() / value.double().norm().clamp(min=1e-30)
        assert error < ERROR[dtype], f"{name}: {error:.1e}"
