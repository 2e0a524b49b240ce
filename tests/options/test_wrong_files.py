"""Checkpoints and data-bins that are damaged, or something else: one line that names the file, whoever reads it."""

import os
import pickle
import random
import re
import shutil
import types
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import IndexedDatasetBuilder
from fairseq_commands import LM_TASK, later, lm_training, mt_training

from fairseq_kernels import fairseq_plugin  # noqa: F401
from fairseq_kernels.analysis.model_state import model_state
from fairseq_kernels.data_files import HEADER
from fairseq_kernels.word_counts import word_counts

NOISE = random.Random(1).randbytes(5000)


class Code:
    """What a malicious checkpoint holds."""

    def __reduce__(self):
        return os.mkdir, ("code-ran",)


WRONG_CHECKPOINTS = {
    "truncated": lambda whole, state: whole[: len(whole) // 2],
    "empty": lambda whole, state: b"",
    "random bytes": lambda whole, state: NOISE,
    "text": lambda whole, state: b"hello, this is text\n",
    "another program's dict": lambda whole, state: {"epoch": 3, "net": torch.zeros(3)},
    "another program's model": lambda whole, state: {"model": {"a": torch.zeros(3)}, "epoch": 3},
    "bare state_dict": lambda whole, state: state["model"],
    "a tensor": lambda whole, state: torch.zeros(3),
    "a list": lambda whole, state: [1, 2],
    "a changed byte": lambda whole, state: whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1])
    + whole[len(whole) // 2 + 1 :],
    "a model of numbers": lambda whole, state: {**state, "model": {"decoder.embed_tokens.weight": 3}},
    "a model of text": lambda whole, state: {**state, "model": "text"},
    "settings of text": lambda whole, state: {**state, "cfg": "text"},
    "no settings": lambda whole, state: {**state, "cfg": {}},
    "code": lambda whole, state: {**state, "more": Code()},
    "code, pickled": lambda whole, state: pickle.dumps({"model": {}, "more": Code()}),
}


@pytest.fixture(scope="module")
def state(mixture_lm):
    return torch.load(mixture_lm.last, weights_only=True)


@pytest.mark.parametrize("read", [checkpoint_utils.load_checkpoint_to_cpu, model_state])
@pytest.mark.parametrize("wrong", WRONG_CHECKPOINTS)
def test_checkpoint(wrong, read, mixture_lm, state, tmp_path, monkeypatch):
    """By fairseq's reader and by the analyses'; no code runs, and torch's advice to load unsafely isn't repeated."""
    monkeypatch.chdir(tmp_path)
    content = WRONG_CHECKPOINTS[wrong](mixture_lm.last.read_bytes(), state)
    path = tmp_path / "wrong.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(SystemExit, match=r"^fairseq_kernels: error: .*wrong\.pt ") as end:
        read(str(path))
    line = str(end.value)
    assert "\n" not in line and "weights_only" not in line
    if wrong == "code":
        assert f"holds {os.mkdir.__module__}.mkdir" in line
    assert os.listdir() == ["wrong.pt"]


def model_of(mt_data, arch, *settings):
    """A translation model of a stock architecture, as a checkpoint's settings build it."""
    args = [str(mt_data), "--task", "translation", "--arch", arch, *settings]
    cfg = options.parse_args_and_arch(options.get_training_parser(), args)
    return tasks.setup_task(cfg).build_model(cfg, from_checkpoint=True)


@pytest.mark.parametrize("arch, setting", [("lstm", "decoder_attention"), ("fconv", "decoder_layers")])
def test_settings_are_no_programs(arch, setting, mt_data, tmp_path, monkeypatch):
    """fairseq evaluates them, those of a checkpoint too; its own architectures' arithmetic stays."""
    monkeypatch.chdir(tmp_path)
    option = f"--{setting.replace('_', '-')}"
    with pytest.raises(ValueError, match="the setting .*mkdir.* is not allowed: give a number, or a list"):
        model_of(mt_data, arch, option, "__import__('os').mkdir('code-ran') or 1")
    assert os.listdir() == []
    model_of(mt_data, arch, *([option, "[(8, 3)] * 2 + [(8, 1)]"] if arch == "fconv" else []))


@pytest.mark.parametrize("read", [checkpoint_utils.load_checkpoint_to_cpu, model_state])
def test_numbers_of_numpy(read, state, tmp_path):
    """Are harmless (fairseq issue 5603), by whichever name of numpy's function a version of it wrote them."""
    numbers = [np.float64(2.5), np.float32(2.5), np.int64(2), np.bool_(True)]
    best = {"best": numbers, "counts of --eval-bleu": np.arange(4)}
    torch.save({**state, "extra_state": {**state["extra_state"], **best}}, tmp_path / "numbers.pt")
    read(str(tmp_path / "numbers.pt"))
    content = torch.load(tmp_path / "numbers.pt", weights_only=True)
    assert content["extra_state"]["best"] == numbers
    assert content["extra_state"]["counts of --eval-bleu"].tolist() == [0, 1, 2, 3]
    names = [b"numpy.core.multiarray", b"numpy._core.multiarray"]
    for name in names:  # as numpy 1 and 2 write it
        with ZipFile(tmp_path / "numbers.pt") as numbers_of, ZipFile(tmp_path / "other.pt", "w") as other:
            for entry in numbers_of.infolist():
                changed = re.sub(rb"numpy\._?core\.multiarray", name, numbers_of.read(entry))
                other.writestr(entry, changed)
        assert torch.load(tmp_path / "other.pt", weights_only=True)["extra_state"]["best"] == numbers
    code = np.array([Code()], dtype=object)  # arrays of objects are read as what they hold
    torch.save({**state, "extra_state": {**state["extra_state"], "best": code}}, tmp_path / "code.pt")
    with pytest.raises(SystemExit, match="code.pt is (damaged|refused)"):
        read(str(tmp_path / "code.pt"))
    assert not os.path.exists("code-ran")


def cut(name, share):
    return lambda folder: os.truncate(folder / name, int((folder / name).stat().st_size * share))


def put(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def changed(name, place, byte):
    def change(folder):
        content = bytearray((folder / name).read_bytes())
        content[place] = byte
        (folder / name).write_bytes(content)

    return change


def no_words(folder):
    index = (folder / "train.idx").read_bytes()
    (folder / "train.idx").write_bytes(index[: HEADER.size] + bytes(len(index) - HEADER.size))
    (folder / "train.bin").write_bytes(b"")


WRONG_SPLITS = {
    "empty index": (put("train.idx", b""), "train.idx is damaged"),
    "index of noise": (put("train.idx", NOISE), "train.idx is damaged"),
    "half an index": (cut("train.idx", 0.5), "train.idx is damaged"),
    "no more than an index' head": (lambda folder: os.truncate(folder / "train.idx", 26), "train.idx is damaged"),
    "unknown type": (changed("train.idx", 17, 99), "train.idx is damaged"),
    "10^18 sentences": (changed("train.idx", 25, 13), "train.idx is damaged"),
    "a sentence's length": (changed("train.idx", 26, 77), "train.bin is damaged, or not of train.idx"),
    "empty sentences": (no_words, "train.bin has no words"),
    "half the words": (cut("train.bin", 0.5), "train.bin is damaged, or not of train.idx"),
    "no sentences": (put("train.idx", HEADER.pack(b"MMIDIDX\x00\x00", 1, 8, 0)), "train.idx has no sentences"),
    "no words": (put("train.bin", b""), "train.bin is damaged, or not of train.idx"),
    "no .bin": (lambda folder: (folder / "train.bin").unlink(), "train.bin not found"),
    "words of another split": (
        lambda folder: shutil.copy(folder / "valid.bin", folder / "train.bin"),
        "train.bin is damaged, or not of train.idx",
    ),
    "unknown words": (changed("train.bin", 1, 255), "its dictionary ends with 23"),
    "short dictionary": (
        lambda folder: (folder / "dict.txt").write_text("w0 3\nw1 2\n"),
        "train.bin has the word number 23, but its dictionary ends with 5",
    ),
    "a dictionary's last line": (
        lambda folder: (folder / "dict.txt").write_text("".join(f"w{n} 3\n" for n in range(19))),
        "train.bin has the word number 23, but its dictionary ends with 22",
    ),
}


@pytest.fixture
def folder(lm_data, tmp_path):
    return shutil.copytree(lm_data, tmp_path / "data-bin")


@pytest.mark.parametrize("wrong", WRONG_SPLITS)
def test_split(wrong, folder):
    damage, said = WRONG_SPLITS[wrong]
    damage(folder)
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    with pytest.raises(SystemExit, match=f"^fairseq_kernels: error: {folder}/.*{said}.*make the data-bin again"):
        data_utils.load_indexed_dataset(str(folder / "train"), dictionary, combine=True)


def test_later_files_of_a_split(folder):
    """Those that fairseq puts together with the first."""
    for ending in ("idx", "bin"):
        shutil.copy(folder / f"train.{ending}", folder / f"train1.{ending}")
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    assert len(data_utils.load_indexed_dataset(str(folder / "train"), dictionary, combine=True)) == 320
    cut("train1.bin", 0.5)(folder)
    with pytest.raises(SystemExit, match="train1.bin is damaged"):
        data_utils.load_indexed_dataset(str(folder / "train"), dictionary, combine=True)


def test_words_of_later_files_are_counted(mt_data, tmp_path):
    """Of parallel text, too: fairseq trains on them."""
    data = shutil.copytree(mt_data, tmp_path / "data")
    dictionary = Dictionary.load(str(data / "dict.en.txt"))
    counts = word_counts(data / "train.de-en.en", dictionary)
    for part in (1, 2):
        for ending in ("idx", "bin"):
            shutil.copy(data / f"train.de-en.en.{ending}", data / f"train{part}.de-en.en.{ending}")
        assert (word_counts(data / "train.de-en.en", dictionary) == (part + 1) * counts).all()


def test_files_of_an_older_fairseq(folder):
    """Are read a sentence at a time: as fairseq reads them, a training in blocks of words fails."""
    dictionary, prefix = Dictionary.load(str(folder / "dict.txt")), str(folder / "train")
    sentences = [sentence.clone() for sentence in data_utils.load_indexed_dataset(prefix, dictionary)]
    counts = word_counts(folder / "train", dictionary)
    builder = IndexedDatasetBuilder(f"{prefix}.bin")
    for sentence in sentences:
        builder.add_item(sentence)
    builder.finalize(f"{prefix}.idx")
    assert all(map(torch.equal, data_utils.load_indexed_dataset(prefix, dictionary), sentences))
    assert (word_counts(folder / "train", dictionary) == counts).all() and counts.sum() == sum(map(len, sentences))
    for ending in ("idx", "bin"):
        shutil.copy(f"{prefix}.{ending}", f"{prefix}1.{ending}")
    assert (word_counts(folder / "train", dictionary) == 2 * counts).all()


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "has no words"),
        (NOISE, "Incorrect encoding"),
        ("w0 3\n".encode("utf-16"), "Incorrect encoding"),
        (b"w0\nw1\n", "<token> <cnt>"),
        (b"w0 many\n", "<token> <cnt>"),
        (b"w0 3\n\nw1 3\n", "<token> <cnt>"),
        (b"w0 3\nw0 2\n", "Duplicate word .* 'w0'"),
    ],
)
def test_dictionary(content, said, folder):
    (folder / "dict.txt").write_bytes(content)
    with pytest.raises(SystemExit, match=f"^fairseq_kernels: error: {folder}/dict.txt .*{said}") as end:
        Dictionary.load(str(folder / "dict.txt"))
    assert "\n" not in str(end.value)


def test_the_folder_above_a_data_bin_of_parallel_text(mt_data):
    with pytest.raises(SystemExit, match=f"no parallel text; did you mean {mt_data}"):
        tasks.setup_task(types.SimpleNamespace(_name="translation", task="translation", data=str(mt_data.parent)))


@pytest.fixture(scope="module")
def commands(lm_data, mt_data, mixture_lm, state, tmp_path_factory):
    """Commands with wrong files, queued, and what their line must say."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "cut.pt").write_bytes(mixture_lm.last.read_bytes()[:3000])
    damaged, lm = folder / "cut.pt", ("--gen-subset", "test", *LM_TASK, "--batch-size", 8)
    pair = ("--batch-size", 8, "--source-lang", "de", "--target-lang", "en")
    above = shutil.copytree(lm_data, folder / "corpus" / "data-bin").parent
    no_target = shutil.copytree(mt_data, folder / "no-target")
    (no_target / "train.de-en.en.idx").unlink()
    commands = {
        "eval-lm": (("eval_lm", lm_data, "--path", damaged, *lm), "cut.pt is damaged"),
        "generate": (("generate", mt_data, "--path", damaged, *pair), "cut.pt is damaged"),
        "interactive": (("interactive", mt_data, "--path", damaged, *pair[2:]), "cut.pt is damaged"),
        "restore-file": (lm_training(lm_data, folder / "a", "--restore-file", damaged), "cut.pt is damaged"),
        "no restore-file": (lm_training(lm_data, folder / "a", "--restore-file", "none.pt"), "none.pt not found"),
        "a folder to restore": (lm_training(lm_data, folder / "f", "--restore-file", folder), f"{folder} is a folder"),
        "a folder to finetune": (
            lm_training(lm_data, folder / "g", "--finetune-from-model", folder),
            f"--finetune-from-model {folder} is a folder",
        ),
        "finetune": (lm_training(lm_data, folder / "b", "--finetune-from-model", damaged), "cut.pt is damaged"),
        "language model for translation": (
            ("generate", mt_data, "--path", mixture_lm.last, *pair),
            "KernelLSTMLanguageModel is a language model, which doesn't fit --task translation",
        ),
        "translation model for text": (
            lm_training(lm_data, folder / "c", arch="kernel_transformer_iwslt_de_en"),
            "KernelTransformer is no language model, which doesn't fit --task language_modeling",
        ),
        "corpus for its data-bin": (lm_training(above, folder / "d"), f"did you mean {above}/data-bin?"),
        "no target side": (mt_training(no_target, folder / "e"), "no text of the target language"),
    }
    return {name: (later(*command), said) for name, (command, said) in commands.items()}


@pytest.mark.parametrize(
    "name",
    ["eval-lm", "generate", "interactive", "restore-file", "no restore-file", "a folder to restore",
     "a folder to finetune", "finetune",
     "language model for translation", "translation model for text", "corpus for its data-bin", "no target side"],
)  # fmt: skip
def test_command(name, commands):
    queued, said = commands[name]
    result = queued.result()
    assert result.code is not None and result.code > 0, result.text[-2000:]
    [line] = result.err.strip().splitlines()
    assert line.startswith("fairseq_kernels: error: ") and said in line
