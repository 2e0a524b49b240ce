"""Mistakes that users make end in one clear line and a non-zero exit, not in a traceback."""

import itertools
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import binarise
from fairseq_commands import LM_TASK, USER_DIR, fairseq, later, lm_training, mt_training, script, start

from fairseq_kernels import KERNELS
from fairseq_kernels.errors import explanation
from fairseq_kernels.experiments import commands, training

# options of fairseq-train on a language model, and what the line must say
OPTIONS = {
    "unknown kernel": (("--kernels", "gauss"), ["gauss", "lin", "wav"]),
    "unknown parameter": (("--kernel-params", "log.q=2"), ["log.q", "log.p"]),
    "bad value of a parameter": (("--kernels", "pol", "--kernel-params", "pol.p=1.5"), ["pol.p=1.5", "integer"]),
    "dimension too small": (
        ("--kernels", "mog", "--kernel-params", "mog.components=9"),
        ["mog", "embed_dim >= 18", "16"],
    ),
    "output bias": (("--output-bias", "maybe"), ["maybe", "true", "false", "prior"]),
    "memory": (("--output-memory-mib", 0), ["--output-memory-mib 0", "1 or more"]),
    "residuals": (("--residuals",), ["--residuals", "lstm_lm"]),
    "attention": (("--decoder-attention", 1), ["--decoder-attention 1"]),
    "adaptive softmax": (("--adaptive-softmax-cutoff", "5,10"), ["--adaptive-softmax-cutoff"]),
    "fewer words to predict": (("--output-dictionary-size", 10), ["--output-dictionary-size 10 is not supported"]),
    "language model of the present": (("--self-target",), ["Unsupported language modeling target: self; leave out"]),
    "adaptive loss": (("--criterion", "adaptive_loss"), ["--criterion adaptive_loss", "--arch kernel_lstm_lm"]),
    "sharing of unlike sizes": (
        ("--share-decoder-input-output-embed", "--decoder-out-embed-dim", 8),
        ["sharing", "16", "8"],
    ),
    "label smoothing": (("--label-smoothing", 1.5), ["--label-smoothing 1.5", "below 1"]),
    "negative rho": (("--pi-variance-weight", -1), ["--pi-variance-weight -1", "0 or more"]),
    "unknown architecture": (("--arch", "kernel_lstm"), ["invalid choice: 'kernel_lstm'", "did you mean kernel_lstm_"]),
    "unknown option": (("--kernles", "lin"), ["unknown option --kernles; did you mean --kernels?"]),
    "too many components": (("--kernels", "99999999999xlin"), ["99999999999", "1 to 1000 in all"]),
    "too large a power": (("--kernels", "pol", "--kernel-params", "pol.p=1000000"), ["pol.p=1e+06", "at most 1000"]),
    "too large a number": (("--kernels", "rbf", "--kernel-params", "rbf.gamma=1e300"), ["rbf.gamma=1e+300", "1e10"]),
    "a parameter twice": (("--kernels", "log", "--kernel-params", "log.p=2,log.p=3"), ["'log.p' is given twice"]),
    **{
        f"{option} {value}": ((option, value), [f"{option} {value} is not allowed: give {least} or more"])
        for option, value, least in (
            *(("--tokens-per-sample", 0, 1), ("--decoder-layers", 0, 1), ("--batch-size", -8, 1)),
            *(("--max-update", -1, 0), ("--warmup-updates", -1, 0), ("--update-freq", 0, 1)),
            *(("--distributed-world-size", 0, 1), ("--log-interval", 0, 1), ("--num-workers", -1, 0)),
        )
    },
    **{
        f"{option} {value}": ((option, value), [f"{option} {value} is not allowed: give {allowed}"])
        for option, value, allowed in (
            *(("--dropout", 1.5, "at most 1"), ("--seed", 1 << 31, "at most 2147483647")),
            *(("--clip-norm", math.nan, "a number"), ("--stop-time-hours", math.nan, "a number")),
            ("--batch-size", 10**20, "at most 2147483647"),
        )
    },
    **{
        option: ((option, value), [f"{option} has no meaning with --output-layer kernels", f"--output-layer {layer}"])
        for option, value, layer in (("--epsilon", 0.1, "spherical"), ("--senses", "2x", "kerbs"))
    },
    **{
        f"--adam-betas {betas}": (("--adam-betas", betas), [f"--adam-betas {betas} is not allowed: give two numbers"])
        for betas in ("(9,9)", "5")
    },
    "best": (("--best-checkpoint-metric", "foo"), ["--best-checkpoint-metric foo is nothing", "loss or ppl"]),
    "a parameter of no component": (("--kernels", "lin", "--kernel-params", "log.p=3"), ["'log.p'", "add log"]),
}
# further training of a saved mixture "2xlin,log"
RESUMING = {
    "other kernels": (("--kernels", "lin,log"), ["lin,lin,log", "lin,log", "--kernels", "--save-dir"]),
    "no bias": (("--kernels", "2xlin,log", "--output-bias", "false"), ["--output-bias"]),
    "untied": (("--kernels", "2xlin,log", "--untied-projections"), ["--untied-projections"]),
    "learned": (("--kernels", "2xlin,log", "--kernel-params", "log.p=learned"), ["--kernel-params"]),
    "shared": (("--kernels", "2xlin,log", "--share-decoder-input-output-embed"), ["doesn't share input and output"]),
    "schedule": (
        ("--kernels", "2xlin,log", "--lr-scheduler", "reduce_lr_on_plateau"),
        ["schedule is another one", "--reset-lr-scheduler"],
    ),
}
ADAPTIVE_INPUTS = (*("--adaptive-input", "--adaptive-input-cutoff", "5,10"), "--share-decoder-input-output-embed")
MISFIT = ["kernel_mixture_cross_entropy", "fit", "--criterion cross_entropy"]
EVALUATION = ("--gen-subset", "test", *LM_TASK[2:], "--batch-size", 8)


@pytest.fixture(scope="module")
def other_lm_data(tmp_path_factory):
    """A corpus of fewer words."""
    folder = tmp_path_factory.mktemp("other-lm")
    for split in ("train", "valid", "test"):
        (folder / split).write_text("a b c\nb c a\n" * 10)
    return binarise(folder, "data-bin", "--only-source")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "text.pt").write_text("no checkpoint")
    return folder


@pytest.fixture(scope="module")
def mistakes(scratch, lm_data, other_lm_data, mt_data, mixture_lm):
    """Commands, queued, and what the line must say."""
    nowhere, missing = scratch / "nowhere", scratch / "missing.pt"
    # a folder each: fairseq tries whether it may write by a file that it removes again
    folders = (scratch / f"new{number}" for number in itertools.count())

    def resuming(data, *options):
        return lm_training(data, shutil.copytree(mixture_lm.folder, next(folders)), *options, "--max-update", 30)

    commands = {
        **{name: (lm_training(lm_data, next(folders), *options), said) for name, (options, said) in OPTIONS.items()},
        **{f"resuming: {name}": (resuming(lm_data, *options), said) for name, (options, said) in RESUMING.items()},
        "resuming: other data": (resuming(other_lm_data, "--kernels", "2xlin,log"), ["24 words", "8"]),
        "transformer: adaptive softmax": (
            lm_training(lm_data, next(folders), "--adaptive-softmax-cutoff", "5,10", arch="kernel_transformer_lm"),
            ["--adaptive-softmax-cutoff"],
        ),
        "transformer: adaptive weights": (
            lm_training(
                lm_data, next(folders), "--adaptive-input", "--tie-adaptive-weights", arch="kernel_transformer_lm"
            ),
            ["--tie-adaptive-weights is not supported"],
        ),
        "transformer: adaptive inputs shared": (
            lm_training(lm_data, next(folders), *ADAPTIVE_INPUTS, arch="kernel_transformer_lm"),
            ["--adaptive-input has several matrices"],
        ),
        "transformer: base layers": (
            lm_training(lm_data, next(folders), "--base-layers", 1, arch="kernel_transformer_lm"),
            ["--base-layers 1 is not supported"],
        ),
        "embeddings of two languages shared": (
            mt_training(mt_data, next(folders), "--share-all-embeddings"),
            ["--share-all-embeddings requires"],
        ),
        "criterion on lstm_lm": (lm_training(lm_data, next(folders), arch="lstm_lm"), MISFIT),
        "criterion on transformer_lm": (lm_training(lm_data, next(folders), arch="transformer_lm"), MISFIT),
        "criterion on transformer": (mt_training(mt_data, next(folders), arch="transformer"), MISFIT),
        "base layers": (mt_training(mt_data, next(folders), "--base-layers", 1), ["--base-layers 1 is not supported"]),
        "no data": (lm_training(nowhere, next(folders)), ["nowhere", "not found"]),
        "no translation data": (mt_training(nowhere, next(folders)), ["nowhere", "not found"]),
        "no data to evaluate on": (("eval_lm", nowhere, "--path", mixture_lm.last, *EVALUATION), ["nowhere"]),
        "other data to evaluate on": (
            ("eval_lm", other_lm_data, "--path", mixture_lm.last, *EVALUATION),
            ["24 words", "8"],
        ),
        "no checkpoint": (("eval_lm", lm_data, "--path", missing, *EVALUATION), ["missing.pt", "not found"]),
        "no checkpoint to generate from": (
            ("generate", mt_data, "--path", missing, "--batch-size", 8),
            ["missing.pt", "not found"],
        ),
        "not a checkpoint": (("eval_lm", lm_data, "--path", scratch / "text.pt", *EVALUATION), ["checkpoint"]),
        "environment": (lm_training(lm_data, next(folders)), ["FAIRSEQ_KERNELS_ONEDNN=x is not allowed", "0 or 1"]),
        "monolingual data for translation": (mt_training(lm_data, next(folders)), ["no parallel text"]),
        "no sentence fits": (mt_training(mt_data, next(folders), "--max-tokens", 1), ["no sentence", "--max-tokens"]),
        "no sentence fits, in eights": (
            mt_training(mt_data, next(folders), "--max-tokens", 1, "--required-batch-size-multiple", 8),
            ["no sentence", "--max-tokens"],
        ),
        "no GPU": (lm_training(lm_data, next(folders), "--bf16"), ["no GPU", "--bf16"]),
        "a program as a setting": (
            lm_training(lm_data, next(folders), "--adam-betas", f"__import__('os').mkdir('{scratch}/code-ran')"),
            ["--adam-betas", "is not allowed: give two numbers"],
        ),
        "divergence": (lm_training(lm_data, next(folders), "--lr", 1e38), ["the training diverged", "lower --lr"]),
        "torchrun's rank": (lm_training(lm_data, next(folders)), ["WORLD_SIZE=2 with RANK=2 is not allowed"]),
    }
    assert list(commands) == MISTAKES
    torchrun = {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "WORLD_SIZE": "2", "RANK": "2"}
    variables = {"environment": {"FAIRSEQ_KERNELS_ONEDNN": "x"}, "torchrun's rank": torchrun}
    return {
        name: (later(*command, environment=variables.get(name, {})), said) for name, (command, said) in commands.items()
    }


MISTAKES = [
    *OPTIONS,
    *(f"resuming: {name}" for name in (*RESUMING, "other data")),
    *("transformer: adaptive softmax", "transformer: adaptive weights", "transformer: adaptive inputs shared"),
    *("transformer: base layers", "embeddings of two languages shared"),
    *("criterion on lstm_lm", "criterion on transformer_lm"),
    *("criterion on transformer", "base layers", "no data", "no translation data", "no data to evaluate on"),
    *("other data to evaluate on", "no checkpoint", "no checkpoint to generate from", "not a checkpoint"),
    *("environment", "monolingual data for translation", "no sentence fits", "no sentence fits, in eights"),
    *("no GPU", "a program as a setting", "divergence"),
    "torchrun's rank",
]


@pytest.mark.parametrize("name", MISTAKES)
def test_one_clear_line(name, mistakes):
    """A non-zero exit, no traceback, and a last line that names the mistake."""
    queued, said = mistakes[name]
    result = queued.result()
    assert result.code is not None and result.code > 0, result.text[-2000:]
    assert "Traceback" not in result.text, result.text[-2000:]
    last = result.err.strip().splitlines()[-1]
    assert all(part in last for part in said), result.err[-2000:]


def test_refused_trainings_leave_the_checkpoint_alone(mistakes, scratch, mixture_lm):
    for queued, _ in mistakes.values():
        queued.result()
    checkpoints = list(scratch.glob(f"*/{mixture_lm.last.name}"))
    assert len(checkpoints) == len(RESUMING) + 1
    assert all(checkpoint.read_bytes() == mixture_lm.last.read_bytes() for checkpoint in checkpoints)
    assert not (scratch / "code-ran").exists()


def test_missing_data_as_a_program(tmp_path):
    """fairseq-train as a program of its own, without the tests' shortcuts."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "fairseq_cli.train",
        tmp_path / "nowhere",
        *LM_TASK,
        "--cpu",
        "--user-dir",
        USER_DIR,
        "--arch",
        "kernel_lstm_lm",
        "--batch-size",
        8,
        "--save-dir",
        tmp_path,
    ]
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr and "nowhere" in result.stderr.strip().splitlines()[-1]


# python -m fairseq_kernels


def test_the_module_prints_the_user_dir():
    assert Path(fairseq("kernels").out.strip()) == USER_DIR


def test_the_module_lists_what_there_is():
    """Kernels with their parameters, architectures and criterions."""
    words = fairseq("kernels", "--list").out.split()
    assert set(KERNELS) <= set(words)
    for name in ("log.p=2", "kernel_lstm_lm_swb", "kernel_transformer_iwslt_de_en", "kernel_mixture_cross_entropy"):
        assert name in words


def test_the_module_refuses_unknown_arguments():
    result = start("kernels", "--lst").wait()
    assert result.code == 2 and "--lst" in result.err and "Traceback" not in result.err


# scripts


def test_where_cd_prints():
    """With CDPATH, where it is given a relative path."""
    command = ["bash", "data-prep/prepare-text.sh", "--help"]
    environment = {**os.environ, "PYTHON_BIN": sys.executable, "CDPATH": "."}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=USER_DIR.parent)
    assert result.returncode == 0 and "--min-count" in result.stdout, result.stderr


HELPFUL = [path.stem for path in (USER_DIR.parent / "scripts").glob("*.sh") if path.stem not in ("common", "test")]


@pytest.mark.parametrize("name", HELPFUL)
def test_help_needs_no_setting_up(name):
    code, out, err = script(name, "--help", PYTHON_BIN="/nonexistent")
    assert code == 0 and f"bash scripts/{name}.sh" in out and "PYTHON_BIN" not in err
    assert not any(line.startswith("#") for line in out.splitlines())


@pytest.fixture
def bare(tmp_path):
    """A Python without anything installed."""
    path = tmp_path / "bare"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    return path


PREPARATIONS = sorted((USER_DIR.parent / "data-prep").glob("prepare-*.sh"))


@pytest.mark.parametrize("path", PREPARATIONS, ids=lambda path: path.stem)
def test_help_of_preparations_needs_python_alone(path, bare):
    for flag in ("-h", "--help"):
        result = subprocess.run(["bash", path, "--out", "x", flag], capture_output=True, text=True,
                                env={**os.environ, "PYTHON_BIN": str(bare)})
        assert result.returncode == 0 and result.stdout.startswith(f"usage: {path.name}") and not result.stderr


def test_kernels_are_looked_at_before_torch_is_loaded(lm_data, tmp_path, bare):
    """A Python without torch says what is wrong with them."""
    for name, wrong in (("train_lm", ["--kernels", "2xlni"]), ("grid_search", ["--kernel=2xlni"])):
        code, out, err = script(name, lm_data, *wrong, "--save-dir", tmp_path / "new", PYTHON_BIN=str(bare))
        assert code == 1 and err.startswith("fairseq_kernels: error: unknown kernel 'lni'; did you mean lin?")
        assert not out and not (tmp_path / "new").exists()


def test_a_python_that_lacks_something(lm_data, bare):
    needed = {"train_lm": "", "table1": " pandas snakemake", "grid_search": " optuna", "report": " jinja2 pandas"}
    for name, further in needed.items():
        code, out, err = script(name, lm_data, "--kernels=lin", PYTHON_BIN=str(bare))
        assert code == 2 and f"{bare} has no fairseq torch{further}: run scripts/setup.sh" in err and not out
        assert err.count("\n") == 1


def test_data_that_cannot_be_read(lm_data, tmp_path):
    """Are named before there is a folder."""
    data = shutil.copytree(lm_data, tmp_path / "data")
    (data / "train.bin").unlink()
    (data / "train.bin").symlink_to("nowhere")
    code, out, err = script("train_lm", data, "--save-dir", tmp_path / "new")
    assert code == 1 and f"{data}/train.bin can't be read (No such file" in err and not (tmp_path / "new").exists()


def test_threads(lm_data, tmp_path):
    code, out, err = script("train_lm", lm_data, "--save-dir", tmp_path / "new", OMP_NUM_THREADS="abc")
    assert code == 2 and "OMP_NUM_THREADS=abc is not allowed" in err and not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["train_lm", "{lm}", "--kernles", "lin", "--save-dir", "{tmp}/a"], ["--kernles", "did you mean --kernels?"]),
        (["train_lm", "{lm}", "--optimizer", "adm", "--save-dir", "{tmp}/a"], ["'adm'", "did you mean adam?"]),
        (["train_lm", "{lm}", "--kernel-params", "log.q=2", "--save-dir", "{tmp}/a"], ["unknown kernel", "log.q"]),
        (["train_lm", "{lm}", "--profile", "gpu", "--save-dir", "{tmp}/a"], ["gpu", "medium"]),
        (["train_lm", "{lm}", "--max-updat", "5", "--dry-run", "--save-dir", "{tmp}/a"], ["did you mean --max-upd"]),
        (["train_lm", "{lm}"], ["--save-dir"]),
        (["train_lm", "{lm}", "--save-dir", "{tmp}/a", "--", "--lr", "1"], ["-- is for tables and searches; leave it"]),
        (["train_lm", "{lm}", "--save-dir", ""], ["--save-dir", "is empty"]),
        (
            ["train_mt", "{mt}", "--target-lang", "de", "--save-dir", "{tmp}/a"],
            ["--target-lang de", "translation to en"],
        ),
        (["evaluate_mt", "{mt}", "{tmp}/text.pt", "-t", "de"], ["-t de", "translation to en"]),
        (["train_lm", "{tmp}/nowhere", "--save-dir", "{tmp}/a"], ["nowhere", "data-prep"]),
        (["train_lm", "{mt}", "--save-dir", "{tmp}/a"], ["parallel text", "train_mt.sh"]),
        (["train_lm", "{lm}", "--max-update", "1e3", "--save-dir", "{tmp}/a"], ["--max-update: invalid int value"]),
        (["train_lm", "{lm}", "--lr", "nan", "--save-dir", "{tmp}/a"], ["--lr: 'nan' is no number, and no list of"]),
        (["train_lm", "{lm}", "--log-format", "json", "--save-dir", "{tmp}/a"], ["--log-format json is", "leave it"]),
        (["train_lm", "{lm}", "--save-dir", "/dev/null/a"], ["/dev/null/a", "--save-dir"]),
        (["evaluate_lm", "{lm}", "{tmp}/none.pt"], ["none.pt", "not found"]),
        (["evaluate_lm", "{lm}", "{tmp}"], ["checkpoint {tmp} is a folder; give a .pt file"]),
        (["evaluate_lm", "{lm}", "{tmp}/text.pt:{tmp}/none.pt"], ["ensembles, separated by :, are for translation"]),
        (["evaluate_mt", "{mt}", "{tmp}/text.pt:{tmp}/none.pt"], ["none.pt", "separates the models of an ensemble"]),
        (["evaluate_lm", "{lm}", "{tmp}/text.pt"], ["text.pt is damaged, or no checkpoint"]),
        (["evaluate_lm", "{lm}", "{tmp}/text.pt", "--gen-subset", "tset"], ["'tset'", "test, train, valid"]),
        (["evaluate_mt", "{mt}", "{tmp}/text.pt"], ["no reference ", "test.ref.en; subsets with one: none"]),
        (["evaluate_mt", "{mt}", "{tmp}/text.pt", "--gen-subset", "x//;1e touch {tmp}/PWN #"], ["x//;1e touch"]),
        (["table", "tabel1", "{lm}"], ["'tabel1'", "table1"]),
        (["table", "table1", "{lm}", "--row", "lin"], ["table1.sh: error: unknown option --row; did you mean --rows?"]),
        (["table", "table1", "{lm}", "--rows", "lin", "--rows", "nil"], ["'nil'", "unigram"]),
        (["table", "table1", "{lm}", "--seeds", "1", "2147483648"], ["--seeds 1 2147483648", "1 to 2147483647"]),
        (["table", "table1", "{lm}", "--rows", "lin", "--results", "/dev/null"], ["--results /dev/null can't be wr"]),
        (["table", "table1", "{lm}", "--save-dir", "{tmp}/a", "--", "--max-updat", "5"], ["did you mean --max-upd"]),
        (["grid_search", "{lm}", "--kernel", "log", "--", "--dropuot", "0"], ["--dropuot; did you mean --dropout?"]),
        (["table", "table1", "{lm}", "{lm}"], ["two corpora are called "]),
        (["train_lm", "--kernels", "lin", "{lm}", "--save-dir", "{tmp}/a"], ["lin is not found; give DATA first"]),
        (["train_lm", "{lm}", "--profile", "cqu", "--save-dir", "{tmp}/a"], ["'cqu'; did you mean cpu?"]),
        (["train_lm", "{lm}", "--save-dri", "{tmp}/a"], ["train_lm.sh: error: unknown option --save-dri; did you"]),
        (["grid_search", "{lm}", "--kernels=log"], ["unknown option --kernels; did you mean --kernel?"]),
        (["train_lm", "{lm}", "--profile", "cpu"], ["--save-dir; usage: bash scripts/train_lm.sh DATA"]),
        (["train_lm", "{lm}", "--save-dir", "{tmp}/a:b"], ["--save-dir", "has :, which fairseq takes for several"]),
        (["train_lm", "{tmp}/a:b", "--save-dir", "{tmp}/a"], ["a:b' has :, which fairseq takes for several paths"]),
        (["grid_search", "{lm}", "--kernel", "log", "--save-dir", ""], ["--save-dir", "is empty; give a folder"]),
        (
            ["report", "--publish", "--tables", "table1", "--markdown", "/dev/null", "--html", "{tmp}/a"],
            ["/dev/null: is no file; give files that"],
        ),
        (["report", "--reslts", "{tmp}"], ["report.sh: error: unknown option --reslts; did you mean --results?"]),
    ],
    ids=lambda value: "-".join(value[0:1] + value[2:4]).replace("/", "_") if value[0].islower() else "",
)
def test_one_clear_line_of_a_script(arguments, said, lm_data, mt_data, tmp_path):
    places = {"lm": lm_data, "mt": mt_data, "tmp": tmp_path}
    (tmp_path / "text.pt").write_text("no checkpoint")
    code, out, err = script(*(word.format(**places) for word in arguments))
    last = err.strip().splitlines()[-1]
    assert code > 0 and "Traceback" not in err and all(part.format(**places) in last for part in said), out + err
    assert not (tmp_path / "PWN").exists()
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("module", ["experiments.evaluation", "experiments.workflow", "analysis.top10_error"])
def test_an_interruption_while_torch_is_imported(module, tmp_path):
    Path(tmp_path, "torch.py").write_text("raise KeyboardInterrupt")
    command = [sys.executable, "-W", "ignore", "-m", f"fairseq_kernels.{module}"]
    path = os.pathsep.join([str(tmp_path), str(USER_DIR.parent)])
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert result.returncode != 0 and result.stderr == "interrupted; give the same command again\n"


def test_a_reader_that_has_read_enough(tmp_path):
    """As head: no traceback, neither of the writing nor of Python's end."""
    Path(tmp_path, "torch.py").write_text("while True:\n    print('many lines')")
    command = [sys.executable, "-W", "ignore", "-m", "fairseq_kernels.analysis.kerbs_senses"]
    path = os.pathsep.join([str(tmp_path), str(USER_DIR.parent)])
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, **pipes)
    assert process.stdout.readline() == "many lines\n"
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait(60) != 0


def test_an_interruption_in_a_destructor(tmp_path):
    """Where Python drops exceptions: torch's loaders wait for their processes there."""
    lines = "class Loader:", "    def __del__(self):", "        raise KeyboardInterrupt", "Loader()", "import time"
    Path(tmp_path, "torch.py").write_text("\n".join([*lines, "time.sleep(1000)"]))
    command = [sys.executable, "-W", "ignore", "-m", "fairseq_kernels.experiments.training", "lm"]
    path = os.pathsep.join([str(tmp_path), str(USER_DIR.parent)])
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert result.returncode != 0 and result.stderr == "interrupted; give the same command again\n"


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_failing_training_keeps_its_checkpoints(checkpoint, lm_data, monkeypatch, tmp_path):
    """A disk that is full after the first checkpoints, before a line of progress is logged."""

    def train(arguments, folder, label=""):
        (folder / "train.log").touch()
        if checkpoint:
            (folder / "checkpoint_1_5.pt").touch()
        raise commands.Refused("no space")

    folder = tmp_path / "new"
    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr(sys, "argv", ["training", "lm", str(lm_data), "--profile", "cpu", "--save-dir", str(folder)])
    with pytest.raises(SystemExit, match="no space"):
        training.main()
    assert (folder / "checkpoint_1_5.pt").exists() == folder.exists() == checkpoint


def test_a_sentence_longer_than_the_model_takes():
    what = "Size of sample #7 is invalid (=(1201, 3)) since max_positions=(1024, 1024), skip this example with"
    assert "sentence 7 of the data (the first is 0) is (1201, 3) tokens long" in explanation(Exception(what))


def test_options_of_gpus():
    assert "--fp16" in explanation(AssertionError("Torch not compiled with CUDA enabled"))
    line = explanation(ValueError("Unsupported optimizer: FusedAdamW"))
    assert "FusedAdamW doesn't fit --memory-efficient-fp16" in line


def test_a_translation_without_an_end_has_a_reason():
    assert "the model gives no numbers" in explanation(AssertionError("200 < 200"))
    assert explanation(AssertionError("201 < 200")) == "201 < 200"
