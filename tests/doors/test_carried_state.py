"""--carry-state: a text cut into blocks, row i of a batch going on where row i of the last one ended."""

import re
from argparse import Namespace

import pytest
import torch
from fairseq_commands import Trained, fairseq, later, lm_training, logged
from trained_models import load

from fairseq_kernels.models import KernelLSTMLanguageModel
from fairseq_kernels.models.continued_text import stream_batches


@pytest.mark.parametrize("blocks, rows, shards", [(23, 4, 1), (24, 4, 1), (23, 3, 2), (5, 4, 2), (1, 1, 1)])
def test_each_row_continues_the_last_ones(blocks, rows, shards):
    batches = stream_batches(blocks, rows, shards)
    assert sorted(block for batch in batches for block in batch) == list(range(blocks))
    for shard in range(shards):
        own = batches[shard::shards]
        for last, batch in zip(own, own[1:]):
            assert len(batch) <= len(last)
            assert batch == [block + 1 for block in last[: len(batch)]]
        assert all(len(batch) == rows for batch in own[:-1])


@pytest.fixture(scope="module")
def trained(lm_data, tmp_path_factory):
    """Three epochs of a model that carries its state, over blocks of four words."""
    cut = ("--sample-break-mode", "none", "--tokens-per-sample", 4, "--max-epoch", 3, "--batch-size", 5)
    folder = tmp_path_factory.mktemp("carried")
    return Trained(folder, fairseq(*lm_training(lm_data, folder, *cut, "--max-update", 999, "--carry-state")))


def test_evaluation_has_the_whole_text_before_each_word(lm_data, trained):
    """However the text is cut, in the validation of a training and in fairseq-eval-lm; without, words lack context."""
    options = {"short": ("--tokens-per-sample", 4), "long": ("--tokens-per-sample", 1000)}
    options["cut"] = (*options["short"], "--model-overrides", "{'carry_state': False}")
    path = ("--path", trained.folder / "checkpoint_last.pt", "--gen-subset", "valid")
    runs = {name: later("eval_lm", lm_data, *path, *own) for name, own in options.items()}
    found = {name: float(re.findall("Perplexity: (.*)", run.result().text)[0]) for name, run in runs.items()}
    validated = logged(trained.result, "valid")[-1]["ppl"]
    assert validated == pytest.approx(found["short"], abs=0.006) and found["short"] == found["long"]
    assert found["cut"] > found["long"] + 0.1


def test_training_goes_through_each_row_as_through_one_text(lm_data, trained):
    """Context vectors are those of a row in one piece; a validation in between changes nothing; gradients stop at a
    block's start; the next epoch begins anew."""
    model, task = load(trained.folder)
    task.load_dataset("train"), task.load_dataset("valid")
    valid = next(iter(task.get_batch_iterator(task.dataset("valid"), max_sentences=5).next_epoch_itr()))
    itr = task.get_batch_iterator(task.dataset("train"), max_sentences=5)
    assert task.get_batch_iterator(task.dataset("train"), max_tokens=23).frozen_batches == itr.frozen_batches
    pad = task.target_dictionary.pad()
    for _ in range(2):
        rows = {row: [] for row in range(5)}
        for batch in itr.next_epoch_itr(shuffle=True):
            with torch.no_grad():
                model.eval()(**valid["net_input"])
            features, _ = model.train()(**batch["net_input"], features_only=True)
            features.sum().backward()  # through a state with its graph it would fail: that graph is gone
            words = batch["net_input"]["src_tokens"]
            for row, (vectors, own) in enumerate(zip(features.detach(), words)):
                rows[row].append((vectors[own.ne(pad)], own[own.ne(pad)]))
        assert sum(len(words) for row in rows.values() for _, words in row) == task.dataset("train").sizes.sum()
        for row in rows.values():
            vectors, words = map(torch.cat, zip(*row))
            whole, _ = model.eval()(words.unsqueeze(0), features_only=True)
            torch.testing.assert_close(vectors, whole.squeeze(0))
    task.args.sample_break_mode = "eos"
    task.load_dataset("train")
    with pytest.raises(SystemExit, match="blocks of one length"):
        task.get_batch_iterator(task.dataset("train"), max_sentences=5)
    with pytest.raises(SystemExit, match="--context-window has no meaning with --carry-state"):
        task.eval_lm_dataloader(task.dataset("valid"), context_window=2)


def test_kerbs_carries_the_last_context_too(trained):
    """Its posterior embeds a block's first word by the context vector that predicted it, at the last block's end."""
    _, task = load(trained.folder)
    sizes = dict.fromkeys(("decoder_embed_dim", "decoder_hidden_size", "decoder_out_embed_dim"), 16)
    cfg = Namespace(output_layer="kerbs", kerbs_input="posterior", carry_state=True, **sizes)
    model = KernelLSTMLanguageModel.build_model(cfg, task).eval()
    words = torch.randint(4, len(task.dictionary), (3, 12))
    whole, _ = model(words, features_only=True)
    first, _ = model(words[:, :5], features_only=True, continues=False)
    second, _ = model(words[:2, 5:], features_only=True, continues=True)
    torch.testing.assert_close(first, whole[:, :5])
    torch.testing.assert_close(second, whole[:2, 5:])
