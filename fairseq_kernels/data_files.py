"""A data-bin folder's files, checked before fairseq maps them into memory and looks up vectors by their word numbers.
:func:`install` puts this into fairseq.
"""

import re
import struct
from pathlib import Path
from typing import Optional

import numpy as np
from fairseq.data import Dictionary, data_utils
from fairseq.data.huffman import HuffmanMMapIndex
from fairseq.data.indexed_dataset import IndexedDataset, MMapIndexedDataset, _code_to_dtype, infer_dataset_impl

from .errors import TOO_LONG, data_bin_near, mistake

HEADER = struct.Struct("<9sQBQ")  # magic, version, code of the word numbers' type, sentences
OTHER_FORMATS = (IndexedDataset._HDR_MAGIC, HuffmanMMapIndex._HDR_MAGIC[:8])
AGAIN = "make the data-bin again, with a data-prep script or fairseq-preprocess"
fairseq_load = data_utils.load_indexed_dataset
fairseq_batches = data_utils.batch_by_size
fairseq_pair = data_utils.infer_language_pair
fairseq_dictionary = Dictionary.add_from_file


def install() -> None:
    data_utils.load_indexed_dataset = load_indexed_dataset
    data_utils.infer_language_pair = infer_language_pair
    data_utils.batch_by_size = batch_by_size
    Dictionary.add_from_file = add_from_file


def batch_by_size(indices, *args, **options):
    """In the place of fairseq's, which fails where no sentence is left."""
    if len(indices) == 0:
        raise mistake(TOO_LONG)
    return fairseq_batches(indices, *args, **options)


def load_indexed_dataset(path: str, dictionary: Optional[Dictionary] = None, dataset_impl=None, *args, **options):
    """In the place of fairseq's, with all of its files checked. What fairseq-preprocess --dataset-impl lazy, or cached,
    made is read as "lazy": fairseq chooses "cached", with which a training in blocks of words ends in a KeyError."""
    prefix = Path(path)
    for index in sorted({prefix.with_name(f"{prefix.name}.idx"), *prefix.parent.glob(f"{prefix.name}[0-9]*.idx")}):
        if index.is_file():
            check(index, dictionary)
    if dataset_impl is None and infer_dataset_impl(path) == "cached":
        dataset_impl = "lazy"
    return fairseq_load(path, dictionary, dataset_impl, *args, **options)


def check(index: Path, dictionary: Optional[Dictionary]) -> None:
    """
    Raises:
        SystemExit: one line: index and word numbers are not whole, not of each other, or not of the dictionary.
    """
    data = index.with_suffix(".bin")
    with open(index, "rb") as file:
        header = file.read(HEADER.size)
    if header.startswith(OTHER_FORMATS):
        return
    try:
        magic, version, code, sentences = HEADER.unpack(header)
        numbers = np.dtype(_code_to_dtype[code])
        if magic != MMapIndexedDataset.Index._HDR_MAGIC or version != 1:
            raise ValueError
        content = np.memmap(index, np.uint8, "r", HEADER.size)
        if content.size != 12 * sentences:
            raise ValueError
    except (struct.error, LookupError, ValueError):
        raise mistake(f"{index} is damaged; {AGAIN}") from None
    if not sentences:
        raise mistake(f"{index} has no sentences; {AGAIN}")
    lengths = content[: 4 * sentences].view(np.int32).astype(np.int64)
    starts = content[4 * sentences :].view(np.int64)
    ends = lengths.cumsum() * numbers.itemsize
    if not data.is_file():
        raise mistake(f"{data} not found, which {index.name} is of; {AGAIN}")
    if lengths.min() < 0 or (starts[1:] != ends[:-1]).any() or data.stat().st_size != ends[-1]:
        raise mistake(f"{data} is damaged, or not of {index.name}; {AGAIN}")
    if not ends[-1]:
        raise mistake(f"{data} has no words; {AGAIN}")
    most = int(np.memmap(data, numbers, "r").max())
    if dictionary is not None and most >= len(dictionary):
        raise mistake(
            f"{data} has the word number {most}, but its dictionary ends with {len(dictionary) - 1}: one of them is of "
            f"other data, or damaged; {AGAIN}"
        )


def add_from_file(self: Dictionary, file) -> None:
    """In the place of fairseq's; what is wrong with a dictionary's file is said in one line."""
    if not isinstance(file, str):
        return fairseq_dictionary(self, file)
    try:
        fairseq_dictionary(self, file)
    except OSError:
        raise
    except Exception as error:  # fairseq raises all kinds
        reason = re.sub(r" in \S+, please.*|\. Duplicate words.*", "", str(error), flags=re.DOTALL)
        raise mistake(f"{file} is no dictionary ({reason}); {AGAIN}") from error
    if len(self) == self.nspecial:
        raise mistake(f"{file} has no words; {AGAIN}")


def infer_language_pair(path: str):
    """In the place of fairseq's, which leaves it to others to say that there is none."""
    source, target = fairseq_pair(path)
    if source is None:
        hint = data_bin_near(Path(path)) or "; give a parallel corpus' data-bin folder"
        raise mistake(f"{path} has no parallel text{hint}")
    return source, target
