"""Output layers in a PyTorch program: from a linear layer, class weights, soft targets, entropy, more words."""

import pytest
import torch
import torch.nn.functional as F
from largest_tensor import Largest
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from fairseq_kernels import GeneralizedSoftmax, KerBSoftmax, TaylorSoftmax

D, V, N = 6, 17, 40
LAYERS = {
    "lin": lambda **options: GeneralizedSoftmax(D, V, **options),
    "mixture": lambda **options: GeneralizedSoftmax(D, V, "2xlin,rbf", kernel_params="rbf.gamma=learned", **options),
    "untied": lambda **options: GeneralizedSoftmax(D, V, "lin,hpb", untied=True, **options),
    "taylor": lambda **options: TaylorSoftmax(D, V, **options),
    "kerbs": lambda **options: KerBSoftmax(D, V, **options),
}


def made(name, **options):
    torch.manual_seed(1)
    layer = LAYERS[name](**options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    return layer


def tokens(seed=2):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(4, N // 4, D, generator=generator, dtype=torch.float64)
    target = torch.randint(V, features.shape[:-1], generator=generator)
    target[0, :3] = -100
    return features, target


def gradients(loss, *tensors):
    return torch.autograd.grad(loss, tensors, allow_unused=True)


@pytest.mark.parametrize("bias", [True, False])
def test_from_linear(bias):
    linear = nn.Linear(D, V, bias=bias)
    layer = GeneralizedSoftmax.from_linear(linear)
    features, target = tokens()
    features = features.float()
    torch.testing.assert_close(layer(features), linear(features).log_softmax(-1))
    loss = layer.nll(features, target, ignore_index=-100, reduction="mean")
    expected = F.cross_entropy(linear(features).flatten(0, 1), target.flatten())
    for got, wanted in zip(gradients(loss, *linear.parameters()), gradients(expected, *linear.parameters())):
        torch.testing.assert_close(got, wanted)
    untied = GeneralizedSoftmax.from_linear(linear, kernels="lin,log", kernel_params="log.p=1.5", untied=True)
    assert untied.weight is linear.weight and untied.untied_weights[0] is not linear.weight
    torch.testing.assert_close(untied.untied_weights[0], linear.weight)
    assert GeneralizedSoftmax.from_linear(linear.bfloat16(), "rbf", bias=True).bias.dtype == torch.bfloat16


@pytest.mark.parametrize("name", LAYERS)
def test_device_and_dtype(name):
    """As ``nn.Linear``; a layer on the meta device gets its values later."""
    layer = LAYERS[name](device="meta", dtype=torch.bfloat16)
    assert layer.weight.is_meta and layer.weight.dtype == torch.bfloat16
    layer.to_empty(device="cpu").reset_parameters()
    assert torch.isfinite(layer(torch.randn(3, D))).all()


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
@pytest.mark.parametrize("name", LAYERS)
def test_class_weight_is_that_of_cross_entropy(name, reduction):
    layer, (features, target) = made(name), tokens()
    features.requires_grad_()
    weight = torch.rand(V, dtype=torch.float64)
    inputs = [features, *layer.parameters()]
    loss = layer.nll(features, target, -100, reduction=reduction, class_weight=weight)
    log_p = layer(features).flatten(0, 1)
    expected = F.cross_entropy(log_p, target.flatten(), weight, ignore_index=-100, reduction=reduction)
    torch.testing.assert_close(loss.flatten(), expected.flatten())
    for got, wanted in zip(gradients(loss.sum(), *inputs), gradients(expected.sum(), *inputs)):
        torch.testing.assert_close(got, wanted)
    factor = torch.rand(target.shape, dtype=torch.float64)
    both = layer.nll(features, target, -100, reduction="none", class_weight=weight, token_weight=factor)
    each = F.cross_entropy(log_p, target.flatten(), weight, ignore_index=-100, reduction="none")
    torch.testing.assert_close(both, each.view_as(factor) * factor)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("name", LAYERS)
def test_distillation(name, temperature):
    """The divergence and its gradients are those of all tokens at once, in chunks that don't divide their number."""
    layer, (features, _) = made(name, memory_budget=14 * 8 * V), tokens()
    teacher, taught = nn.Linear(3, V).double(), torch.randn(4, N // 4, 3, dtype=torch.float64)
    features.requires_grad_()
    inputs = [features, *layer.parameters()]
    with Largest() as largest:
        loss = layer.distill(features, taught, teacher, temperature)
        gradients(loss.sum(), *inputs)
    assert largest.numbers < N * V
    wanted = (teacher(taught) / temperature).softmax(-1).detach()
    log_p = (layer(features) / temperature).log_softmax(-1)
    expected = temperature**2 * (wanted * (wanted.log() - log_p)).sum(-1)
    torch.testing.assert_close(loss, expected)
    weight = torch.rand_like(loss)
    loss = layer.distill(features, taught, teacher, temperature)
    for got, grad in zip(gradients((loss * weight).sum(), *inputs), gradients((expected * weight).sum(), *inputs)):
        torch.testing.assert_close(got, grad)
    assert layer.distill(features, features, layer).abs().max() < 1e-12
    assert all(parameter.grad is None for parameter in teacher.parameters())


@pytest.mark.parametrize("name", LAYERS)
def test_entropy(name):
    layer, (features, target) = made(name, memory_budget=14 * 8 * V), tokens()
    loss, metrics = layer.nll(features, target, ignore_index=-100, return_metrics="entropy")
    log_p = layer(features)
    expected = -(log_p.exp() * log_p).sum(-1) * (target != -100)
    torch.testing.assert_close(metrics["entropy"], expected.detach())
    assert "entropy" not in layer.nll(features, target, ignore_index=-100, return_metrics=True)[1]


@pytest.mark.parametrize("name", ["lin", "mixture", "untied", "taylor"])
def test_more_words(name):
    """The old words' distribution among themselves stays; new ones have the vectors given, or the mean."""
    layer, (features, target) = made(name), tokens()
    before, old = layer(features), {key: value.clone() for key, value in layer.state_dict().items()}
    vectors = torch.randn(3, D, dtype=torch.float64)
    layer.extend_vocabulary(3, vectors)
    layer.extend_vocabulary(2)
    after = layer(features)
    assert after.shape[-1] == V + 5
    if name in ("lin", "taylor"):
        torch.testing.assert_close(after[..., :V] - after[..., :1], before - before[..., :1])
    for key, value in layer.state_dict().items():
        torch.testing.assert_close(value[:V] if key in ("weight", "bias") or "untied" in key else value, old[key])
    torch.testing.assert_close(layer.weight[V : V + 3], vectors)
    torch.testing.assert_close(layer.weight[-1], layer.weight[:-2].mean(0))
    layer.nll(features, torch.where(target < 0, target, target + 5), ignore_index=-100).backward()
    assert layer.weight.grad[-5:].abs().sum() > 0


def test_kerbs_has_several_vectors_a_word():
    with pytest.raises(ValueError, match="several vectors"):
        made("kerbs").extend_vocabulary(1)


def test_computed_weights_are_refused_in_one_line():
    """Under a parametrization, and in a replica of DataParallel, whose weights are no parameters."""
    features, target = tokens()
    target = target.clamp_min(0)
    layer = weight_norm(made("lin"))
    with pytest.raises(ValueError, match="weight is computed"):
        layer.nll(features, target)
    assert layer(features).requires_grad
    replica = made("lin")._replicate_for_data_parallel()
    replica.weight, replica.bias = (parameter * 1 for parameter in made("lin").parameters())
    with pytest.raises(ValueError, match="DataParallel"):
        replica.nll(features, target)
