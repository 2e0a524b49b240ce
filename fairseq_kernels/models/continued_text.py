"""Batches for a model that carries its state from one to the next: row i continues the text of row i."""

from functools import partial
from typing import Dict, List, Sequence, Set

import numpy as np
from fairseq.data import LMContextWindowDataset
from fairseq.data.iterators import EpochBatchIterator

from ..errors import mistake


def continue_text(task) -> None:
    """Has a language modelling task give its data sets in the text's order, and say of each batch whether it
    ``continues`` the last one.

    Training reads as many streams as a batch has rows, and each epoch the same batches. Everything else reads a single
    stream, in which no word lacks the text before it.
    """
    in_any_order = task.get_batch_iterator

    def get_batch_iterator(dataset, max_tokens=None, max_sentences=None, num_shards=1, **options):
        split = next((name for name, loaded in task.datasets.items() if loaded is dataset), None)
        if isinstance(dataset, LMContextWindowDataset):
            raise mistake("--context-window has no meaning with --carry-state, which has all of the text; leave it out")
        if split is None:  # sentences to generate from
            return in_any_order(dataset, max_tokens, max_sentences, num_shards=num_shards, **options)
        rows, longest = 1, dataset.sizes.max()
        if split.startswith("train"):
            rows = max_sentences or max(1, max_tokens // longest)
            if rows > 1 and dataset.sizes[:-1].min(initial=longest) < longest:
                raise mistake("--carry-state needs blocks of one length: train with --sample-break-mode none")
        batches = stream_batches(len(dataset), rows, num_shards)
        starts = {batch[0] for batch in batches[:num_shards] if batch}
        kwargs = {k: v for k, v in options.items() if k in ("shard_id", "num_workers", "epoch", "skip_remainder_batch")}
        return EpochBatchIterator(
            dataset, partial(collate, dataset, starts), batches, num_shards=num_shards,
            buffer_size=options.get("data_buffer_size", 0), disable_shuffling=True, **kwargs,
        )  # fmt: skip

    task.get_batch_iterator = get_batch_iterator


def stream_batches(blocks: int, rows: int, shards: int = 1) -> List[List[int]]:
    """All blocks of a text, by index: batch ``t * shards + s`` has the t-th blocks of the ``rows`` streams of shard s.
    Streams differ by a block at most, the longer ones first."""
    streams = np.array_split(np.arange(blocks), rows * shards)
    return [
        [int(stream[t]) for stream in streams[s * rows : (s + 1) * rows] if t < len(stream)]
        for t in range(len(streams[0]))
        for s in range(shards)
    ]


def collate(dataset, starts: Set[int], samples: Sequence[Dict]) -> Dict:
    batch = dataset.collater(samples)
    if batch:
        batch["net_input"]["continues"] = samples[0]["id"] not in starts
    return batch
