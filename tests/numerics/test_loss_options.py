"""What users ask of a loss: means, weights, metrics, tying, torch.compile and torch.export; and clear refusals."""

import copy
import pickle
import re

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
from torch.optim import swa_utils

from fairseq_kernels import AllocationSettings, GeneralizedSoftmax, KerBSoftmax, SphericalSoftmax, TaylorSoftmax

DIM, WORDS = 6, 9
LAYERS = {
    "lin": lambda: GeneralizedSoftmax(DIM, WORDS),
    "mixture": lambda: GeneralizedSoftmax(DIM, WORDS, "2xlin,log", kernel_params="log.gamma=learned"),
    "untied": lambda: GeneralizedSoftmax(DIM, WORDS, "lin,ssg", untied=True),
    "taylor": lambda: TaylorSoftmax(DIM, WORDS),
    "spherical": lambda: SphericalSoftmax(DIM, WORDS),
    "kerbs": lambda: KerBSoftmax(DIM, WORDS, bias=True, theta=0.5),
    "kerbs, allocation": lambda: KerBSoftmax(DIM, WORDS, bias=True, allocation=AllocationSettings()),
}


@pytest.fixture(params=LAYERS)
def layer(request):
    """In chunks of two tokens, all parameters random."""
    torch.manual_seed(0)
    made = LAYERS[request.param]().double()
    made.memory_budget = 2 * made.row_bytes(torch.float64)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) / 2)
    return made


def tokens(number=7):
    torch.manual_seed(1)
    features = torch.randn(number, DIM, dtype=torch.float64, requires_grad=True)
    return features, torch.randint(WORDS, (number,)), torch.rand(number, dtype=torch.float64, requires_grad=True)


def gradients(loss, *inputs):
    return torch.autograd.grad(loss, inputs, allow_unused=True, retain_graph=True)


def each_token(layer, features, target):
    return -layer(features).gather(1, target.unsqueeze(1)).squeeze(1)


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_reductions_and_weights(layer, reduction, weighted):
    """As torch's cross_entropy: the mean is over the tokens that count, with weights over their sum; weights learn."""
    features, target, weight = tokens()
    target[3] = 0
    losses, counted = each_token(layer, features, target), target != 0
    factors = weight * counted if weighted else counted.double()
    plain = losses * factors
    plain = {"none": plain, "sum": plain.sum(), "mean": plain.sum() / factors.sum()}[reduction]
    ours = layer.nll(features, target, ignore_index=0, reduction=reduction, token_weight=weight if weighted else None)
    torch.testing.assert_close(ours, plain, rtol=1e-11, atol=1e-11)
    upstream = torch.linspace(1, 2, plain.numel(), dtype=torch.float64).view(plain.shape)
    inputs = [features, *layer.parameters(), *([weight] if weighted else [])]
    for given, wanted in zip(*(gradients((loss * upstream).sum(), *inputs) for loss in (ours, plain))):
        torch.testing.assert_close(given, torch.zeros_like(given) if wanted is None else wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
def test_a_loss_may_be_changed_in_place(layer, reduction):
    """As fairseq does with a batch that only fills up a process' turn."""
    features, target, _ = tokens()
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
    assert (
        nothing.isnan() and nn.functional.cross_entropy(torch.randn(2, 3), torch.tensor([1, 1]), ignore_index=1).isnan()
    )
    nothing.backward()
    assert all(tensor.grad is None or not tensor.grad.any() for tensor in (features, *layer.parameters()))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_metrics(layer, smoothing):
    """What the pass has anyway: log p of the target, log Z, mixture weights, whether the likeliest word is right."""
    if smoothing and isinstance(layer, (TaylorSoftmax, SphericalSoftmax)):
        pytest.skip("the spherical family has no label smoothing")
    features, target, weight = tokens(8)
    features, target = features.view(2, 4, DIM), target.view(2, 4)
    target[0], target[1, 2] = layer(features)[0].argmax(1), 0
    arguments = {"ignore_index": 0, "label_smoothing": smoothing, "token_weight": weight.view(2, 4)}
    loss, metrics = layer.nll(features, target, return_metrics=True, **arguments)
    torch.testing.assert_close(loss, layer.nll(features, target, **arguments))
    counted = target != 0
    log_p = layer(features)
    torch.testing.assert_close(metrics["nll"], -log_p.gather(2, target.unsqueeze(2)).squeeze(2) * counted)
    assert not any(values.requires_grad for values in metrics.values())
    if isinstance(layer, GeneralizedSoftmax):
        components = len(layer.kernels)
        assert metrics["log_partition"].shape == (2, 4, components)
        if components > 1:
            weights = layer.mixture_weights(features) * counted.unsqueeze(2)
            torch.testing.assert_close(metrics["mixture_weights"], weights)
        else:
            assert metrics["correct"].equal((log_p.argmax(2) == target) & counted) and metrics["correct"].any()
            scores = features @ layer.weight.T + layer.bias
            torch.testing.assert_close(metrics["log_partition"].squeeze(2), scores.logsumexp(2) * counted)


def test_metrics_of_nothing(layer):
    """All targets ignored: zeros, as of ignored targets beside others."""
    features, target, _ = tokens(3)
    _, metrics = layer.nll(features, target.fill_(2), ignore_index=2, return_metrics=True)
    assert metrics["nll"].equal(torch.zeros(3, dtype=torch.float64))


def test_tied_with_an_embedding():
    """One matrix, whose gradient is the sum of both uses'; training moves both."""
    torch.manual_seed(0)
    embedding, layer = nn.Embedding(WORDS, DIM), GeneralizedSoftmax(DIM, WORDS, "lin,log")
    layer.weight = embedding.weight
    words, target = torch.tensor([3, 1, 8]), torch.tensor([2, 1, 4])
    loss, plain = layer.nll(embedding(words), target), each_token(layer, embedding(words), target).sum()
    for ours, wanted in zip(gradients(loss, *layer.parameters()), gradients(plain, *layer.parameters())):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5)
    loss.backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    assert embedding.weight is layer.weight


class Model(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.hidden, self.layer = nn.Linear(DIM, DIM), layer

    def forward(self, inputs, target):
        return self.layer.nll(self.hidden(inputs).tanh(), target) / 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", ["mixture", "taylor", "kerbs"])
def test_compiled_models_have_their_gradients(name, backend):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = Model(LAYERS[name]())
    inputs, target = torch.randn(5, DIM), torch.randint(WORDS, (5,))
    plain = model(inputs, target)
    wanted = gradients(plain, *model.parameters())
    try:
        compiled = torch.compile(model, backend=backend)(inputs, target)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        pytest.skip(f"no compiler for {backend} here: {str(error).splitlines()[0]}")
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
    features, target, _ = tokens()
    for wrong in (target.double(), target > 3):
        with pytest.raises(ValueError, match=r"target of torch\.\w+ is not allowed.*torch\.long"):
            layer.nll(features, wrong)
    torch.testing.assert_close(layer.nll(features, target.int()), layer.nll(features, target))
    with pytest.raises(ValueError, match="target is a list; give a tensor"):
        layer.nll(features, target.tolist())


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_parameters_of_a_functional_call(layer, reduction):
    """With which the losses of single tokens are computed again in backward, when the layer has its own parameters."""
    features, target, _ = tokens()
    given = {f"0.{name}": (1.7 * p.detach() + 0.1).requires_grad_() for name, p in layer.named_parameters()}

    class Loss(nn.Sequential):
        def forward(self, plain):
            if plain:
                return each_token(self[0], features, target).sum()
            return self[0].nll(features, target, reduction=reduction).sum()

    ours, plain = (torch.func.functional_call(Loss(layer), given, plain) for plain in (False, True))
    torch.testing.assert_close(ours, plain, rtol=1e-11, atol=1e-11)
    inputs = [features, *given.values()]
    for actual, wanted in zip(gradients(ours, *inputs), gradients(plain, *inputs)):
        torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_a_user_s_hooks_run_once(reduction):
    """On learned hyper-parameters, too, whose gradients the chunks compute by autograd."""
    layer = GeneralizedSoftmax(DIM, WORDS, "lin,rbf", kernel_params="rbf.gamma=learned,rbf.scale=learned").double()
    layer.memory_budget = 2 * layer.row_bytes(torch.float64)
    features, target, _ = tokens()
    wanted = gradients(each_token(layer, features, target).sum(), *layer.parameters())
    calls = []
    for parameter in layer.parameters():
        parameter.register_hook(lambda gradient: calls.append(1) or 2 * gradient)
    layer.nll(features, target, reduction=reduction).sum().backward()
    assert len(calls) == len(wanted)
    for parameter, gradient in zip(layer.parameters(), wanted):
        torch.testing.assert_close(parameter.grad, 2 * gradient, rtol=1e-9, atol=1e-9)


def test_inside_a_checkpoint(layer, monkeypatch):
    """Without reentrance, whose hooks on saved tensors would compute all chunks again for each."""
    passes, loss_pass = [], layer.loss_pass
    monkeypatch.setattr(layer, "loss_pass", lambda *options: passes.append(options) or loss_pass(*options))
    features, target, _ = tokens()
    wanted = gradients(layer.nll(features, target), *layer.parameters())
    passes.clear()
    loss = torch.utils.checkpoint.checkpoint(layer.nll, features, target, use_reentrant=False)
    torch.testing.assert_close(gradients(loss, *layer.parameters()), wanted)
    assert len(passes) in (0, 2)  # the spherical family has none


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_made_without_memory(name, assign):
    """On the meta device, as large models are, and then filled from a checkpoint."""
    features, target, _ = tokens()
    given = LAYERS[name]()
    with torch.device("meta"):
        layer = LAYERS[name]()
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


def test_untied_matrices_that_the_user_ties():
    features, target, _ = tokens()
    layer = GeneralizedSoftmax(DIM, WORDS, "lin,log", untied=True).double()
    layer.untied_weights[0] = layer.weight
    losses = layer.nll(features, target), each_token(layer, features, target).sum()
    [actual], [wanted] = (gradients(loss, layer.weight) for loss in losses)
    torch.testing.assert_close(actual, wanted, rtol=1e-11, atol=1e-11)


def test_a_layer_made_in_inference_mode(layer):
    features, target, _ = tokens()
    with torch.inference_mode():
        made = type(layer)(DIM, WORDS).double().eval()
        losses = made.nll(features, target), each_token(made, features, target).sum()
    torch.testing.assert_close(*losses, rtol=1e-11, atol=1e-11)


def test_an_average_of_buffers_is_a_checkpoint_of_the_layer(layer):
    """By torch's AveragedModel; fairseq's leaves out what has "version" in its name."""
    average = swa_utils.AveragedModel(layer, use_buffers=True, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9999))
    for _ in range(5):
        average.update_parameters(layer)
    copy.deepcopy(layer).load_state_dict(average.module.state_dict())


def test_evaluate_checks_its_arguments(layer):
    features, target, _ = tokens()
    with pytest.raises(ValueError, match=r"target of shape \(6,\) doesn't fit features of shape \(7, 6\)"):
        layer.evaluate(features, target[:6])
    with pytest.raises(ValueError, match="target -100 is not one of the 9 words"):
        layer.evaluate(features, torch.full_like(target, -100))


def test_complex_features(layer):
    features, target, _ = tokens()
    with pytest.raises(ValueError, match="features of torch.complex128 are not allowed: give real numbers"):
        layer.nll(features + 1j, target)


@pytest.mark.parametrize("theta", [float("nan"), 31, -1e300])
def test_theta_is_a_number_that_can_learn(theta):
    with pytest.raises(ValueError, match=re.escape(f"theta={theta:g} is not allowed: give a finite number, from -30")):
        KerBSoftmax(DIM, WORDS, theta=theta)


@pytest.mark.parametrize("layer", [GeneralizedSoftmax(DIM, WORDS, "lin,log").double(),
                                   KerBSoftmax(DIM, WORDS, bias=True).double()], ids=["mixture", "kerbs"])  # fmt: skip
def test_a_barred_word(layer):
    """A bias of -inf: the word has probability 0, and forward the loss's gradients."""
    features, target, _ = tokens()
    barred = (int(target.max()) + 1) % WORDS
    with torch.no_grad():
        layer.bias[barred] = -torch.inf
        assert layer(features).exp()[:, barred].max() == 0
    target = torch.where(target == barred, (target + 1) % WORDS, target)
    parts = [features.requires_grad_(), *layer.parameters()]
    losses = layer.nll(features, target), F.nll_loss(layer(features), target, reduction="sum")
    torch.testing.assert_close(*(torch.autograd.grad(loss, parts) for loss in losses), rtol=1e-9, atol=1e-9)


def test_copies_have_nothing_cached():
    layer = GeneralizedSoftmax(DIM, WORDS, "log").half().eval()
    size = len(pickle.dumps(layer))
    with torch.no_grad():
        layer(tokens()[0])
    assert len(pickle.dumps(layer)) == size and copy.deepcopy(layer)._cached is None


def test_weights_of_another_shape(layer):
    features, target, weight = tokens()
    with pytest.raises(ValueError, match=r"token_weight of shape \(6,\) doesn't fit features of shape \(7, 6\)"):
        layer.nll(features, target, token_weight=weight[:6])


def test_a_second_derivative_says_what_to_do(layer):
    features, target, _ = tokens()
    [gradient] = torch.autograd.grad(layer.nll(features, target), features, create_graph=True)
    with pytest.raises(RuntimeError, match=r"no second derivative.*layer\(features\)"):
        gradient.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kernels", ["lin", "3xlin,log", "ssg"])
def test_half_precision_products(monkeypatch, kernels, dtype):
    """As under autocast on CUDA, here with the rounding emulated: loss and gradients near those of float64."""
    torch.manual_seed(0)
    exact = GeneralizedSoftmax(32, 3000, kernels).double()
    layer = GeneralizedSoftmax(32, 3000, kernels)
    layer.load_state_dict(exact.state_dict())
    monkeypatch.setattr(layer, "product_dtype", lambda features: dtype)
    features, target = torch.randn(50, 32, dtype=torch.float64, requires_grad=True), torch.randint(3000, (50,))
    low = features.detach().float().requires_grad_()
    tolerance = 4 * torch.finfo(dtype).eps
    loss, wanted = layer.nll(low, target), exact.nll(features, target)
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(wanted.item(), rel=tolerance)
    for ours, right in zip(gradients(loss, low, *layer.parameters()), gradients(wanted, features, *exact.parameters())):
        assert ((ours - right).norm() / right.norm()).item() < 2 * tolerance
