"""Mistakes that users make end in one line that names them and a non-zero exit, not in a traceback."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import binarise
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_commands import LM_TASK, USER_DIR, fairseq, later, lm_training, mt_training, start

from fairseq_kernels import KERNELS, fairseq_plugin  # noqa: F401

KERBS = "--output-layer kerbs --criterion kerbs_cross_entropy"
TAYLOR = "--output-layer taylor --criterion log_taylor_softmax"
SPHERICAL = "--output-layer spherical --criterion log_spherical_softmax"
SQUARED = "--output-layer squared-error --criterion squared_error_of_outputs"
# options of fairseq-train on a language model, and what the line must say
OPTIONS = {
    "--kernels gauss": ["gauss", "lin", "wav"],
    "--kernels 99999999999xlin": ["99999999999"],
    "--kernel-params log.q=2": ["log.q", "log.p"],
    "--kernels lin --kernel-params log.p=3": ["log.p"],
    "--kernels log --kernel-params log.p=2,log.p=3": ["log.p"],
    "--kernels pol --kernel-params pol.p=1.5": ["pol.p=1.5"],
    "--kernels pol --kernel-params pol.p=1000000": ["pol.p=1e+06"],
    "--kernels rbf --kernel-params rbf.gamma=1e300": ["rbf.gamma=1e+300"],
    "--kernels mog --kernel-params mog.components=9": ["mog", "18", "16"],
    "--output-bias maybe": ["--output-bias maybe", "prior"],
    "--output-memory-mib 0": ["--output-memory-mib 0"],
    "--residuals": ["unrecognized arguments: --residuals"],
    "--adaptive-softmax-cutoff 5,10": ["--adaptive-softmax-cutoff"],
    "--output-dictionary-size 10": ["--output-dictionary-size 10"],
    "--share-decoder-input-output-embed --decoder-out-embed-dim 8": ["sharing", "16", "8"],
    "--label-smoothing 1.5": ["--label-smoothing 1.5"],
    "--label-smoothing 1": ["--label-smoothing 1.0"],
    "--pi-variance-weight -1": ["--pi-variance-weight -1"],
    "--epsilon 0.1": ["--epsilon", "--output-layer spherical"],
    "--senses 2x": ["--senses", "--output-layer kerbs"],
    "--output-layer tailor": ["tailor", "taylor"],
    "--arch kernel_lstm": ["kernel_lstm_"],
    "--arch lstm_lm": ["--criterion cross_entropy"],
    "--arch transformer_lm": ["--criterion cross_entropy"],
    "--arch kernel_transformer_lm --adaptive-softmax-cutoff 5,10": ["--adaptive-softmax-cutoff"],
    "--arch kernel_transformer_lm --adaptive-input --tie-adaptive-weights": ["--tie-adaptive-weights"],
    "--arch kernel_transformer_lm --base-layers 1": ["--base-layers 1"],
    "--criterion kerbs_cross_entropy": ["kernel_mixture_cross_entropy"],
    "--criterion log_taylor_softmax": ["--output-layer kernels", "kernel_mixture_cross_entropy"],
    "--output-layer taylor": ["--output-layer taylor", "log_taylor_softmax"],
    "--output-layer squared-error --criterion log_taylor_softmax": ["squared_error_of_outputs"],
    f"{TAYLOR} --kernels log": ["--kernels", "--output-layer taylor"],
    f"{TAYLOR} --kernel-params lin.scale=2": ["--kernel-params"],
    f"{TAYLOR} --label-smoothing 0.1": ["--label-smoothing 0.1"],
    f"{TAYLOR} --pi-variance-weight 2": ["--pi-variance-weight"],
    f"{SPHERICAL} --untied-projections": ["--untied-projections"],
    f"{SPHERICAL} --epsilon 0": ["epsilon=0"],
    f"{SQUARED} --label-smoothing 0.1": ["--label-smoothing 0.1"],
    f"{KERBS} --senses many": ["--senses many"],
    f"{KERBS} --senses 23": ["--senses 23", "24 words"],
    f"{KERBS} --senses 0.9x": ["--senses 0.9x"],
    f"{KERBS} --kerbs-kernel rbf": ["--kerbs-kernel rbf"],
    f"{KERBS} --kerbs-max-senses 2": ["2"],
    f"{KERBS} --kerbs-input tied": ["--kerbs-input tied"],
    f"{KERBS} --kerbs-input prior --decoder-out-embed-dim 8": ["16", "8"],
    f"{KERBS} --share-decoder-input-output-embed": ["--share-decoder-input-output-embed"],
    f"{KERBS} --kernels log": ["--kernels"],
    f"{KERBS} --epsilon 0.1": ["--epsilon"],
    "--kernles lin": ["--kernles", "--kernels"],
    # numbers, alone and in lists, beyond their bounds
    "--tokens-per-sample 0": ["--tokens-per-sample 0"],
    "--decoder-layers 0": ["--decoder-layers 0"],
    "--batch-size -8": ["--batch-size -8"],
    "--batch-size 100000000000000000000": ["--batch-size"],
    "--max-update -1": ["--max-update -1"],
    "--warmup-updates -1": ["--warmup-updates -1"],
    "--distributed-world-size 0": ["--distributed-world-size 0"],
    "--log-interval 0": ["--log-interval 0"],
    "--num-workers -1": ["--num-workers -1"],
    "--dropout 1.5": ["--dropout 1.5"],
    "--seed 2147483648": ["--seed"],
    "--clip-norm nan": ["--clip-norm nan"],
    "--stop-time-hours nan": ["--stop-time-hours nan"],
    "--update-freq 0": ["--update-freq 0"],
    "--update-freq [2,0]": ["--update-freq 0"],
    "--update-freq 1x": ["--update-freq", "1x"],
    "--lr [0.1,-1]": ["--lr -1"],
    "--lr nan": ["--lr", "nan"],
    "--lr 0.001x": ["--lr", "0.001x"],
    "--lr 1e-": ["--lr", "1e-"],
    "--lr []": ["--lr", "[]"],
    "--max-update 1e3": ["--max-update", "1e3"],
    "--adam-betas (9,9)": ["--adam-betas"],
    "--adam-betas (0.9,1.0)": ["--adam-betas"],
    "--adam-betas (1.0,0.9)": ["--adam-betas"],
    "--adam-betas (0.9,)": ["--adam-betas"],
    "--adam-betas 5": ["--adam-betas"],
    "--adam-betas __import__('os').mkdir('code-ran')": ["--adam-betas"],
}
AT_THE_EDGE = (
    *("--adam-betas (0,0.9999)", "--dropout 1", "--dropout 0", "--label-smoothing 0", "--lr [0]", "--update-freq 1,2"),
    *("--seed 2147483647", "--output-memory-mib 1", "--pi-variance-weight 0", "--max-update 0", "--num-workers 0"),
)


def begun(words) -> None:
    """A training up to its criterion, in this process."""
    args = options.parse_args_and_arch(options.get_training_parser(), [str(word) for word in words])
    cfg = convert_namespace_to_omegaconf(args)
    task = tasks.setup_task(cfg.task)
    task.build_model(cfg.model)
    task.build_criterion(cfg.criterion)


@pytest.mark.parametrize("given", OPTIONS)
def test_option(given, lm_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arch = {"arch": given.split()[1]} if given.startswith("--arch") and "transformer" in given else {}
    _, *words = lm_training(lm_data, tmp_path / "new", *given.split(), **arch)
    with pytest.raises(SystemExit, match="^fairseq_kernels: error: .") as end:
        begun(words)
    assert all(part in end.value.code for part in OPTIONS[given]) and "\n" not in end.value.code
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("given", AT_THE_EDGE)
def test_a_number_at_the_edge_of_what_is_allowed(given, lm_data, tmp_path):
    begun(lm_training(lm_data, tmp_path, *given.split())[1:])


# further training of a saved mixture "2xlin,log"
RESUMING = {
    "--kernels lin,log": ["lin,lin,log", "lin,log", "--save-dir"],
    "--kernels 2xlin,log --output-bias false": ["--output-bias"],
    "--kernels 2xlin,log --untied-projections": ["--untied-projections"],
    "--kernels 2xlin,log --kernel-params log.p=learned": ["--kernel-params"],
    "--kernels 2xlin,log --share-decoder-input-output-embed": ["share"],
    "--kernels 2xlin,log --decoder-layers 1": ["the model in", "--save-dir"],
}


@pytest.fixture(scope="module")
def other_lm_data(tmp_path_factory):
    """A corpus of fewer words."""
    folder = tmp_path_factory.mktemp("other-lm")
    for split in ("train", "valid", "test"):
        (folder / split).write_text("a b c\nb c a\n" * 10)
    return binarise(folder, "data-bin", "--only-source")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("mistakes")


@pytest.fixture(scope="module")
def commands(scratch, lm_data, other_lm_data, mt_data, mixture_lm):
    """fairseq's commands, queued, and what their line must say."""
    nowhere, missing, cut, zeros = (scratch / name for name in ("nowhere", "missing.pt", "cut.pt", "zeros"))
    cut.write_bytes(mixture_lm.last.read_bytes()[:3000])
    shutil.copytree(lm_data, zeros)
    (zeros / "test.bin").write_bytes(bytes((zeros / "test.bin").stat().st_size))
    above = shutil.copytree(lm_data, scratch / "corpus" / "data-bin").parent
    one_sided = shutil.copytree(mt_data, scratch / "no-target")
    (one_sided / "train.de-en.en.idx").unlink()
    # a folder each: fairseq tries whether it may write by a file that it removes again
    folders = (scratch / f"new{number}" for number in itertools.count())
    evaluation = ("--gen-subset", "test", *LM_TASK[2:], "--batch-size", 8, "--path")

    def resuming(data, *given):
        return lm_training(data, shutil.copytree(mixture_lm.folder, next(folders)), *given, "--max-update", 30)

    return {
        name: (later(*command), said)
        for name, command, said in (
            *((f"resuming {given}", resuming(lm_data, *given.split()), said) for given, said in RESUMING.items()),
            ("resuming: other data", resuming(other_lm_data, "--kernels", "2xlin,log"), ["24 words", "8"]),
            ("no data", lm_training(nowhere, next(folders)), ["nowhere", "dict.txt"]),
            ("no parallel data", mt_training(nowhere, next(folders)), ["nowhere"]),
            ("not the data-bin", lm_training(above, next(folders)), [f"did you mean {above}/data-bin?"]),
            ("monolingual data", mt_training(lm_data, next(folders)), ["no parallel text"]),
            ("no target side", mt_training(one_sided, next(folders)), ["no text of the target language"]),
            ("no sentence fits", mt_training(mt_data, next(folders), "--max-tokens", 1), ["--max-tokens"]),
            ("no GPU", lm_training(lm_data, next(folders), "--bf16"), ["--bf16"]),
            ("divergence", lm_training(lm_data, next(folders), "--lr", 1e38), ["diverged", "--lr"]),
            ("a number that is none", lm_training(lm_data, next(folders), "--lr", "1e-"), ["--lr", "1e-"]),
            ("two processes", lm_training(lm_data, next(folders), "--distributed-world-size", 2, "--kernels", "log",
                                          "--kernel-params", "log.p=-1"), ["log.p=-1"]),
            ("a restored file", lm_training(lm_data, next(folders), "--restore-file", cut), ["cut.pt"]),
            ("no restored file", lm_training(lm_data, next(folders), "--restore-file", "none.pt"), ["none.pt"]),
            ("a restored folder", lm_training(lm_data, next(folders), "--restore-file", scratch), [str(scratch)]),
            ("a finetuned file", lm_training(lm_data, next(folders), "--finetune-from-model", cut), ["cut.pt"]),
            ("a finetuned folder", lm_training(lm_data, next(folders), "--finetune-from-model", scratch),
             [str(scratch)]),
            ("eval-lm: no data", ("eval_lm", nowhere, *evaluation, mixture_lm.last), ["nowhere"]),
            ("eval-lm: other data", ("eval_lm", other_lm_data, *evaluation, mixture_lm.last), ["24 words", "8"]),
            ("eval-lm: zeros", ("eval_lm", zeros, *evaluation, mixture_lm.last), ["test.bin is damaged"]),
            ("eval-lm: no checkpoint", ("eval_lm", lm_data, *evaluation, missing), ["missing.pt"]),
            ("eval-lm", ("eval_lm", lm_data, *evaluation, cut), ["cut.pt is damaged"]),
            ("generate: no checkpoint", ("generate", mt_data, "--path", missing), ["missing.pt"]),
            ("generate", ("generate", mt_data, "--path", cut), ["cut.pt is damaged"]),
            ("interactive", ("interactive", mt_data, "--path", cut), ["cut.pt is damaged"]),
        )
    }  # fmt: skip


NAMES = [
    *(f"resuming {given}" for given in RESUMING),
    *("resuming: other data", "no data", "no parallel data", "not the data-bin", "monolingual data", "no target side"),
    *("no sentence fits", "no GPU", "divergence", "a number that is none", "two processes", "a restored file"),
    *("no restored file", "a restored folder", "a finetuned file", "a finetuned folder", "eval-lm: no data"),
    *("eval-lm: other data", "eval-lm: zeros", "eval-lm: no checkpoint", "eval-lm", "generate: no checkpoint"),
    *("generate", "interactive"),
]


@pytest.mark.parametrize("name", NAMES)
def test_command(name, commands):
    queued, said = commands[name]
    result = queued.result()
    assert result.code and result.code > 0, result.text[-2000:]
    lines = {line for line in result.err.splitlines() if not line.startswith("W")}  # gloo's warnings
    assert len(lines) == 1 and all(part in lines.pop() for part in said[:1]), result.err[-2000:]
    assert all(part in result.err for part in said) and "Traceback" not in result.text


def test_refused_trainings_leave_the_checkpoint_alone(commands, scratch, mixture_lm):
    assert set(commands) == set(NAMES)
    for queued, _ in commands.values():
        queued.result()
    checkpoints = list(scratch.glob(f"*/{mixture_lm.last.name}"))
    assert len(checkpoints) == len(RESUMING) + 1
    assert all(checkpoint.read_bytes() == mixture_lm.last.read_bytes() for checkpoint in checkpoints)


def program(*arguments) -> list:
    """fairseq-train as a program of its own, without the tests' shortcuts."""
    command = [sys.executable, "-W", "ignore", "-m", "fairseq_cli.train", *arguments, "--cpu", "--user-dir", USER_DIR]
    return [str(part) for part in command]


def test_a_mistake_as_a_program(tmp_path):
    _, *words = lm_training(tmp_path / "nowhere", tmp_path)
    result = subprocess.run(program(*words), capture_output=True, text=True)
    assert result.returncode == 1 and result.stderr.count("\n") == 1 and "nowhere" in result.stderr


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupted_training(processes, lm_data, tmp_path):
    """Ctrl-C, which a terminal sends to every process, ends in one line."""
    options = ("--max-update", 10**6, "--distributed-world-size", processes)
    _, *words = lm_training(lm_data, tmp_path, *options)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    training = subprocess.Popen(program(*words), **pipes)
    while "train_inner" not in training.stdout.readline():
        assert training.poll() is None, training.stderr.read()
    os.killpg(training.pid, signal.SIGINT)
    _, err = training.communicate()
    assert training.returncode and err == "interrupted; the same command goes on from the last checkpoint\n"


# python -m fairseq_kernels, and the commands of its packages


def test_the_module():
    assert Path(fairseq("kernels").out.strip()) == USER_DIR
    words = fairseq("kernels", "--list").out.split()
    assert set(KERNELS) <= set(words)
    for name in ("log.p=2", "kernel_lstm_lm_swb", "kernel_transformer_iwslt_de_en", "kernel_mixture_cross_entropy"):
        assert name in words
    wrong = start("kernels", "--lst").wait()
    assert wrong.code == 2 and "--lst" in wrong.err and wrong.err.count("\n") == 1


@pytest.mark.parametrize("what", ["raise KeyboardInterrupt", "while True:\n    print('many lines')"])
def test_a_command_that_is_interrupted_while_torch_is_imported(what, tmp_path):
    """Or whose reader, as head, has read enough: one line, or none."""
    Path(tmp_path, "torch.py").write_text(what)
    path = os.pathsep.join([str(tmp_path), str(USER_DIR.parent)])
    command = [sys.executable, "-W", "ignore", "-m", "fairseq_kernels.analysis.kerbs_senses"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, **pipes)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read().count("\n") == ("raise" in what) and process.wait(60) != 0
