"""Checkpoints, data-bins and vectors that are damaged, or something else: one line that names the file."""

import os
import pickle
import random
import re
import shutil
from argparse import Namespace
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options, tasks, utils
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import IndexedDatasetBuilder
from fairseq_commands import later, lm_training

from fairseq_kernels import fairseq_plugin  # noqa: F401
from fairseq_kernels.checkpoint import load, model_state, task_settings
from fairseq_kernels.word_counts import word_counts

NOISE = random.Random(1).randbytes(5000)


class Code:
    """What a malicious checkpoint holds."""

    def __reduce__(self):
        return os.mkdir, ("code-ran",)


WRONG_CHECKPOINTS = {
    "truncated": lambda whole, state: whole[: len(whole) // 2],
    "empty": lambda whole, state: b"",
    "text": lambda whole, state: b"hello, this is text\n",
    "another program's dict": lambda whole, state: {"epoch": 3, "net": torch.zeros(3)},
    "bare state_dict": lambda whole, state: state["model"],
    "a changed byte": lambda whole, state: whole[:-9999] + bytes([whole[-9999] ^ 1]) + whole[-9998:],
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
    assert "\n" not in end.value.code and "weights_only" not in end.value.code
    assert os.listdir() == ["wrong.pt"]


def test_settings_are_no_programs(mt_data, tmp_path, monkeypatch):
    """fairseq evaluates them, those of a checkpoint too; its own architectures' arithmetic stays."""
    monkeypatch.chdir(tmp_path)

    def built(*settings):
        args = [str(mt_data), "--task", "translation", "--arch", "fconv", *settings]
        cfg = options.parse_args_and_arch(options.get_training_parser(), args)
        return tasks.setup_task(cfg).build_model(cfg, from_checkpoint=True)

    with pytest.raises(ValueError, match="the setting .*mkdir.* is not allowed"):
        built("--decoder-layers", "__import__('os').mkdir('code-ran') or 1")
    assert os.listdir() == []
    built("--decoder-layers", "[(8, 3)] * 2 + [(8, 1)]")


def test_what_checkpoints_may_hold(state, tmp_path):
    """Numbers of numpy's (fairseq issue 5603), by either name of its function, arrays, and an argparse.Namespace."""
    numbers = [np.float64(2.5), np.float32(2.5), np.int64(2), np.bool_(True)]
    older = {"args": Namespace(target_lang="en"), "model": state["model"]}  # of older versions of fairseq
    torch.save(older, tmp_path / "older.pt")
    assert task_settings(load(tmp_path / "older.pt"))["target_lang"] == "en"
    best = {"best": numbers, "counts of --eval-bleu": np.arange(4), "args": Namespace(value=1)}
    torch.save({**state, "extra_state": {**state["extra_state"], **best}}, tmp_path / "numbers.pt")
    for name in (b"numpy.core.multiarray", b"numpy._core.multiarray"):  # as numpy 1 and 2 write it
        with ZipFile(tmp_path / "numbers.pt") as written, ZipFile(tmp_path / "other.pt", "w") as other:
            for entry in written.infolist():
                other.writestr(entry, re.sub(rb"numpy\._?core\.multiarray", name, written.read(entry)))
        content = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "other.pt"))
        assert content["extra_state"]["best"] == numbers
        assert content["extra_state"]["counts of --eval-bleu"].tolist() == [0, 1, 2, 3]


def put(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def changed(name, place, byte):
    def change(folder):
        content = bytearray((folder / name).read_bytes())
        content[place : place + len(byte)] = byte
        (folder / name).write_bytes(content)

    return change


WRONG_SPLITS = {
    "empty index": put("train.idx", b""),
    "10^18 sentences": changed("train.idx", 25, b"\r"),
    "no words": put("train.bin", b""),
    "no .bin": lambda folder: (folder / "train.bin").unlink(),
    "the word after the last": changed("train.bin", 2, bytes([24, 0])),
    "a block of zeros": changed("train.bin", 200, bytes(100)),
    "zeros alone": lambda folder: put("train.bin", bytes((folder / "train.bin").stat().st_size))(folder),
    "short dictionary": put("dict.txt", b"w0 3\nw1 2\n"),
}


@pytest.fixture
def folder(lm_data, tmp_path):
    return shutil.copytree(lm_data, tmp_path / "data-bin")


def loaded(folder, combine=True):
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    return data_utils.load_indexed_dataset(str(folder / "train"), dictionary, combine=combine)


@pytest.mark.parametrize("wrong", WRONG_SPLITS)
def test_split(wrong, folder):
    WRONG_SPLITS[wrong](folder)
    with pytest.raises((SystemExit, FileNotFoundError), match=r"train\.(idx|bin)"):
        loaded(folder)
    if wrong == "zeros alone":  # of no words: alignments may end with 0
        assert len(data_utils.load_indexed_dataset(str(folder / "train"), None))


def test_every_part_of_a_split(folder):
    """Those that fairseq puts together with the first, and trains on, are counted and looked at, too."""
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    counts = word_counts(folder / "train", dictionary)
    for ending in ("idx", "bin"):
        shutil.copy(folder / f"train.{ending}", folder / f"train1.{ending}")
    assert len(loaded(folder)) == 320 and (word_counts(folder / "train", dictionary) == 2 * counts).all()
    os.truncate(folder / "train1.bin", 500)
    with pytest.raises(SystemExit, match="train1.bin is damaged"):
        loaded(folder)


def test_files_of_dataset_impl_lazy(folder, tmp_path):
    """Are read and counted as any other, and a training in blocks of words takes them."""
    sentences = [sentence.clone() for sentence in loaded(folder, combine=False)]
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    counts = word_counts(folder / "train", dictionary)
    for split in ("train", "valid"):
        builder = IndexedDatasetBuilder(f"{folder}/{split}.bin")
        for sentence in sentences:
            builder.add_item(sentence)
        builder.finalize(f"{folder}/{split}.idx")
    assert all(map(torch.equal, loaded(folder, combine=False), sentences))
    assert (word_counts(folder / "train", dictionary) == counts).all() and counts.sum() == sum(map(len, sentences))
    ways = (), ("--dataset-impl", "lazy")
    trainings = [
        later(*lm_training(folder, tmp_path / str(n), "--max-update", 2, "--output-bias", "prior", *way))
        for n, way in enumerate(ways)
    ]
    assert {training.result().code for training in trainings} == {0}


# pretrained vectors


def test_vectors(tmp_path):
    """With a header, as fastText's, or without, as GloVe's, which has words with spaces."""
    lines, path = "the 1 2 3\n. . . 4 5 6\n", tmp_path / "vectors"
    for header in ("", "2 3\n"):
        path.write_text(header + lines)
        vectors = utils.parse_embedding(str(path))
        assert {word: vector.tolist() for word, vector in vectors.items()} == {"the": [1, 2, 3], ". . .": [4, 5, 6]}
    dictionary = Dictionary()
    with pytest.raises(SystemExit, match="dimension 3.* 4"):
        utils.load_embedding(vectors, dictionary, torch.nn.Embedding(len(dictionary), 4))


@pytest.mark.parametrize("content, line", [(b"", 1), (NOISE, ""), (b"the 1 2 3\nof 1 2\n", 2), (b"a 1\nb 1\nc x\n", 3)])
def test_files_without_vectors(content, line, tmp_path):
    (tmp_path / "vectors").write_bytes(content)
    with pytest.raises(SystemExit, match=f"^fairseq_kernels: error: {tmp_path}/vectors has no vector in line {line}"):
        utils.parse_embedding(str(tmp_path / "vectors"))
