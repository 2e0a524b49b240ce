"""KerBS: kernel, distribution, loss and gradients against the paper's equations, and the allocation of senses."""

import copy
import subprocess

import pytest
import torch
from forked_python import forked_python
from layer_checks import gradients, tokens

from fairseq_kernels import AllocationSettings, KerBSoftmax
from fairseq_kernels.models.sense_embedding import SenseEmbedding
from fairseq_kernels.output_layers.kerbs import bayesian_kernel

THETAS = (-5.0, -1.0, -0.3, -1e-2, -1e-5, 0.0, 1e-9, 1e-4, 5e-3, 2e-2, 0.5, 1.0, 5.0)


def make(words=11, dim=7, senses=25, seed=0, thetas=(-5.0, 5.3), dtype=torch.float64, **options):
    """A layer with random vectors and biases, its theta spread evenly past 0, its senses at random words."""
    torch.manual_seed(seed)
    layer = KerBSoftmax(dim, words, senses=senses, **options).to(dtype)
    with torch.no_grad():
        layer.weight.normal_()
        if layer.theta is not None:
            layer.theta.copy_(torch.linspace(*thetas, senses))
        if layer.bias is not None:
            layer.bias.normal_()
        layer.sense_word[words:] = torch.randint(words, (senses - words,))
    return layer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kernel_around_zero(dtype):
    """The series c + theta (c/3 - c^2/2), in value and slope, through 0."""
    cosine = torch.linspace(-1, 1, 21, dtype=dtype).unsqueeze(1)
    theta = torch.tensor([-1e-5, 0.0, 1e-12, 1e-5], dtype=dtype, requires_grad=True)
    value = bayesian_kernel(cosine, theta)
    slope = cosine / 3 - cosine.square() / 2
    torch.testing.assert_close(value, cosine + theta * slope, rtol=1e-6, atol=1e-6)
    [gradient] = torch.autograd.grad(value.sum(), theta)
    torch.testing.assert_close(gradient, slope.sum().expand(4), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_theta_s_gradient(theta, smoothing):
    """From -5 to 5 through 0, against central differences, where one sense has it and where all have."""
    for everywhere in (True, False):
        layer = make(thetas=(theta, theta) if everywhere else (-2.0, 3.0))
        layer.theta.data[4] = theta
        features, target = tokens(9, 7, 11)
        [gradient] = torch.autograd.grad(layer.nll(features, target, label_smoothing=smoothing), [layer.theta])
        values = []
        for step in (1e-4, -1e-4):
            layer.theta.data[4] = theta + step
            values.append(layer.nll(features, target, label_smoothing=smoothing).item())
        assert gradient[4].item() == pytest.approx((values[0] - values[1]) / 2e-4, rel=1e-5, abs=1e-7)


def test_theta_s_gradient_near_0():
    """Where it comes from a series, 1.2e-4 at most in float64: to all digits that autograd gives by the kernel's."""
    layer = make(thetas=(-1.1e-4, 1.1e-4))
    features, target = tokens(9, 7, 11)
    by_kernel = torch.autograd.grad(-layer(features).gather(1, target.unsqueeze(1)).sum(), layer.theta)
    by_loss = torch.autograd.grad(layer.nll(features, target), layer.theta)
    torch.testing.assert_close(by_loss, by_kernel, rtol=1e-11, atol=1e-11)


def test_extreme_theta_and_norms_are_finite():
    layer = make(thetas=(-200.0, 200.0), dtype=torch.float32)
    for scale in (0, 1e-4, 1e3):
        features = (torch.randn(5, 7) * scale).requires_grad_()
        value = layer.nll(features, torch.arange(5))
        assert all(part.isfinite().all() for part in [value, *gradients(value, features, *layer.parameters())])


def test_the_table_follows_the_senses():
    layer = make()
    for _ in range(2):
        table = layer.word_senses()
        for word in range(11):
            own = [sense for sense in table[word].tolist() if sense >= 0]
            assert own == (layer.sense_word == word).nonzero().squeeze(1).tolist()
        layer.sense_word[20] = (layer.sense_word[20] + 1) % 11


@pytest.mark.parametrize("option", ["every", "rate", "minimum", "maximum", "share", "frequent"])
def test_wrong_allocation_settings(option):
    with pytest.raises(ValueError, match=f"{option}=0 is not allowed"):
        AllocationSettings(**{option: 0})


def allocated(words=6, dim=4, senses=12, seed=0, **settings):
    settings = {"every": 5, "rate": 0.5, "share": 0.5, "frequent": 1.0, **settings}
    torch.manual_seed(seed)
    return KerBSoftmax(dim, words, senses=senses, allocation=AllocationSettings(**settings)).train()


def observe(layer, features, target, updates):
    """One training batch as fairseq runs it: the number of updates first."""
    layer.set_num_updates(updates)
    layer.nll(features, target).backward()


def test_moving_averages():
    """Eq. 12 and 13 a token at a time, only where the target is the word; p(s | y) in the place of p(s)."""
    layer = allocated(every=1000)
    torch.manual_seed(5)
    log_probability, usage, seen = torch.zeros(6), torch.zeros(12), set()
    for update in range(4):
        features, target = torch.randn(7, 4), torch.randint(5, (7,))
        observe(layer, features, target, update)
        with torch.no_grad():
            scores, log_p = layer.sense_scores(features), layer(features)
        for word in range(6):
            own = layer.sense_word == word
            tokens = target == word
            if not tokens.any():
                continue
            mean = log_p[tokens, word].mean()
            part = torch.softmax(scores[tokens][:, own], dim=1).mean(0)
            decay = 0.5 ** tokens.sum() if word in seen else 0.0
            log_probability[word] = decay * log_probability[word] + (1 - decay) * mean
            usage[own] = decay * usage[own] + (1 - decay) * part
            seen.add(word)
    layer.set_num_updates(4)
    torch.testing.assert_close(layer.allocation.log_probability, log_probability)
    torch.testing.assert_close(layer.allocation.usage, usage)


def test_micro_batches_are_one_update():
    """Two batches of one update count once each; the same number again, as on loading, changes nothing."""
    once, twice = allocated(every=1000), allocated(every=1000)
    features, target = torch.randn(8, 4), torch.randint(6, (8,))
    observe(once, features, target, 0)
    observe(twice, features[:4], target[:4], 0)
    observe(twice, features[4:], target[4:], 0)
    for layer in (once, twice):
        for _ in range(3):
            layer.set_num_updates(1)
    for name, buffer in once.allocation.named_buffers():
        torch.testing.assert_close(buffer, twice.allocation.get_buffer(name))


def test_what_does_not_count():
    """Validation, a loss whose gradient isn't taken, and a batch that fairseq multiplies by 0."""
    layer = allocated()
    features, target = torch.randn(8, 4), torch.randint(6, (8,))
    layer.eval()
    layer.nll(features, target).backward()
    layer.train()
    layer.nll(features, target)
    (layer.nll(features, target) * 0).backward()
    with torch.no_grad():
        layer.nll(features, target)
    assert not layer.allocation.pending_occurrences.any()
    layer.nll(features, target, reduction="none").sum().backward()
    assert layer.allocation.pending_occurrences.sum() == 8


def test_embeddings_without_a_context_weigh_senses_by_their_use():
    """Eq. 7: word 1 has used its second sense three times as often as its first; word 0, the padding, has three."""
    layer = allocated(senses=13)
    layer.allocation.usage[:2], layer.allocation.usage[7] = 0.2, 0.6
    embedding = SenseEmbedding(layer, padding_idx=0)(torch.tensor([1, 0]))
    torch.testing.assert_close(embedding[0], (layer.weight[1] + 3 * layer.weight[7]) / 4, rtol=5e-3, atol=0)
    assert not embedding[1].any()


def prepared(**settings):
    """Word 5 predicted worst, the second senses of words 0 and 1 idle."""
    layer = allocated(**settings)
    layer.allocation.occurrences.fill_(10)
    layer.allocation.log_probability.copy_(torch.tensor([-1.0, -2, -3, -4, -5, -9]))
    layer.allocation.usage.fill_(0.5)
    layer.allocation.usage[6], layer.allocation.usage[7] = 0.01, 0.02
    return layer


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_least_used_sense_moves_to_the_worst_word(noise):
    """It starts near its new word's most used sense, with an even part of the word, a chance before it moves again; the
    others stay."""
    layer = prepared(share=1 / 6, noise=noise)
    layer.theta.data.copy_(torch.arange(12.0))
    layer.allocation.usage[11] = 0.6  # the sense of word 5 that is used most
    before = copy.deepcopy(layer)
    assert layer.allocation.reallocate(layer, 5) == [(6, 0, 5)]
    assert torch.bincount(layer.sense_word).tolist() == [1, 2, 2, 2, 2, 3]
    difference = layer.weight[6] - layer.weight[11]
    assert (0 < difference.std() < 0.5 * layer.weight[11].std()) if noise else not difference.any()
    assert layer.theta[6] == 11 and layer.allocation.moves == 1
    assert layer.allocation.usage[6] == pytest.approx(1 / 3) and layer.sense_word[6] == 5
    others = [sense for sense in range(12) if sense != 6]
    for name in ("allocation.usage", "weight", "theta", "sense_word"):
        assert torch.equal(layer.state_dict()[name][others], before.state_dict()[name][others])


def test_minimum_and_maximum_hold():
    layer = prepared(minimum=1, maximum=3)
    moved, reached = 0, set()
    for update in range(20):
        layer.allocation.usage.uniform_()
        layer.allocation.log_probability.uniform_(-9, 0)
        moved += len(layer.allocation.reallocate(layer, update))
        counts = torch.bincount(layer.sense_word, minlength=6)
        reached |= set(counts.tolist())
        assert counts.min() >= 1 and counts.max() <= 3 and counts.sum() == 12
    assert moved > 10 and reached == {1, 2, 3}


def test_only_frequent_words_get_senses():
    layer = prepared(frequent=0.5, share=0.2)
    layer.allocation.occurrences.copy_(torch.tensor([9.0, 8, 7, 1, 1, 0]))
    assert [word for _, _, word in layer.allocation.reallocate(layer, 5)] == [2]


def test_a_copy_has_its_own_senses():
    """Not the table of the words' senses that the original had before its last checkpoint."""
    layer, first, second = make(seed=0), make(seed=1), make(seed=2)
    features, target = torch.randn(5, 7, dtype=torch.float64), torch.arange(5)
    layer.load_state_dict(first.state_dict())
    layer.nll(features, target)
    layer.load_state_dict(second.state_dict())
    torch.testing.assert_close(copy.deepcopy(layer).nll(features, target), second.nll(features, target))


@pytest.mark.parametrize("made", [lambda layer: layer, copy.deepcopy], ids=["as it is", "copy"])
def test_moments_of_moved_senses_are_cleared(made):
    layer = made(prepared(share=1 / 6, every=3))
    adam = torch.optim.Adam(layer.parameters(), lr=0.0)
    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    for update in range(1, 3):
        observe(layer, torch.randn(8, 4), torch.randint(6, (8,)), update)
        adam.step()
    before = {name: adam.state[layer.weight][name].clone() for name in ("exp_avg", "exp_avg_sq")}
    layer.zero_grad()
    layer.set_num_updates(3)
    [sense] = layer.allocation.moved.tolist()
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    other.param_groups[0]["params"][0].grad = torch.ones(2)
    other.step()
    adam.step()
    for name, decay in (("exp_avg", 0.9), ("exp_avg_sq", 0.999)):
        assert before[name][sense].any()
        assert not adam.state[layer.weight][name][sense].any()
        assert not adam.state[layer.theta][name][sense].any()
        others = [other for other in range(12) if other != sense]
        torch.testing.assert_close(adam.state[layer.weight][name][others], decay * before[name][others])
    layer.set_num_updates(4)
    assert layer.allocation.moved is None


def test_a_batch_of_infinite_loss_does_not_count():
    """--amp skips it, and the training goes on."""
    layer = allocated()
    observe(layer, torch.tensor([[torch.inf, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]), torch.tensor([1, 2]), 0)
    observe(layer, torch.ones(1, 4), torch.tensor([3]), 1)
    layer.set_num_updates(2)
    assert layer.allocation.occurrences.tolist() == [0, 0, 0, 1, 0, 0]
    assert all(value.isfinite().all() for value in layer.state_dict().values())


def test_a_first_evaluation_in_inference_mode():
    """And a layer that is made and loaded there."""
    other = make(seed=1)
    features, target = tokens(7, 7, 11)
    with torch.inference_mode():
        other.nll(features, target)
        layer = make()
        layer(features)
        layer.load_state_dict(other.state_dict())
        torch.testing.assert_close(layer(features), other(features))
    other(features).sum().backward()
    assert other.weight.grad.isfinite().all()


def test_pending_sums_of_a_checkpoint_count_once(monkeypatch):
    """They are one process's, and all load them."""
    layer = allocated()
    observe(layer, torch.ones(1, 4), torch.tensor([3]), 0)
    for rank in (0, 1):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        loaded = allocated()
        loaded.load_state_dict(layer.state_dict())
        assert loaded.allocation.pending_occurrences.sum() == 1 - rank


def test_averaged_checkpoints_are_refused():
    """Where they leave a word without a sense."""
    layer = allocated()
    state = layer.state_dict()
    state["sense_word"] = state["sense_word"].clamp_max(4)
    with pytest.raises(ValueError, match="words without a sense: .* can't be averaged"):
        layer.load_state_dict(state)


def test_senses_that_move_may_stay_from_a_checkpoint_on_and_the_reverse():
    moving, staying = allocated(), KerBSoftmax(4, 6, senses=12)
    moving.allocation.usage.fill_(0.5)
    staying.load_state_dict(moving.state_dict())
    assert staying.weight.equal(moving.weight)
    moving.load_state_dict(staying.state_dict())
    assert moving.allocation.usage.eq(0.5).all()


def test_half_precision_parameters_are_refused():
    """At the first batch, not at the first reallocation."""
    layer = prepared().half()
    assert layer.allocation.usage.dtype == torch.float32
    with pytest.raises(ValueError, match="--amp"):
        layer.set_num_updates(0)


def test_vectors_of_length_zero():
    layer = make(dtype=torch.float32)
    with torch.no_grad():
        layer.weight[3] = 0
    features = torch.zeros(2, 7)
    torch.testing.assert_close(layer(features).exp().sum(1), torch.ones(2))
    losses = layer.nll(features, torch.tensor([3, 4]), reduction="none")
    torch.testing.assert_close(losses, -layer(features)[[0, 1], [3, 4]])


TWO_PROCESSES = """
import sys, torch
from torch import distributed
from fairseq_kernels import AllocationSettings, KerBSoftmax
rank = int(sys.argv[1])
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
torch.manual_seed(0)
settings = AllocationSettings(every=2, share=0.5, frequent=1.0, rate=0.3)
layer = KerBSoftmax(4, 6, senses=12, allocation=settings)
torch.manual_seed(7)
batches = [(torch.randn(8, 4), torch.randint(6, (8,))) for _ in range(12)]
for update in range(6):
    features, target = batches[2 * update + rank]
    layer.set_num_updates(update)
    layer.nll(features, target).backward()
layer.set_num_updates(6)
torch.save(layer.state_dict(), f"{sys.argv[2]}.{rank}")
distributed.barrier()
distributed.destroy_process_group()
"""


def test_two_processes_reallocate_identically(tmp_path):
    """And as one process that sees both batches."""
    command = [forked_python(), "-c", TWO_PROCESSES]
    processes = [subprocess.Popen([*command, str(rank), str(tmp_path / "meeting")]) for rank in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    first, second = (torch.load(tmp_path / f"meeting.{rank}") for rank in range(2))
    layer = allocated(every=2, rate=0.3)
    torch.manual_seed(7)
    for update in range(12):
        observe(layer, torch.randn(8, 4), torch.randint(6, (8,)), update // 2)
    layer.set_num_updates(6)
    assert layer.allocation.moves > 0
    for name, value in layer.state_dict().items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(value, first[name])
