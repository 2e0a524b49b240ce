"""The optimizer of the profiles: fairseq's Adam but for where epsilon is added, and checkpoints that go on."""

from argparse import Namespace

import pytest
import torch
from fairseq.optim.adam import FairseqAdam
from fairseq.optim.amp_optimizer import AMPOptimizer

import fairseq_kernels.fairseq_plugin  # noqa: F401
from fairseq_kernels.optim.fused_adamw import FusedAdamW

CONFIG = Namespace(lr=[0.01], adam_betas="(0.9, 0.98)", adam_eps=1e-12, weight_decay=0.0, tpu=False,
                   use_old_adam=False, fp16_adam_stats=False)  # fmt: skip


def steps(optimizer, weight_decay):
    """Two tensors after five steps of an optimizer on fixed gradients."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(5, 3)), torch.nn.Parameter(torch.randn(7))]
    own = optimizer(Namespace(**{**vars(CONFIG), "weight_decay": weight_decay}), parameters)
    for _ in range(5):
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        own.set_lr(own.get_lr() * 0.9)
        own.step()
    return parameters


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_are_fairseq_s(weight_decay):
    torch.testing.assert_close(steps(FusedAdamW, weight_decay), steps(FairseqAdam, weight_decay), rtol=1e-5, atol=1e-6)
    for option in ("fp16_adam_stats", "use_old_adam"):
        with pytest.raises(SystemExit, match=f"--{option.replace('_', '-')} "):
            FusedAdamW(Namespace(**{**vars(CONFIG), option: True}), [])


def test_amp_divides_by_the_loss_scale_once():
    """fairseq's trainer clips, then steps; each divided the gradients."""
    parameter = torch.nn.Parameter(torch.zeros(3))
    own = FusedAdamW(CONFIG, [parameter])
    amp = object.__new__(AMPOptimizer)
    amp.fp32_optimizer, amp.min_loss_scale = own, 1e-4
    amp._grad_scaler = torch.amp.GradScaler("cpu", init_scale=128)
    amp.scaler.scale((parameter * torch.tensor([1e-1, 1e-3, 1e-5])).sum()).backward()
    amp.clip_grad_norm(0.0)
    amp.step()
    torch.testing.assert_close(parameter.data, torch.full((3,), -0.01), rtol=1e-4, atol=0)
