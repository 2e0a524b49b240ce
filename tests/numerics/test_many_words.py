"""Vocabularies of several blocks, whose words the layers go through a block at a time."""

import pytest
import reference
import torch

from fairseq_kernels import GeneralizedSoftmax, KerBSoftmax
from fairseq_kernels.output_layers import generalized_softmax

WORDS = 2 * generalized_softmax.WORDS_AT_A_TIME + 7


def layer_of(kernels, params=None, words=WORDS, dtype=torch.float64, **options):
    torch.manual_seed(0)
    return GeneralizedSoftmax(6, words, kernels, kernel_params=params, **options).to(dtype)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kernels, params, untied", [
    ("log", "log.p=1.5", False),
    ("ssg", "ssg.floor=learned", False),
    ("lin,hpb", "hpb.cap=learned,hpb.gamma=learned", True),
    ("mog,rbf", "rbf.gamma=learned", False),
])  # fmt: skip
def test_loss_and_gradients(kernels, params, untied, smoothing):
    """Words of every block are targets: the terms ||W_v||^2, variances and factors have their gradients, too."""
    layer = layer_of(kernels, params, untied=untied)
    features = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 511, 512, 1023, WORDS - 1])
    ours = layer.nll(features, target, label_smoothing=smoothing)
    plain = reference.losses(layer, features, target, smoothing).sum()
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)
    inputs = [features, *layer.parameters()]
    gradients = (torch.autograd.grad(loss, inputs, allow_unused=True) for loss in (ours, plain))
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kernels", ["log", "ssg", "hpb"])
def test_decoding(kernels):
    layer = layer_of(kernels)
    features = torch.randn(3, 6, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(layer.eval()(features), reference.log_probabilities(layer, features))


def test_kerbs():
    """Scores and gradients of senses in every block."""
    torch.manual_seed(0)
    layer = KerBSoftmax(6, 700, senses=1500, theta=0.5).double()
    features = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 3, 500, 699])
    losses = layer.nll(features, target), -layer(features).gather(1, target.unsqueeze(1)).sum()
    gradients = (torch.autograd.grad(loss, [features, *layer.parameters()]) for loss in losses)
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-9)
