"""A language model reads a text: its context vector before every word."""

import logging
from pathlib import Path
from typing import NamedTuple

import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary
from torch import Tensor

from .. import fairseq_plugin  # noqa: F401  (registers the models)
from ..errors import mistake
from ..models.kernel_model import KernelModel
from ..output_layers import OutputLayer

BLOCK = 35  # words read in a row, as scripts/train_lm.sh and evaluate_lm.sh have them
BATCH = 32


class Reading(NamedTuple):
    """A model's reading of a text's N words, ``</s>`` included, in the text's order."""

    layer: OutputLayer
    dictionary: Dictionary
    features: Tensor  # (N, d) context vector before each word
    words: Tensor  # (N,)
    positions: Tensor  # (N,) of each word in its line, from 0


@torch.no_grad()
def read(checkpoint: Path, data: Path, split: str = "test") -> Reading:
    """Reads a split of a data-bin folder, in blocks of 35 words, or of the model's own length if that is less, as
    ``evaluate_lm.sh`` does; on a GPU where there is one."""
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    overrides = {"data": str(data), "sample_break_mode": "none"}
    [model], _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], arg_overrides=overrides)
    if not isinstance(model, KernelModel):
        raise mistake(f"{checkpoint} is of fairseq's own model; give one trained with --arch kernel_lstm_lm")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device).eval()
    task.args.tokens_per_sample = min(BLOCK, task.args.tokens_per_sample, model.max_positions())
    task.load_dataset(split)
    blocks = {}
    for batch in task.get_batch_iterator(task.dataset(split), max_sentences=BATCH).next_epoch_itr(shuffle=False):
        moved = utils.move_to_cuda(batch) if device == "cuda" else batch
        features, _ = model(**moved["net_input"], features_only=True)
        for block, vectors, words in zip(batch["id"].tolist(), features.float().cpu(), batch["target"]):
            counted = words != task.target_dictionary.pad()
            blocks[block] = vectors[counted], words[counted]
    features, words = (torch.cat(parts) for parts in zip(*(blocks[block] for block in sorted(blocks))))
    places = torch.arange(len(words))
    ends = words == task.target_dictionary.eos()
    starts = torch.where(ends.roll(1), places, 0).cummax(0).values
    return Reading(model.output_layer_module.cpu().float(), task.target_dictionary, features, words, places - starts)
