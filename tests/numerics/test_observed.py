"""What layers tell of themselves for logs and analyses, old checkpoints' names, and what they do on a (false) GPU."""

from types import SimpleNamespace

import pytest
import torch
from layer_checks import OnCuda

from fairseq_kernels import AllocationSettings, GeneralizedSoftmax, KerBSoftmax
from fairseq_kernels.analysis.model_state import learned_values
from fairseq_kernels.fused import compiled


def test_mixture_weights():
    """Each component's weight under its name, and the population variance over them."""
    torch.manual_seed(0)
    layer, features = GeneralizedSoftmax(6, 9, "2xlin,log"), torch.randn(4, 2, 6)
    observed = layer.observe(features)
    pi = torch.softmax(features @ layer.prior_projection, -1)
    for place, name in enumerate(("pi_lin1", "pi_lin2", "pi_log")):
        torch.testing.assert_close(observed[name], pi[..., place])
    torch.testing.assert_close(observed["pi_variance"], ((pi - 1 / 3) ** 2).mean(-1))
    assert len(observed) == 4 and not GeneralizedSoftmax(6, 9).observe(features)


def test_senses():
    layer = KerBSoftmax(4, 5, senses=8, theta=0.5, allocation=AllocationSettings())
    layer.allocation.usage.copy_(torch.tensor([0.5, 0.02, 0.011, 0.009, 0, 0, 0, 1.0]))
    layer.allocation.moves.fill_(3)
    observed = {name: float(value) for name, value in layer.observe(torch.zeros(2, 4)).items()}
    assert observed == {"words_of_several_senses": 3, "mean_theta": 0.5, "senses_in_use": 4, "senses_moved": 3}


def test_learned_values():
    """Of a mixture with the component's number, each on its own scale."""
    layer = GeneralizedSoftmax(4, 5, "lin,hpb", kernel_params="hpb.gamma=learned:3,hpb.cap=learned:0.75")
    state = {f"decoder.output_projection.{name}": value for name, value in layer.state_dict().items()}
    assert learned_values(state) == pytest.approx({"1.hpb.gamma": 3, "1.hpb.cap": 0.75})
    assert learned_values({}) == {}


def test_parameters_of_older_checkpoints():
    layer, older = GeneralizedSoftmax(4, 5, "lin,log"), GeneralizedSoftmax(4, 5, "lin,log")
    names = {"latent_projection": "context_maps", "prior_projection": "mixture_map"}
    layer.load_state_dict({names.get(name, name): value for name, value in older.state_dict().items()})
    assert all(torch.equal(value, older.state_dict()[name]) for name, value in layer.state_dict().items())


# CUDA


@pytest.fixture
def compilations(monkeypatch):
    """What was compiled, with its options; it then gives "compiled"."""
    calls = []
    monkeypatch.setattr(torch, "compile", lambda function, **options: calls.append(options) or (lambda *_: "compiled"))
    return calls


def test_compiled_on_cuda(compilations):
    """At the first call with a CUDA tensor, wherever it is among the arguments, once and for all sizes."""
    call = compiled.compiled_on_cuda(lambda *_: "eager")
    assert call(torch.ones(1)) == "eager" and not compilations
    assert call(1, [(OnCuda(torch.ones(1)), True)]) == call(OnCuda(torch.ones(2))) == "compiled"
    assert call(torch.ones(1)) == "eager"
    assert compilations == [{"dynamic": True}]


def test_compiling_can_be_turned_off(compilations, monkeypatch):
    monkeypatch.setenv("FAIRSEQ_KERNELS_FUSE", "0")
    assert compiled.compiled_on_cuda(lambda _: "eager")(OnCuda(torch.ones(1))) == "eager" and not compilations


@pytest.mark.parametrize(
    "weight, autocast, expected",
    [
        (torch.float16, None, torch.float16),
        (torch.bfloat16, None, torch.bfloat16),
        (torch.float32, None, None),
        (torch.float32, torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float32, None),
    ],
)
def test_precision_of_the_products(weight, autocast, expected, monkeypatch):
    """Autocast's before that of the weights, and none but half."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda" and autocast is not None)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: autocast)
    layer = GeneralizedSoftmax(4, 5).to(weight)
    assert layer.product_dtype(SimpleNamespace(is_cuda=True)) == expected
    assert layer.product_dtype(SimpleNamespace(is_cuda=False)) is None


@pytest.mark.parametrize(
    "budget, on_cuda, expected", [(None, True, 512 << 20), (None, False, 192 << 20), (1000, True, 1000)]
)
def test_work_space(budget, on_cuda, expected, monkeypatch):
    layer = GeneralizedSoftmax(4, 5, memory_budget=budget)
    monkeypatch.setattr(layer, "cpu_tokens", lambda: 1 << 40)
    tokens = layer.chunk_size(SimpleNamespace(is_cuda=on_cuda, dtype=torch.float32))
    assert tokens == expected // layer.row_bytes(torch.float32)
