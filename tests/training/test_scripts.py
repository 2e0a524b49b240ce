"""A training by scripts/train_lm.sh and its evaluation: what they say, and what a second call or a stop does."""

import fcntl
import math
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from fairseq.data.data_utils import load_indexed_dataset
from fairseq_commands import USER_DIR, script


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_training(number, lm_data, tmp_path):
    command = ["bash", USER_DIR.parent / "scripts" / "train_lm.sh", lm_data, "--profile", "cpu", "--log-interval", "1"]
    command += ["--save-dir", tmp_path / "a", "--max-update", "1000000"]
    environment = {**os.environ, "PYTHON_BIN": sys.executable}
    training = subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    while "update " not in training.stdout.readline():
        assert training.poll() is None
    training.send_signal(number)
    _, err = training.communicate()
    assert training.returncode == 1
    assert err == "train_lm.sh: interrupted; the same command goes on from the last checkpoint\n"


def test_a_finished_training_stays_as_it_is(lm_data, tmp_path):
    """And what it and its evaluation say: lines of progress, one of the result, and where the log is."""
    small = ["--decoder-embed-dim", 8, "--decoder-hidden-size", 8, "--decoder-out-embed-dim", 8, "--max-update", 4]
    command = ["train_lm", lm_data, "--profile", "cpu", *small, "--log-interval", 1, "--save-dir", tmp_path]
    code, out, err = script(*command)
    assert code == 0, err
    assert "update 4 of 4, training perplexity " in out
    assert re.fullmatch(rf"valid perplexity [\d.]+ after 4 updates \(log: {tmp_path}/train.log\)", out.splitlines()[-1])
    checkpoint = (tmp_path / "checkpoint_last.pt").read_bytes()
    code, out, err = script(*command)
    assert code == 0 and f"the training in {tmp_path} is finished (4 updates); to train it further, raise" in out
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == checkpoint
    (tmp_path / "checkpoint_last.pt").write_bytes(checkpoint[:3000])
    code, out, err = script(*command[:-4], "--max-update", 6, *command[-4:])
    assert (
        code == 0 and f"resumes after 4 updates from {tmp_path}/checkpoint_best.pt" in out and "after 6 updates" in out
    )
    evaluation = ["evaluate_lm", lm_data, tmp_path / "checkpoint_best.pt"]
    code, out, err = script(*evaluation)
    assert re.fullmatch(r"test perplexity [\d.]+ \([\d,]+ words with line ends\) \(log: .*\)\n", out), err
    log = tmp_path / "checkpoint_best.pt.test.log"
    before = log.read_text()
    refused = ["--num-shards=2"], ["--shard-id=1"], ["--add-bos-token"], ["--prefix-size", 1], ["--shorten-method=none"]
    for option in refused:
        code, out, err = script(*evaluation, *option)
        assert code == 1 and f"{str(option[0]).partition('=')[0]} is not allowed" in err and log.read_text() == before

    # other hyper-parameters are said; other data refused, and other words in the evaluation
    code, out, err = script(*command[:-4], "--kernel-params", "lin.scale=2", "--max-update", 8, *command[-4:])
    assert code == 0 and "the checkpoint was trained with " in out and "scale=2" in out
    other = tmp_path / "other"
    shutil.copytree(lm_data, other)
    (other / "dict.txt").write_text((other / "dict.txt").read_text().replace("w", "v"))
    code, out, err = script(command[0], other, *command[2:])
    assert code == 1 and f"{tmp_path} was begun on data " in err and "name another --save-dir" in err
    code, out, err = script("evaluate_lm", other, evaluation[-1])
    assert code == 1 and "was trained with another dictionary than that of" in err


def test_copies_that_an_interruption_left_out_are_made(lm_data, tmp_path):
    """fairseq writes checkpoint_1_4.pt, and copies it to checkpoint_best.pt and checkpoint_last.pt."""
    small = ["--decoder-embed-dim", 8, "--decoder-hidden-size", 8, "--decoder-out-embed-dim", 8, "--lr", 0.1]
    small += ["--warmup-updates", 0, "--save-interval-updates", 2]
    best, last, first = (tmp_path / f"checkpoint_{name}.pt" for name in ("best", "last", "1_4"))
    command = ["train_lm", lm_data, "--profile", "cpu", *small, "--save-dir", tmp_path, "--max-update"]
    assert script(*command, 2)[0] == 0
    older = best.read_bytes()
    assert script(*command, 4)[0] == 0
    newer = last.read_bytes()
    assert best.read_bytes() == newer != older
    first.write_bytes(newer)
    for content in (None, older):
        for path in (best, last):
            path.unlink()
            if content:
                path.write_bytes(content)
                os.utime(path, (1, 1))
        code, out, err = script(*command, 4)
        assert code == 0 and "is finished (4 updates)" in out, out + err
        assert best.read_bytes() == last.read_bytes() == newer


def test_all_words_are_evaluated(lm_data, tmp_path):
    """Of a transformer that takes shorter blocks than the evaluation's: in its own; longer ones are refused."""
    small = ["--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8, "--decoder-attention-heads", 2, "--max-update", 2]
    small = ["--arch", "kernel_transformer_lm", *small, "--tokens-per-sample", 20]
    code, _, err = script("train_lm", lm_data, *small, "--save-dir", tmp_path)
    assert code == 0, err
    evaluation = ["evaluate_lm", lm_data, tmp_path / "checkpoint_best.pt"]
    code, out, err = script(*evaluation)
    test = load_indexed_dataset(str(lm_data / "test"))
    assert code == 0 and f"({test.sizes.sum():,} words with line ends)" in out, out + err
    code, out, err = script(*evaluation, "--tokens-per-sample", 35)
    assert code == 1 and not out and re.search(r"\d+ blocks of test are longer than the 20 words that the model", err)
    code, out, err = script(*evaluation, "--path", evaluation[-1])
    assert code == 1 and "--path is not allowed; give the checkpoint after DATA" in err


def test_a_training_that_diverges_is_no_success(lm_data, tmp_path):
    diverging = ["--lr", 1e30, "--clip-norm", 0, "--max-update", 2]
    code, out, err = script("train_lm", lm_data, "--profile", "cpu", *diverging, "--save-dir", tmp_path / "a")
    assert code == 1 and "the training diverged" in err and "lower --lr" in err, out + err


def test_two_evaluations_at_once(lm_data, mixture_lm, tmp_path):
    checkpoint = shutil.copy(mixture_lm.last, tmp_path / "model.pt")
    with open(f"{checkpoint}.test.log.part", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        code, _, err = script("evaluate_lm", lm_data, checkpoint)
    assert code == 1 and "another process is writing" in err and "wait for it" in err
    assert script("evaluate_lm", lm_data, checkpoint)[0] == 0


def test_a_broken_model_has_no_perplexity(lm_data, mixture_lm, tmp_path):
    state = torch.load(mixture_lm.last, weights_only=True)
    for value in state["model"].values():
        if value.is_floating_point():
            value.fill_(math.nan)
    torch.save(state, tmp_path / "nan.pt")
    code, out, err = script("evaluate_lm", lm_data, tmp_path / "nan.pt")
    assert code > 0 and not out and "the model gives NaN: its training diverged" in err
    assert [path.name for path in tmp_path.iterdir()] == ["nan.pt"]  # no log that says no more


def test_the_quickstart_s_folder_is_where_it_is_called(tmp_path):
    """Not in the clone, whose set-up and Python do nothing here."""
    clone = tmp_path / "clone"
    shutil.copytree(USER_DIR.parent / "scripts", clone / "scripts")
    (clone / "scripts" / "setup.sh").write_text("")
    (tmp_path / "python").write_text('#!/bin/sh\n[ "$1" = -c ]\n')
    (tmp_path / "python").chmod(0o755)
    command = ["bash", clone / "scripts" / "quickstart.sh"]
    for given, made in ((["here"], "here"), ([tmp_path / "there"], "there"), ([], "clone/quickstart")):
        subprocess.run([*command, *given], cwd=tmp_path, env={**os.environ, "PYTHON_BIN": str(tmp_path / "python")})
        assert (tmp_path / made).is_dir()
    assert not (clone / "here").exists()
