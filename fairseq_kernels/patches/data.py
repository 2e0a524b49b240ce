"""A data-bin's files are checked before fairseq maps them into memory and looks up vectors by their word numbers."""

import struct
import types
from pathlib import Path
from typing import Optional

import numpy as np
from fairseq.data import Dictionary, data_utils
from fairseq.data.huffman import HuffmanMMapIndex
from fairseq.data.indexed_dataset import IndexedDataset, MMapIndexedDataset, _code_to_dtype, infer_dataset_impl

from ..errors import mistake
from . import replaces

HEADER = struct.Struct("<9sQBQ")  # magic, version, code of the word numbers' type, sentences
OTHER_FORMATS = (IndexedDataset._HDR_MAGIC, HuffmanMMapIndex._HDR_MAGIC[:8])
AGAIN = "make the data-bin again, with a data-prep script or fairseq-preprocess"


@replaces(None, "numpy.compat")
def restore_numpy_compat() -> None:
    """fairseq names np.compat.long, which numpy 2.4 no longer has, in its datasets of blocks.

    Lost: language models failed with a new numpy.
    """
    if not hasattr(np, "compat"):
        np.compat = types.SimpleNamespace(long=int)


@replaces(data_utils, "load_indexed_dataset")
def load_indexed_dataset(theirs, path: str, dictionary=None, dataset_impl=None, *args, **options):
    """fairseq memory-maps any file unchecked. Files of --dataset-impl cached end training in blocks with a KeyError.

    Lost: damaged files gave unrelated errors. A file that a crash had filled with zeros was trained on as text.
    """
    prefix = Path(path)
    for index in sorted({prefix.with_name(f"{prefix.name}.idx"), *prefix.parent.glob(f"{prefix.name}[0-9]*.idx")}):
        if index.is_file():
            check(index, dictionary)
    if (dataset_impl or infer_dataset_impl(path)) == "cached":
        dataset_impl = "lazy"  # the same files
    return theirs(path, dictionary, dataset_impl, *args, **options)


def check(index: Path, dictionary: Optional[Dictionary]) -> None:
    """Ends the program if index or data are damaged or belong to another data set or dictionary."""
    data = index.with_suffix(".bin")
    with open(index, "rb") as file:
        header = file.read(HEADER.size)
    if header.startswith(OTHER_FORMATS):
        return
    try:
        magic, version, code, sentences = HEADER.unpack(header)
        content = np.memmap(index, np.uint8, "r", HEADER.size)
        lengths = content[: 4 * sentences].view(np.int32).astype(np.int64)
        starts, ends = content[4 * sentences :].view(np.int64), lengths.cumsum()
        words = np.memmap(data, _code_to_dtype[code], "r")
        whole = (magic, version) == (MMapIndexedDataset.Index._HDR_MAGIC, 1)
        whole = whole and len(starts) == len(lengths) == sentences and lengths.min() >= 0 and len(words) == ends[-1]
        whole = whole and (starts == (ends - lengths) * words.itemsize).all()
        whole = whole and (dictionary is None or words[ends[lengths > 0] - 1].all())  # no sentence ends with 0, <s>
    except (struct.error, LookupError, ValueError):
        whole = False
    if not whole:
        raise mistake(f"{index} or {data.name} is damaged, or the two don't belong together; {AGAIN}")
    if dictionary is not None and words.max() >= len(dictionary):
        text = f"{data} has the word index {words.max()}, but the last index of its dictionary is {len(dictionary) - 1}"
        raise mistake(f"{text}: one of them is damaged or belongs to other data; {AGAIN}")
