"""Mistakes that users make end in one line that names them and a non-zero exit, not in a traceback."""

import itertools
import math
import os
import shutil
import sys
from argparse import ArgumentTypeError, Namespace
from pathlib import Path

import pytest
from corpora import binarise
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_commands import LM_TASK, USER_DIR, fairseq, later, lm_training, mt_training, start

from fairseq_kernels import GeneralizedSoftmax, fairseq_plugin  # noqa: F401
from fairseq_kernels.errors import explain_interruptions, explanation, positive_int
from fairseq_kernels.models.output_layer_config import refuse_unsupported
from fairseq_kernels.output_layers.table import LAYERS
from fairseq_kernels.patches.messages import explain_mistakes
from fairseq_kernels.patches.options import check

KERBS = "--output-layer kerbs --criterion kerbs_cross_entropy"
TAYLOR = "--output-layer taylor --criterion log_taylor_softmax"
# options of fairseq-train on a language model, and what the line must say
OPTIONS = {
    "--kernels gauss": ["gauss", "lin", "wav"],
    "--kernels mog --kernel-params mog.components=9": ["mog", "18", "16"],
    "--kernels lin --kernel-params rbf.gamma=2": ["'rbf.gamma'", "add rbf"],
    "--adaptive-softmax-cutoff 5,10": ["--adaptive-softmax-cutoff"],
    "--share-decoder-input-output-embed --decoder-out-embed-dim 8": ["--share-decoder", "(24, 16)", "(24, 8)"],
    "--output-layer tailor": ["tailor", "taylor"],
    "--arch lstm_lm": ["--criterion cross_entropy"],
    "--criterion log_taylor_softmax": ["--output-layer kernels", "kernel_mixture_cross_entropy"],
    f"{TAYLOR} --kernels log": ["--kernels", "--output-layer taylor"],
    f"{TAYLOR} --pi-variance-weight 2": ["--pi-variance-weight"],
    f"{TAYLOR} --label-smoothing 0.1": ["label_smoothing=0.1", "spherical"],
    f"{TAYLOR} --z-loss 0.1": ["z_loss=0.1", "spherical"],
    "--label-smoothing 1.0": ["label_smoothing=1.0"],
    "--z-loss -1": ["z_loss=-1"],
    "--kernels log --output-step 2": ["step=2", "log", "lin"],
    f"{KERBS} --senses 23": ["23 senses", "24 words"],
    f"{KERBS} --kerbs-input prior --decoder-out-embed-dim 8": ["16 and 8"],
    f"{KERBS} --share-decoder-input-output-embed": ["--share-decoder", "(72, 16)", "kerbs"],
    "--kernles lin": ["--kernles", "--kernels"],
    # numbers, alone and in lists, beyond their bounds
    "--seed 2147483648": ["--seed"],
    "--lr [0.1,-1]": ["--lr -1"],
    "--lr 0.001x": ["--lr", "0.001x"],
    "--lr []": ["--lr", "[]"],
    "--adam-betas (0.9,1.0)": ["--adam-betas"],
}
# said back as they are
WRONG = """pi-variance-weight -1,tokens-per-sample 0,dropout 1.5,clip-norm nan,output-bias no,
output-memory-mib 0,output-init 0,kerbs-input some,kerbs-input prior"""
OPTIONS.update({f"--{given.strip()}": [f"--{given.strip()}"] for given in WRONG.split(",")})
AT_THE_EDGE = """--adam-betas (0,0.9999) --dropout 1 --label-smoothing 0 --lr [0] --update-freq 1,2
--seed 2147483647 --output-memory-mib 1 --pi-variance-weight 0 --max-update 0 --output-bias --latent-projection"""
SIZES = """decoder-layers decoder-embed-dim decoder-hidden-size decoder-out-embed-dim decoder-ffn-embed-dim
encoder-layers encoder-embed-dim encoder-ffn-embed-dim tokens-per-sample beam nbest batch-size batch-size-valid
max-tokens update-freq max-tokens-valid encoder-attention-heads decoder-attention-heads distributed-world-size
log-interval save-interval validate-interval"""
COUNTS = """max-update max-epoch warmup-updates save-interval-updates validate-interval-updates lr num-workers clip-norm
weight-decay seed"""
SHARES = "dropout decoder-dropout-in decoder-dropout-out attention-dropout activation-dropout"


def begun(words):
    """The model of a training up to its criterion, in this process."""
    args = options.parse_args_and_arch(options.get_training_parser(), [str(word) for word in words])
    cfg = convert_namespace_to_omegaconf(args)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    task.build_criterion(cfg.criterion)
    return model


@pytest.mark.parametrize("given", OPTIONS)
def test_option(given, lm_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, *words = lm_training(lm_data, tmp_path / "new", *given.split())
    with pytest.raises(SystemExit, match="^fairseq_kernels: error: .") as end:
        begun(words)
    assert all(part in end.value.code for part in OPTIONS[given]) and "\n" not in end.value.code
    assert len(end.value.code) < 300  # not all that there is
    assert os.listdir(tmp_path) == []


def test_numbers_at_the_edge_of_what_is_allowed(lm_data, tmp_path):
    layer = begun(lm_training(lm_data, tmp_path, *AT_THE_EDGE.split())[1:]).decoder.output_projection
    assert layer.settings == GeneralizedSoftmax(4, 5, latent_projection="tanh").settings and layer.bias is not None
    assert layer.latent_projection is not None  # the option alone means tanh


@pytest.mark.parametrize("names, least, beyond", [(SIZES, 1, 1 << 31), (COUNTS, 0, math.inf), (SHARES, 0, 1.01)])
def test_bounds_of_each_option(names, least, beyond):
    for name in names.split():
        check(Namespace(**{name.replace("-", "_"): least}))
        for wrong in (least - 1, beyond, math.nan):
            with pytest.raises(SystemExit, match=f"error: --{name} {wrong} is not allowed: give "):
                check(Namespace(**{name.replace("-", "_"): [least, wrong]}))


@pytest.mark.parametrize("name", "adaptive-softmax-cutoff tie-adaptive-weights tie-adaptive-proj base-layers".split())
def test_what_kernel_models_can_t_have(name):
    with pytest.raises(SystemExit, match=f"--{name} 7 is not supported"):
        refuse_unsupported(Namespace(**{name.replace("-", "_"): 7}))


# further training of a saved mixture "2xlin,log"
RESUMING = {
    "--kernels lin,log": ["lin,lin,log", "lin,log", "--save-dir"],
    "--kernels 2xlin,log --untied-projections": ["--untied-projections"],
    "--kernels 2xlin,log --share-decoder-input-output-embed": ["embeddings", "--save-dir"],
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
    nowhere, cut, zeros = (scratch / name for name in ("nowhere", "cut.pt", "zeros"))
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
            ("resuming: other data", resuming(other_lm_data, "--kernels", "2xlin,log"), ["the model in", "same data"]),
            ("no data", lm_training(nowhere, next(folders)), ["nowhere", "dict.txt"]),
            ("not the data-bin", lm_training(above, next(folders)), [f"did you mean {above}/data-bin?"]),
            ("monolingual data", mt_training(lm_data, next(folders)), ["no parallel text"]),
            ("no target side", mt_training(one_sided, next(folders)), ["no text of the target language"]),
            ("no sentence fits", mt_training(mt_data, next(folders), "--max-tokens", 1), ["--max-tokens"]),
            ("divergence", lm_training(lm_data, next(folders), "--lr", 1e38), ["diverged", "--lr"]),
            ("two processes", lm_training(lm_data, next(folders), "--distributed-world-size", 2, "--kernels", "log",
                                          "--kernel-params", "log.p=-1"), ["log.p=-1"]),
            ("a restored file", lm_training(lm_data, next(folders), "--restore-file", cut), ["cut.pt"]),
            ("a finished one", lm_training(lm_data, next(folders), "--kernels", "2xlin,log", "--restore-file",
                                           mixture_lm.last), ["is finished (20 updates)"]),
            ("a finetuned file", lm_training(lm_data, next(folders), "--finetune-from-model", cut), ["cut.pt"]),
            ("eval-lm: other data", ("eval_lm", other_lm_data, *evaluation, mixture_lm.last), ["24 words", "8"]),
            ("eval-lm: long blocks", ("eval_lm", lm_data, *evaluation, mixture_lm.last, "--model-overrides",
                                      "{'max_target_positions': 5}"), ["tokens long, and the model takes 5"]),
            ("eval-lm: zeros", ("eval_lm", zeros, *evaluation, mixture_lm.last), ["test.bin is damaged"]),
            ("generate", ("generate", mt_data, "--path", cut), ["cut.pt is damaged"]),
        )
    }  # fmt: skip


def test_commands(commands, scratch, mixture_lm):
    """One line each; refused trainings leave the checkpoint alone."""
    for name, (queued, said) in commands.items():
        result = queued.result()
        assert result.code and result.code > 0, (name, result.text[-2000:])
        lines = {line for line in result.err.splitlines() if not line.startswith("W")}  # gloo's warnings
        assert len(lines) == 1 and all(part in lines.pop() for part in said[:1]), (name, result.err[-2000:])
        assert all(part in result.err for part in said) and "Traceback" not in result.text, name
    checkpoints = list(scratch.glob(f"*/{mixture_lm.last.name}"))
    assert len(checkpoints) == len(RESUMING) + 1
    assert all(checkpoint.read_bytes() == mixture_lm.last.read_bytes() for checkpoint in checkpoints)


# also what this machine can't raise, and what the explanation must say
EXPLAINED = {
    "MemoryError: ": "--batch-size", "RuntimeError: CUDA out of memory. Tried to allocate": "--output-memory-mib",
    "OutOfMemoryError: Allocation on device": "out of memory", "RuntimeError: can't allocate memory": "out of memory",
    "AssertionError: Torch not compiled with CUDA enabled": "no GPU", "RuntimeError: Found no NVIDIA driver": "no GPU",
    "AttributeError: 'NoneType' object has no attribute 'xla_device'": "--bf16 and --tpu need a TPU",
    "ValueError: Unsupported optimizer: FusedAdamW": "the optimizer FusedAdamW; give --optimizer adam",
    **{f"KeyError: '{name}'": f"metric {name} is not computed" for name in ("bleu", "ppl", "nll_loss", "accuracy")},
    "ValueError: loaded state dict has a different number of parameter groups": "--reset-optimizer",
    "ValueError: loaded state dict contains a parameter group that doesn't match": "--reset-optimizer",
    "ValueError: DiverseBeamSearch requires --beam to be divisible": "requires --beam to be divisible",
    "RuntimeError: Duplicate word found when loading Dictionary: 'a'.": "'a'.; make the data-bin again",
    "ValueError: Incorrect dictionary format, expected '<token> <cnt>'": "expected '<token> <cnt>'; make the data-bin",
    "Exception: Incorrect encoding detected in dict.txt": "in dict.txt; make the data-bin again",
    "Exception: Size of sample #4 is invalid (=(9, 3)) since max_positions=(5, 6), skip":
        "sentence 4 of the data (the first is 0) is (9, 3) tokens long, and the model takes (5, 6);",
    "Exception: The dataset is empty. This could": "--max-tokens", "FloatingPointError: gradients are Nan/Inf": "--lr",
    "FloatingPointError: Minimum loss scale reached (0.0001).": "lower --lr",
    "Exception: Cannot load model parameters from checkpoint a.pt; please": "the model in a.pt doesn't match",
    "RuntimeError: Error(s): size mismatch for encoder.embed_tokens.weight: copying a param with shape torch.Size([24, "
    "8]) from checkpoint, the shape in current model is torch.Size([23, 8]).": "encoder has 24 words, the data's dict",
    "ValueError: --share-all-embeddings requires a joined dictionary": "--share-all-embeddings requires a joined dict",
    "ValueError: senses can't move while the parameters": "senses can't move while the parameters",
}  # fmt: skip


@pytest.mark.parametrize("text", EXPLAINED)
def test_what_fairseq_and_torch_say(text):
    name, _, message = text.partition(": ")
    assert EXPLAINED[text] in explanation(type(name, (Exception,), {})(message))
    assert explanation(type(name, (Exception,), {})("a bug")) is None or name.endswith("MemoryError")


def test_what_the_system_says():
    assert explanation(AssertionError("--beam is 0")) == "--beam is 0"
    assert explanation(FileNotFoundError(2, "No such file", "a/b")).startswith("a/b: no such file; check the path")
    assert explanation(OSError("Model file not found: a.pt")).startswith("Model file not found: a.pt; check the path")
    assert explanation(AssertionError()) is explanation(OSError("a bug")) is None


@pytest.mark.parametrize("install, program, explained", [
    (explain_mistakes, "/opt/env/bin/fairseq-train", {MemoryError, KeyboardInterrupt}),
    (explain_mistakes, "/lib/fairseq_cli/generate.py", {MemoryError, KeyboardInterrupt}),
    (explain_mistakes, "/opt/fairseq-0.12/bin/pytest", set()),
    (explain_interruptions, "-m", {KeyboardInterrupt, BrokenPipeError}), (explain_interruptions, "/bin/pytest", set()),
])  # fmt: skip
def test_ends_of_commands(install, program, explained, monkeypatch, capsys):
    """An error of the program's keeps its traceback; other programs keep their ends."""
    seen, errors = [], (KeyError("a bug"), MemoryError(), KeyboardInterrupt(), BrokenPipeError())
    monkeypatch.setattr(os, "dup2", lambda *_: None)  # the tests' own stdout stays open
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: seen.append(error))
    install()
    for error in errors:
        sys.excepthook(type(error), error, None)
    assert seen == [error for error in errors if type(error) not in explained]
    said = capsys.readouterr().err
    assert said.count("\n") == len(explained - {BrokenPipeError}) and ("goes on" in said) == program.endswith("train")
    assert ("out of memory" in said) == (MemoryError in explained) and ("interr" in said) == bool(explained)


def test_whole_numbers_of_our_commands():
    assert [positive_int(text) for text in ("1", "2147483647")] == [1, 2147483647]
    for text in ("0", "-1", "1.5", "²", "", "2147483648"):
        with pytest.raises(ArgumentTypeError, match=f"'{text}' is not a whole number from 1 to 2147483647"):
            positive_int(text)


def test_the_module(tmp_path):
    assert Path(fairseq("kernels").out.strip()) == USER_DIR
    listed = fairseq("kernels", "--list").out
    first = [line.split()[0] for line in listed.partition("architectures")[0].splitlines()[1:]]
    assert first == "lin log pow pol rbf ssg mog hpb wav sig abs cap cos".split()  # in the order of the paper's Table 1
    for name in ("log.p=2", "kernel_lstm_lm_swb", "kernel_transformer_iwslt_de_en", "kernel_mixture_cross_entropy"):
        assert name in listed.split()
    assert listed.split()[-2:] == ["optimizers", "fused_adamw"]
    assert fairseq("kernels", "--criterion", "taylor").out == f"{LAYERS['taylor'].criterion}\n"
    package = shutil.copytree(USER_DIR, tmp_path / USER_DIR.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(USER_DIR.parent / "configs", package / "configs")  # as an installed wheel has them
    assert fairseq("kernels", "--configs", cwd=tmp_path).out == f"{package}/configs\n"
    for given, said in {"--lst": "--lst", "--criterion tailor": "no output layer tailor; did you mean taylor?",
                        "--user-dir .": "goes with --list", "--list --user-dir no": "no not"}.items():  # fmt: skip
        wrong = start("kernels", *given.split()).wait()
        assert wrong.code in (1, 2) and said in wrong.err and wrong.err.count("\n") == 1
