"""Trained language models of the tests: loading them, and their scores on the validation data."""

import math

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq_commands import logged

from fairseq_kernels import fairseq_plugin  # noqa: F401  (as --user-dir does)


def load(folder, checkpoint="checkpoint_last.pt"):
    """A trained model in evaluation mode, and its task."""
    [model], _, task = load_model_ensemble_and_task([str(folder / checkpoint)])
    return model.eval(), task


def parameters(folder, checkpoint="checkpoint_last.pt"):
    return torch.load(folder / checkpoint, weights_only=True)["model"]


def batches(task, split="valid"):
    """All of a split, with padding."""
    task.load_dataset(split)
    return list(task.get_batch_iterator(task.dataset(split), max_sentences=16).next_epoch_itr(shuffle=False))


def padded_batch(task):
    [batch, *_] = [b for b in batches(task) if b["target"].eq(task.target_dictionary.pad()).any()]
    return batch


def loss_of(model, task):
    """Loss in bits on the validation data, from the model's log-probabilities."""
    loss, tokens = 0.0, 0
    for batch in batches(task):
        real = batch["target"].ne(task.target_dictionary.pad())
        log_p = scores(model, batch).gather(2, batch["target"].unsqueeze(2)).squeeze(2)
        loss, tokens = loss - log_p[real].sum().item(), tokens + real.sum().item()
    return loss / tokens / math.log(2)


def scores(model, batch):
    with torch.no_grad():
        return model.get_normalized_probs(model(**batch["net_input"]), log_probs=True)


def decodes_step_by_step(model):
    """With incremental state, a token at a time and reordered as beam search does: the scores of whole sequences."""
    torch.manual_seed(0)
    tokens = torch.randint(4, 24, (3, 7))
    order = torch.tensor([2, 0, 0])
    with torch.no_grad():
        state, steps = {}, []
        for end in range(1, 8):
            if end == 4:
                model.decoder.reorder_incremental_state_scripting(state, order)
                tokens, steps = tokens[order], [step[order] for step in steps]
            steps.append(model.decoder(tokens[:, :end], incremental_state=state)[0][:, -1])
        full, _ = model.decoder(tokens)
    torch.testing.assert_close(torch.stack(steps, 1), full, rtol=1e-5, atol=1e-5)


def figures(trained, model, task):
    """Training's log lines and validation's last one; the loss falls, and the saved model has the logged perplexity."""
    epochs, valid = logged(trained.result, "train"), logged(trained.result, "valid")[-1]
    assert epochs[-1]["loss"] < epochs[0]["loss"] < 8
    assert valid["ppl"] == pytest.approx(2 ** valid["nll_loss"], rel=2e-3)  # logged to 3 decimals
    assert valid["nll_loss"] == pytest.approx(loss_of(model, task), abs=2e-3)
    return epochs, valid
