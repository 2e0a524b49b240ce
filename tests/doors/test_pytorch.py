"""Output layers in a PyTorch program: from a linear layer, class weights, soft targets, entropy, more words."""

import pytest
import torch
import torch.nn.functional as F
from layer_checks import LAYERS, Memory, gradients, randomised
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from fairseq_kernels import GeneralizedSoftmax

D, V, N = 6, 9, 40


def made(name, **options):
    torch.manual_seed(1)
    return randomised(LAYERS[name](**options))


def tokens():
    features, target = torch.randn(4, N // 4, D, dtype=torch.float64), torch.randint(V, (4, N // 4))
    target[0, :3] = -100
    return features, target


@pytest.mark.parametrize("bias", [True, False])
def test_from_linear(bias):
    linear = nn.Linear(D, V, bias=bias)
    layer = GeneralizedSoftmax.from_linear(linear)
    features, target = (tensor.float() if tensor.is_floating_point() else tensor for tensor in tokens())
    torch.testing.assert_close(layer(features), linear(features).log_softmax(-1))
    loss = layer.nll(features, target, ignore_index=-100, reduction="mean")
    expected = F.cross_entropy(linear(features).flatten(0, 1), target.flatten())
    torch.testing.assert_close(*(gradients(value, *linear.parameters()) for value in (loss, expected)))
    untied = GeneralizedSoftmax.from_linear(linear, kernels="lin,log", kernel_params="log.p=1.5", untied=True)
    assert untied.weight is linear.weight and untied.untied_weights[0] is not linear.weight
    torch.testing.assert_close(untied.untied_weights[0], linear.weight)
    assert GeneralizedSoftmax.from_linear(linear.bfloat16(), "rbf", bias=True).bias.dtype == torch.bfloat16


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
@pytest.mark.parametrize("name", LAYERS)
def test_class_weight_and_entropy(name, reduction):
    """The weight is that of torch's cross-entropy."""
    layer, (features, target) = made(name, memory_budget=30 * 8 * V), tokens()
    features.requires_grad_()
    weight = torch.rand(V, dtype=torch.float64)
    inputs = [features, *layer.parameters()]
    options = {"reduction": reduction, "class_weight": weight}
    loss, metrics = layer.nll(features, target, -100, return_metrics="entropy", **options)
    log_p = layer(features).flatten(0, 1)
    entropy = -(log_p.exp() * log_p).sum(-1).view_as(target) * (target != -100)
    torch.testing.assert_close(metrics["entropy"], entropy.detach())
    expected = F.cross_entropy(log_p, target.flatten(), weight, ignore_index=-100, reduction=reduction)
    torch.testing.assert_close(loss.flatten(), expected.flatten())
    torch.testing.assert_close(gradients(loss.sum(), *inputs), gradients(expected.sum(), *inputs))
    factor = torch.rand(target.shape, dtype=torch.float64)
    both = layer.nll(features, target, -100, reduction="none", class_weight=weight, token_weight=factor)
    each = F.cross_entropy(log_p, target.flatten(), weight, ignore_index=-100, reduction="none")
    torch.testing.assert_close(both, each.view_as(factor) * factor)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("name", LAYERS)
def test_distillation(name, temperature):
    """The divergence and its gradients are those of all tokens at once, in chunks that don't divide their number."""
    layer, (features, _) = made(name, memory_budget=30 * 8 * V), tokens()
    teacher, taught = nn.Linear(3, V).double(), torch.randn(4, N // 4, 3, dtype=torch.float64)
    features.requires_grad_()
    inputs = [features, *layer.parameters()]
    weight = torch.rand(features.shape[:-1], dtype=torch.float64)
    with Memory() as memory:
        loss = layer.distill(features, taught, teacher, temperature)
        found = gradients((loss * weight).sum(), *inputs)
    assert memory.numel < N * V
    wanted = (teacher(taught) / temperature).softmax(-1).detach()
    log_p = (layer(features) / temperature).log_softmax(-1)
    expected = temperature**2 * (wanted * (wanted.log() - log_p)).sum(-1)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(found, gradients((expected * weight).sum(), *inputs))
    assert layer.distill(features, features, layer).abs().max() < 1e-12
    assert all(parameter.grad is None for parameter in teacher.parameters())
    with pytest.raises(ValueError, match="temperature=0 is not allowed"):
        layer.distill(features, taught, teacher, 0)
    with pytest.raises(ValueError, match="teacher_features of shape .* don't fit"):
        layer.distill(features, features[:1], layer)


def test_a_barred_word():
    """By both layers in distillation, here of one vector; new words don't start barred."""
    layer = made("lin")
    layer.bias.data[3] = -torch.inf
    layer.distill(torch.randn(D).double(), torch.randn(D).double(), layer).backward()
    assert layer.weight.grad.isfinite().all() and layer.weight.grad.any()
    layer.extend_vocabulary(1)
    assert layer.bias[-1].isfinite()


@pytest.mark.parametrize("name", ["lin", "mixture", "untied", "taylor"])
def test_more_words(name):
    """The old words' distribution among themselves stays; new ones have the vectors given, or the mean."""
    layer, (features, target) = made(name), tokens()
    before, old = layer(features), {key: value.clone() for key, value in layer.state_dict().items()}
    vectors = torch.randn(3, D, dtype=torch.float64)
    layer.bias.requires_grad_(False)
    layer.extend_vocabulary(3, vectors)
    layer.extend_vocabulary(2)
    after = layer(features)
    assert after.shape[-1] == V + 5
    if name in ("lin", "taylor"):
        torch.testing.assert_close(after[..., :V] - after[..., :1], before - before[..., :1])
    for key, value in layer.state_dict().items():
        torch.testing.assert_close(value[:V] if key in ("weight", "bias") or "untied" in key else value, old[key])
    for matrix in (layer.weight, *getattr(layer, "untied_weights", ())):
        torch.testing.assert_close(matrix[V : V + 3], vectors)
        torch.testing.assert_close(matrix[-1], matrix[:-2].mean(0))
    torch.testing.assert_close(layer.bias[V:], old["bias"].mean().expand(5))
    assert layer.weight.requires_grad and not layer.bias.requires_grad  # which was frozen
    layer.nll(features, torch.where(target < 0, target, target + 5), ignore_index=-100).backward()
    assert layer.weight.grad[-5:].abs().sum() > 0
    with pytest.raises(ValueError, match=r"vectors of shape .* are not \(4,"):
        layer.extend_vocabulary(4, vectors)
    with pytest.raises(ValueError, match="several vectors"):
        made("kerbs").extend_vocabulary(1)


def test_computed_weights_are_refused_in_one_line():
    """Under a parametrization or a hook, which nll alone would never run, and in a replica of DataParallel."""
    replica = made("lin")._replicate_for_data_parallel()
    replica.weight, replica.bias = (parameter * 1 for parameter in made("lin").parameters())
    hooks = nn.utils.spectral_norm, nn.utils.weight_norm
    hooked = [hook(made(name)) for hook in hooks for name in ("lin", "mixture", "taylor", "kerbs")]
    for layer in (weight_norm(made("lin")), replica, *hooked):
        with pytest.raises(ValueError, match="weight is computed from other tensors .by weight norm, DataParallel"):
            layer.nll(*tokens(), ignore_index=-100)
