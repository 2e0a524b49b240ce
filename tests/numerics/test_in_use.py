"""Layers in use: torch.compile, torch.export, checkpoints, the meta device; and clear refusals."""

import functools
import math

import pytest
import torch
import torch.utils.checkpoint
from layer_checks import FAMILY, LAYERS, OnCuda, gradients, randomised, tokens
from torch import nn

from fairseq_kernels import KERNELS, AllocationSettings, GeneralizedSoftmax, KerBSoftmax, TaylorSoftmax
from fairseq_kernels.output_layers import base

DIM, WORDS = 6, 9


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
def test_a_loss_may_be_changed_in_place(layer, reduction):
    """As fairseq does with a batch that only fills up a process' turn."""
    features, target = tokens()
    loss = layer.nll(features, target, reduction=reduction)
    loss *= 0
    loss.sum().backward()
    for tensor in (features, *layer.parameters()):
        assert tensor.grad is None or not tensor.grad.any()
    assert features.grad is not None


@pytest.mark.parametrize("weighted", [False, True])
def test_the_mean_of_nothing_is_torch_s(layer, weighted):
    """NaN, with gradients of 0: a batch of padding does not destroy the parameters."""
    features, weight = torch.randn(2, DIM, requires_grad=True), torch.ones(2) if weighted else None
    nothing = layer.nll(features, torch.tensor([1, 1]), ignore_index=1, reduction="mean", token_weight=weight)
    torch_s = nn.functional.cross_entropy(torch.randn(2, 3), torch.tensor([1, 1]), ignore_index=1)
    assert nothing.isnan() and torch_s.isnan()
    nothing.backward()
    assert all(tensor.grad is None or not tensor.grad.any() for tensor in (features, *layer.parameters()))


class Model(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.hidden, self.layer = nn.Linear(DIM, DIM), layer

    def forward(self, inputs, target):
        return self.layer.nll(self.hidden(inputs).tanh(), target) / 2


@pytest.mark.parametrize("name", ["mixture", "taylor", "kerbs"])
def test_compiled_models_have_their_gradients(name):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = Model(LAYERS[name]())
    inputs, target = torch.randn(5, DIM), torch.randint(WORDS, (5,))
    plain = model(inputs, target)
    wanted = gradients(plain, *model.parameters())
    try:
        compiled = torch.compile(model)(inputs, target)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        pytest.skip(f"no compiler here: {str(error).splitlines()[0]}")
    torch.testing.assert_close(compiled, plain)
    torch.testing.assert_close(gradients(compiled, *model.parameters()), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lin", "mixture", "untied", "taylor", "spherical"])
def test_export_of_forward(name):
    """For any number of tokens; KerBS' shapes depend on its data."""
    layer = LAYERS[name]().eval()
    tokens = torch.export.Dim("tokens", min=2, max=100)
    program = torch.export.export(layer, (torch.randn(4, DIM),), dynamic_shapes=({0: tokens},))
    features = torch.randn(11, DIM)
    torch.testing.assert_close(program.module()(features), layer(features))


def test_targets_are_integers(layer):
    features, target = tokens()
    for wrong in (target.double(), target > 3):
        with pytest.raises(ValueError, match=r"target of torch\.\w+ is not allowed.*torch\.long"):
            layer.nll(features, wrong)
    torch.testing.assert_close(layer.nll(features, target.int()), layer.nll(features, target))


def test_inside_a_checkpoint(layer, monkeypatch):
    """Without reentrance, whose hooks on saved tensors would compute all chunks again for each."""
    passes, loss_pass = [], layer.loss_pass
    monkeypatch.setattr(layer, "loss_pass", lambda *options: passes.append(options) or loss_pass(*options))
    features, target = tokens()
    wanted = gradients(layer.nll(features, target), *layer.parameters())
    passes.clear()
    loss = torch.utils.checkpoint.checkpoint(layer.nll, features, target, use_reentrant=False)
    torch.testing.assert_close(gradients(loss, *layer.parameters()), wanted)
    assert len(passes) in (0, 2)  # the spherical family has none


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_made_without_memory(name, assign):
    """On the meta device, as large models are, and then filled from a checkpoint."""
    features, target = tokens()
    given = LAYERS[name]()
    with torch.device("meta"), torch.autocast("cpu"):
        layer = LAYERS[name]()
        if name in ("lin", "untied", "taylor"):  # without senses and learned values, which are looked at
            assert layer.nll(torch.empty(3, DIM), torch.empty(3).long(), reduction="none").shape == (3,)
    layer = layer if assign else layer.to_empty(device="cpu")
    layer.load_state_dict(given.state_dict(), assign=assign)
    torch.testing.assert_close(layer.nll(features.float(), target), given.nll(features.float(), target))
    with pytest.raises(ValueError, match="the checkpoint has the output layer "):
        other = LAYERS["taylor" if name == "spherical" else "spherical"]()
        layer.load_state_dict(other.state_dict())


@pytest.mark.parametrize("name", LAYERS)
def test_made_without_memory_and_started(name):
    """By ``to_empty`` and ``reset_parameters``, whatever was in memory: parameters, buffers, learned values."""
    with torch.device("meta"):
        layer = LAYERS[name]()
    layer = layer.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*layer.parameters(), *layer.buffers()):
            tensor.fill_(3)
    given = LAYERS[name]()
    for each in (layer, given):
        torch.manual_seed(0)
        each.reset_parameters()
    torch.testing.assert_close(layer.state_dict(), given.state_dict(), rtol=0, atol=0)


def test_averaged_checkpoints(layer):
    """As fairseq's average_checkpoints.py averages them."""
    average = {name: value + value + value for name, value in layer.state_dict().items()}
    for name, value in average.items():
        average[name] = value / 3 if value.is_floating_point() else value // 3
    layer.load_state_dict(average)


@pytest.mark.parametrize("name", [*LAYERS, *FAMILY, *KERNELS])
def test_second_derivatives(name):
    """With weights and label smoothing: of features, parameters, weights and the gradient that comes in."""
    torch.manual_seed(0)
    layer = randomised({**LAYERS, **FAMILY}.get(name, functools.partial(GeneralizedSoftmax, kernels=name))(DIM, WORDS))
    features, target = tokens()
    weight, class_weight = torch.rand(7, dtype=torch.float64, requires_grad=True), torch.rand(WORDS)

    def loss(features, weight, *_, reduction="mean"):
        smoothing = 0.0 if hasattr(layer, "numerator") else 0.1
        return layer.nll(features, target, 3, smoothing, reduction, weight, class_weight=class_weight)

    for each in (loss, functools.partial(loss, reduction="none")):
        assert torch.autograd.gradgradcheck(each, (features, weight, *layer.parameters()), fast_mode=True)


def test_ways_to_second_derivatives(layer):
    """Hessian, penalties with ``inputs`` given or not, an embedding that is shared: all as of the log-probabilities."""
    features, target = tokens()
    inputs = [features, *layer.parameters()]

    def found(loss):
        results = [torch.autograd.functional.hessian(loss, features.detach())]
        for value, by in ((loss(features), features), (loss(layer.weight[:7].tanh()), layer.weight)):
            [slope] = torch.autograd.grad(value, by, create_graph=True)
            results += gradients(slope.square().sum(), *inputs)  # which retains the graph
            layer.zero_grad()
            (value + slope.square().sum()).backward(create_graph=True)
            results += [parameter.grad.detach() for parameter in layer.parameters()]
        return results

    plain = found(lambda features: nn.functional.nll_loss(layer(features), target, reduction="sum"))
    torch.testing.assert_close(found(lambda features: layer.nll(features, target)), plain)


def test_torch_func_is_refused_in_one_line(layer):
    features, target = tokens()
    for transformed in (torch.func.grad(layer.nll), torch.func.vmap(layer.nll)):
        with pytest.raises(RuntimeError, match=r"^torch.func can't transform nll; use .* layer\(features\)$"):
            transformed(features.detach(), target)
    assert torch.func.grad(lambda features: layer(features)[0, 1])(features).any()
    for mode in (True, False):
        with torch.no_grad():
            torch.testing.assert_close(torch.func.vmap(layer.train(mode))(features), layer(features))


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("kernels", ["lin", "2xlin"])
def test_large_scores_lose_no_digits(kernels, learns):
    """Words that are all alike have 1 / V each, however large their score."""
    layer = GeneralizedSoftmax(6, 7, kernels, bias=False)
    with torch.no_grad():
        layer.weight.zero_()[:, 0] = 1e5  # one number to sum: libraries sum several in an order of their own
    with torch.set_grad_enabled(learns):
        nll = layer.nll(torch.randn(9, 6), torch.arange(9) % 7, reduction="none")
    torch.testing.assert_close(nll, torch.full((9,), math.log(7)))


@pytest.mark.parametrize("name, wrong", [("embed_dim", 0), ("embed_dim", 2.5), ("memory_budget", 1e6)])
def test_wrong_sizes(name, wrong):
    with pytest.raises(ValueError, match=f"{name}={wrong} is not allowed: it must be an integer >= 1"):
        GeneralizedSoftmax(**{"embed_dim": 4, "num_embeddings": 5, name: wrong})


@pytest.mark.parametrize("features,target,options,said", [
    ((3, 5), [0, 1, 2], {}, ["(3, 5)", "embed_dim=6"]),
    ((3, 6), [0, 1], {}, ["(2,)", "(3, 6)"]),
    ((3, 6), [0, 1, 2], {"token_weight": torch.ones(2)}, ["token_weight of shape (2,)", "(3, 6)"]),
    ((3, 6), [0, 1, 2], {"class_weight": torch.ones(10)}, ["class_weight of shape (10,)", "(9,)"]),
    ((3, 6), [0, 9, 2], {}, ["target 9", "9"]),
    ((3, 6), [0, -100, 2], {"ignore_index": 1}, ["target -100", "9"]),
    ((3, 6), [0, 1, 2], {"label_smoothing": 1.0}, ["label_smoothing=1", "below 1"]),
    ((3, 6), [0, 1, 2], {"label_smoothing": -0.1}, ["label_smoothing=-0.1", "at least 0"]),
    ((3, 6), [0, 1, 2], {"label_smoothing": float("nan")}, ["label_smoothing=nan"]),
    ((3, 6), [0, 1, 2], {"reduction": "average"}, ["reduction='average'", "'sum'", "'mean'", "'none'"]),
])  # fmt: skip
def test_wrong_arguments_of_the_loss(features, target, options, said):
    layer = LAYERS["lin"]()
    with pytest.raises(ValueError) as error:
        layer.nll(torch.zeros(features), torch.tensor(target, dtype=torch.long), **options)
    assert all(part in str(error.value) for part in said), str(error.value)


def test_a_shared_matrix_of_another_size(layer):
    features, target = tokens()
    layer.weight = nn.Parameter(torch.randn(30, DIM, dtype=torch.float64))
    for call in (layer, lambda features: layer.nll(features, target)):
        with pytest.raises(ValueError, match=rf"weight of shape \(30, {DIM}\) doesn't fit"):
            call(features)


def test_memory_and_precision_where_nothing_is_said(monkeypatch):
    """192 MiB on the CPU, 512 on a GPU; bfloat16 under its autocast, where the CPU has its products."""
    layer, features = TaylorSoftmax(1, 10**6), torch.ones(1, 1)
    assert "embed_dim=1, num_embeddings=1000000, bias=True" in repr(layer)
    for tensor, budget in ((features, 192 << 20), (OnCuda(features), 512 << 20)):
        assert layer.chunk_size(tensor) == budget // (layer.work_space().numbers * 4)
    for faster, dtype, wanted in ((True, torch.bfloat16, torch.bfloat16), (True, torch.float16, None),
                                  (False, torch.bfloat16, None)):  # fmt: skip
        monkeypatch.setattr(base, "bfloat16_is_faster", lambda faster=faster: faster)
        with torch.autocast("cpu", dtype=dtype):
            assert layer.product_dtype(features) is wanted
        assert layer.product_dtype(features) is None


def test_mixture_weights():
    """Each component's weight under its name, and the population variance over them."""
    torch.manual_seed(0)
    layer, features = GeneralizedSoftmax(6, 9, "2xlin,log", kernel_params="log.p=learned:3"), torch.randn(4, 2, 6)
    observed = layer.observe(features)
    pi = torch.softmax(features @ layer.prior_projection, -1)
    torch.testing.assert_close(layer.mixture_weights(features), pi)
    assert GeneralizedSoftmax(6, 9).mixture_weights(features).equal(torch.ones(4, 2, 1))
    assert float(observed["log_p"]) == pytest.approx(3)
    for place, name in enumerate(("pi_lin1", "pi_lin2", "pi_log")):
        torch.testing.assert_close(observed[name], pi[..., place])
    torch.testing.assert_close(observed["pi_variance"], ((pi - 1 / 3) ** 2).mean(-1))
    assert len(observed) == 5 and not GeneralizedSoftmax(6, 9).observe(features)


def test_senses():
    layer = KerBSoftmax(4, 5, senses=8, theta=0.5, allocation=AllocationSettings())
    layer.allocation.usage.copy_(torch.tensor([0.5, 0.02, 0.011, 0.009, 0, 0, 0, 1.0]))
    layer.allocation.moves.fill_(3)
    observed = {name: float(value) for name, value in layer.observe(torch.zeros(2, 4)).items()}
    assert observed == {"words_of_several_senses": 3, "mean_theta": 0.5, "senses_in_use": 4, "senses_moved": 3}


def by_optimizer(layer, **how):
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(layer.parameters(), lr=0.5, **how).step()


def by_fused_optimizer(layer):
    by_optimizer(layer, fused=True)  # which doesn't raise _version


def by_data(layer):
    """As fairseq's optimizers write; ``eval()`` must be called after it."""
    for parameter in layer.parameters():
        parameter.data += 1
    layer.eval()


def by_loading(layer):
    layer.load_state_dict({name: value + value for name, value in layer.state_dict().items() if "kind" not in name},
                          strict=False)  # fmt: skip


@pytest.mark.parametrize("change", [by_optimizer, by_fused_optimizer, by_data, by_loading, nn.Module.float])
@pytest.mark.parametrize("name", ["mixture", "taylor"])
def test_decoding_after_a_change_of_the_parameters(change, name):
    """Decoding uses the parameters as they are now."""
    layer = randomised(LAYERS[name]()).eval()
    features, target = (x.detach() for x in tokens())
    with torch.no_grad():
        before = layer(features), layer.nll(features, target)
    change(layer)
    features = features.to(layer.weight.dtype)
    with torch.no_grad():
        after = layer(features), layer.nll(features, target)
    wanted = layer(features).detach(), layer.train().nll(features, target).detach()
    torch.testing.assert_close(after, wanted)
    assert change is nn.Module.float or not torch.allclose(before[0], after[0])


def test_frozen_parts(layer):
    """Each parameter frozen in turn: the others' gradients stay; with all frozen, the features' too; then none."""
    features, target = tokens()
    wanted = gradients(layer.nll(features, target), features, *layer.parameters())
    for frozen in (*layer.parameters(), None):
        for parameter in layer.parameters():
            parameter.requires_grad_(frozen is not None and parameter is not frozen)
        learning = [x for x in (features, *layer.parameters()) if x.requires_grad]
        found = iter(gradients(layer.nll(features, target), *learning))
        for given, gradient in zip((features, *layer.parameters()), wanted):
            if given.requires_grad:
                torch.testing.assert_close(next(found), gradient)
    assert not layer.nll(features.detach(), target).requires_grad
    with torch.no_grad():
        assert not layer.requires_grad_().nll(features, target).requires_grad


def test_fp16_loss_scale_comes_before_rounding():
    """Gradients that would underflow float16 survive when the loss is scaled, as fairseq's trainer does."""
    layer = LAYERS["mixture"]().half()
    features, target = tokens()
    features = features.detach().half().requires_grad_()
    (layer.nll(features, target) * 1e-7 * 2.0**23).backward()
    wide = features.detach().float().requires_grad_()
    layer.float().nll(wide, target).backward()
    torch.testing.assert_close(features.grad.float(), wide.grad * 1e-7 * 2.0**23, rtol=2e-3, atol=1e-6)
