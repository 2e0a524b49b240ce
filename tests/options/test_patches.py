"""What is replaced in fairseq: the page that lists it, and what the replacements are for."""

import errno
import os
import re
import shutil
from argparse import Namespace
from pathlib import Path
from unittest import mock

import pytest
import torch
from corpora import binarise, markov_sentences, write, write_pairs
from fairseq import checkpoint_utils
from fairseq_commands import USER_DIR, fairseq, later, lm_training, logged, mt_training
from trained_models import load, loss_of

from fairseq_kernels import checkpoint, fairseq_plugin  # noqa: F401
from fairseq_kernels.patches import PATCHES, checkpoints


def test_the_page_that_lists_them():
    """docs/patches.md is ``python -m fairseq_kernels --patches``; a file a subject, each said in full."""
    assert (USER_DIR.parent / "docs" / "patches.md").read_text() == fairseq("kernels", "--patches").out
    files = {path.stem for path in (USER_DIR / "patches").glob("*.py")} - {"__init__"}
    assert files == {patch.function.__module__.rpartition(".")[2] for patch in PATCHES}


# fairseq's multiple of eight


@pytest.fixture(scope="module")
def small_mt(tmp_path_factory):
    """60 sentences to translate, 5 to validate on."""
    folder = tmp_path_factory.mktemp("small")
    for split, number in (("train", 70), ("valid", 5), ("test", 60)):
        write_pairs(folder, split, number)
    return binarise(folder, "data-bin", "--source-lang", "de", "--target-lang", "en")


@pytest.fixture(scope="module")
def translation_model(small_mt, tmp_path_factory):
    """Trained by fairseq's defaults, whose multiple is eight."""
    folder = tmp_path_factory.mktemp("translation")
    command = mt_training(small_mt, folder, "--kernels", "lin,log", "--required-batch-size-multiple", 8)
    return folder / "checkpoint_last.pt", fairseq(*command)


@pytest.mark.parametrize("subset, number", [("test", 60), ("valid", 5)])
def test_every_sentence_is_translated_and_scored(subset, number, small_mt, translation_model):
    generate = ("generate", small_mt, "--path", translation_model[0], "--gen-subset", subset, "--max-len-b", 12)
    results = later(*generate), later(*generate, "--required-batch-size-multiple", 1)
    ours, one = (sorted(re.findall("(?m)^(?:H-|Ge).*", each.result().out)) for each in results)
    assert ours == one and len(ours) == number + 1


def test_every_sentence_is_validated_on(translation_model):
    words = sum(len(sentence) + 1 for sentence in markov_sentences(5))
    assert logged(translation_model[1], "valid")[-1]["wpb"] == words


def test_a_training_of_five_sentences(tmp_path):
    for split in ("train", "valid", "test"):
        write(tmp_path / split, markov_sentences(5))
    data = binarise(tmp_path, "data-bin", "--only-source")
    options = ("--sample-break-mode", "eos", "--required-batch-size-multiple", 8, "--max-update", 3)
    result = fairseq(*lm_training(data, tmp_path / "model", *options))
    assert logged(result, "train")[-1]["num_updates"] == 3


PUBLISHED = {
    "settings and model": lambda whole: {"cfg": whole["cfg"], "model": whole["model"]},
    "no place in the data": lambda whole: {**whole, "last_optimizer_state": None,
                                           "extra_state": {"train_iterator": None}},
    "an older iterator": lambda whole: {**whole, "extra_state": {"train_iterator": {"epoch": 7, "version": 2}}},
}  # fmt: skip


@pytest.mark.parametrize("kind", PUBLISHED)
def test_published_checkpoints(kind, mixture_lm, lm_data, tmp_path):
    """Are evaluated and finetuned like whole ones."""
    path = tmp_path / "published.pt"
    torch.save(PUBLISHED[kind](torch.load(mixture_lm.last, weights_only=True)), path)
    begin = ("--kernels", "2xlin,log", "--finetune-from-model", path, "--max-update", 1, "--lr", 0)
    finetuned = fairseq(*lm_training(lm_data, tmp_path / "model", *begin))
    expected = pytest.approx(logged(mixture_lm.result, "valid")[-1]["loss"], abs=1e-3)
    assert loss_of(*load(tmp_path, path.name)) == expected == logged(finetuned, "valid")[-1]["loss"]


def test_vectors_are_read_once(lm_data, tmp_path):
    """By the training; its checkpoint has them, and needs the file no more."""
    vectors = tmp_path / "vectors"
    vectors.write_text("".join(f"w{number}{f' {number + 0.5}' * 16}\n" for number in range(20)))
    options = ("--decoder-embed-path", vectors, "--max-update", 1, "--lr", 0)
    fairseq(*lm_training(lm_data, tmp_path / "model", *options))
    saved = tmp_path / "model" / "checkpoint_last.pt"
    own = torch.load(saved, weights_only=True)["model"]["decoder.embed_tokens.weight"]
    assert sorted(own[4:, 0].tolist()) == [number + 0.5 for number in range(20)]
    vectors.unlink()
    load(saved.parent)


def test_the_checkpoint_written_last_counts(monkeypatch, tmp_path):
    """By what checkpoints say, whatever their names: not one of a training begun again from an earlier checkpoint,
    though it had come further."""
    places = {"checkpoint2.pt": (1, 200), "checkpoint6.pt": (2, 600), "checkpoint_last.pt": (2, 300)}
    monkeypatch.setattr(checkpoint, "place", lambda path: places[path.name])
    for second, name in enumerate(places):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (second, second))
    assert checkpoint.newest(tmp_path).name == "checkpoint_last.pt"
    os.utime(tmp_path / "checkpoint6.pt", (9, 9))  # it was stopped before the copy
    assert checkpoint.newest(tmp_path).name == "checkpoint6.pt"
    (tmp_path / "checkpoint_last.pt").unlink()
    os.utime(tmp_path / "checkpoint2.pt", (10, 10))
    (tmp_path / "checkpoint_avg.pt").touch()  # of a user, who has averaged others
    backwards = sorted(tmp_path.glob("*.pt"), reverse=True)
    monkeypatch.setattr(checkpoint.Path, "glob", lambda *_: backwards)  # in a folder's order, which may be any
    assert checkpoint.newest(tmp_path).name == "checkpoint2.pt"


def test_a_damaged_checkpoint_is_passed_over(mixture_lm, monkeypatch, tmp_path):
    """Not one that is refused, or can't be read at the moment: nothing is begun anew beside them."""
    folder = shutil.copytree(mixture_lm.folder, tmp_path / "model")
    last, best = (folder / f"checkpoint_{name}.pt" for name in ("last", "best"))
    whole = last.read_bytes()
    last.write_bytes(whole[:5000])
    assert checkpoint.newest(folder) == best
    best.write_bytes(b"")
    with pytest.raises(SystemExit, match="is damaged"):
        checkpoint.newest(folder)
    best.write_bytes(whole)
    torch.save({"model": {}, "more": Path("of no number")}, last)
    with pytest.raises(SystemExit, match="refused: it holds pathlib"):
        checkpoint.newest(folder)
    last.write_bytes(whole)
    for error in (OSError(errno.EMFILE, "Too many"), MemoryError(), RuntimeError("not enough memory: you tried")):
        monkeypatch.setattr(torch, "load", mock.Mock(side_effect=error))
        with pytest.raises(SystemExit, match="can't be read .(Too many|out of memory).") as end:
            checkpoint.newest(folder)
        assert not isinstance(end.value, checkpoint.Damaged)


@pytest.mark.parametrize("name, own", [
    *((f"checkpoint{name}.pt", True) for name in ("7", "_3_600", "_last", "_best", ".best_loss_2.5000")),
    *((name, False) for name in ("checkpoint_avg.pt", "averaged.pt", "my_checkpoint7.pt", "checkpoint7.pt.tmp")),
])  # fmt: skip
def test_names_that_trainings_give(name, own, monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoint, "place", lambda path: (1, 600))
    (tmp_path / name).touch()
    assert (checkpoint.newest(tmp_path) is not None) == own


@pytest.mark.parametrize("option", ["restore_file", "finetune_from_model"])
def test_a_given_file_that_is_missing(option, tmp_path):
    given = {"save_dir": tmp_path, "restore_file": "checkpoint_last.pt", "finetune_from_model": None, option: "no.pt"}
    with pytest.raises(SystemExit, match=f"--{option.replace('_', '-')} no.pt is not found"):
        checkpoints.choose(Namespace(**given), "")


def test_each_limit_ends_a_training(monkeypatch):
    """After 100 updates, four epochs and two hours, a learning rate of 0.5 and three losses that were no better."""
    monkeypatch.setattr(checkpoints, "early_stop", lambda: {"num_runs": 3})
    trainer = Namespace(get_num_updates=lambda: 100, get_lr=lambda: 0.5)
    none = {"max_update": 0, "max_epoch": 0, "stop_min_lr": -1.0, "stop_time_hours": 0, "patience": -1}
    later = {"max_update": 101, "max_epoch": 5, "stop_min_lr": 0.4, "stop_time_hours": 2.1, "patience": 4}
    reached = {"max_update": 100, "max_epoch": 4, "stop_min_lr": 0.5, "stop_time_hours": 1.9, "patience": 3}
    for limit in none:
        for limits, is_reached in ((none, False), (later, False), (reached, True)):
            cfg = Namespace(**{**none, limit: limits[limit]})
            trainer.cfg = Namespace(optimization=cfg)
            place = Namespace(next_epoch_idx=5), {"previous_training_time": 7200.0}
            assert checkpoints.is_finished(cfg, trainer, *place) == is_reached, limit


def test_nothing_of_an_earlier_training_counts(mixture_lm):
    """Its best loss and what --patience had counted, which fairseq keeps in its functions, in one process."""
    from fairseq_cli.train import should_stop_early

    cfg = Namespace(restore_file=str(mixture_lm.last), save_dir="nowhere", finetune_from_model=None,
                    reset_optimizer=True, reset_meters=True)  # fmt: skip
    checkpoint_utils.save_checkpoint.best = should_stop_early.best = 0.1
    should_stop_early.num_runs = 9
    trainer = Namespace(checkpoint_suffix="", get_model=Namespace, get_num_updates=lambda: 0)
    checkpoints.resume(lambda *_: (None, None), cfg, trainer)
    assert not hasattr(checkpoint_utils.save_checkpoint, "best") and not vars(should_stop_early)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("cause, said", [(OSError(28, "No space left"), "last.pt can't be written .*No space left"),
                                         (KeyboardInterrupt(), "^$")])  # fmt: skip
def test_a_full_disk(cause, said, hidden, tmp_path):
    """And Ctrl-C, also where torch hides it, leave the older file and no part of the newer."""
    (tmp_path / "checkpoint_last.pt").write_text("older")

    def fill(file):
        try:
            file.write(b"half")
            raise cause
        finally:
            if hidden:
                raise RuntimeError("unexpected pos 64 vs 0")

    with pytest.raises((SystemExit, KeyboardInterrupt), match=said):
        checkpoint.write(str(tmp_path / "checkpoint_last.pt"), fill)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["older"]
