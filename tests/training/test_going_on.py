"""Trainings stopped and started again by the same command go on as if nothing had happened, and not past their end."""

import os
import shutil
import signal
import subprocess

import pytest
import torch
from fairseq_commands import USER_DIR, fairseq, later, lm_training, logged, succeeded
from forked_python import forked_python

from fairseq_kernels import fairseq_plugin  # noqa: F401
from fairseq_kernels.checkpoint import place

MIXTURE = ("--kernels", "lin,rbf", "--kernel-params", "rbf.gamma=learned", "--decoder-dropout-in", 0.1)
KERBS = ("--output-layer", "kerbs", "--criterion", "kerbs_cross_entropy", "--kerbs-reallocate-every", 4)
WAYS = {
    "from the middle of an epoch": (*MIXTURE, "--save-interval-updates", 3),
    "kerbs": (*KERBS, "--kerbs-share", 0.1, "--save-interval-updates", 5),
    "fused_adamw": (*MIXTURE, "--optimizer", "fused_adamw", "--save-interval-updates", 5),
    "plateau": (*MIXTURE, "--lr-scheduler", "reduce_lr_on_plateau", "--lr-threshold", 0.9, "--lr-shrink", 0.5),
}
# fairseq makes batches in the first epoch it sees, which would be the second after a restart
BATCHES = ("--update-epoch-batch-itr", True)


def same(one, other) -> bool:
    """Of nested containers: every tensor and number, bit by bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, (dict, list)):
        keys = one.keys() if isinstance(one, dict) else range(len(one))
        return len(one) == len(other) and all(same(one[key], other[key]) for key in keys)
    return one == other


@pytest.fixture(scope="module")
def runs(lm_data, tmp_path_factory):
    """Trainings that nothing stops, and ones that are killed before their 15th update; queued."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        (way, kill): (folder / f"{way}-{kill}", later(
            *lm_training(lm_data, folder / f"{way}-{kill}", *BATCHES, *options), kill_at=kill))
        for way, options in WAYS.items() for kill in (None, 15)
    }  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_killed_and_gone_on(way, runs, lm_data):
    """Parameters, moments of the optimizer, learning rate, best loss and last figures, to the last bit."""
    (whole, unbroken), (broken, killed) = runs[way, None], runs[way, 15]
    assert killed.result().code == -9 and list(broken.glob("checkpoint_last.pt"))
    resumed = fairseq(*lm_training(lm_data, broken, *BATCHES, *WAYS[way]))
    assert "resumes after" in resumed.text
    names = ("loss", "nll_loss", "ppl", "num_updates", "lr")
    for kind in ("train", "valid"):
        lines = [logged(result, kind)[-1] for result in (succeeded(unbroken.result()), resumed)]
        assert all(lines[0].get(name) == lines[1].get(name) for name in names), lines
    one, other = (torch.load(folder / "checkpoint_last.pt", weights_only=True) for folder in (whole, broken))
    for name in ("model", "last_optimizer_state"):
        assert same(one[name], other[name]), name
    for name in ("train_iterator", "val_loss", "best"):
        assert one["extra_state"][name] == other["extra_state"][name], name
    schedules = [content["optimizer_history"][-1]["lr_scheduler_state"] for content in (one, other)]
    assert schedules[0].get("best") == schedules[1].get("best")


def test_patience(lm_data, tmp_path):
    """Is kept with the checkpoint: an interruption changes nothing, and the training stays ended."""
    options = ("--lr", 1e-9, "--save-interval-updates", 2, "--patience", 3, "--max-update")
    updates = {}
    for folder, ends in (("whole", [40]), ("broken", [4, 40, 41])):
        for end in ends:
            result = fairseq(*lm_training(lm_data, tmp_path / folder, *options, end))
        updates[folder] = place(tmp_path / folder / "checkpoint_last.pt")[1]
    assert updates["broken"] == updates["whole"] < 40
    assert "is finished" in result.text


def test_a_finished_training_stays_as_it_is(mixture_lm, lm_data, tmp_path):
    """Given again, also of two commands' folders; copies that an interruption left out are made, and only then."""
    folder = shutil.copytree(mixture_lm.folder, tmp_path / "model")
    last, best = (folder / f"checkpoint_{name}.pt" for name in ("last", "best"))
    again = lm_training(lm_data, folder, "--kernels", "2xlin,log")
    content = last.read_bytes()
    assert "is finished (20 updates)" in fairseq(*again).text and last.read_bytes() == content
    (folder / "checkpoint_1_20.pt").write_bytes(content)  # its name is one of --save-interval-updates
    is_best = best.read_bytes() == content
    for path in (last, best):
        path.unlink()
    assert "is finished (20 updates)" in fairseq(*again).text and last.read_bytes() == content
    assert best.exists() == is_best and (not is_best or best.read_bytes() == content)
    (folder / "checkpoint_1_20.pt").unlink()
    last.write_bytes(content[:3000])
    best.write_bytes(content)
    os.utime(best, (1, 1))
    result = fairseq(*again, "--max-update", 22)
    assert "is damaged" in result.text and "resumes after 20 updates" in result.text and place(last)[1] == 22


def test_ctrl_c_of_two_processes(lm_data, tmp_path):
    """A terminal sends it to every process; there is one line."""
    _, *words = lm_training(lm_data, tmp_path, "--max-update", 10**6, "--distributed-world-size", 2, "--num-workers", 0)
    program = [forked_python(), "-m", "fairseq_cli.train", *words, "--cpu", "--user-dir", USER_DIR]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    training = subprocess.Popen([*map(str, program)], **pipes)
    while "train_inner" not in training.stdout.readline():
        assert training.poll() is None, training.stderr.read()
    os.killpg(training.pid, signal.SIGINT)
    _, err = training.communicate()
    assert training.returncode and err == "interrupted; the same command goes on from the last checkpoint\n"
