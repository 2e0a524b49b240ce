"""Pretrained vectors, of ``--encoder-embed-path`` and ``--decoder-embed-path``: a line a word, header or not."""

from typing import Dict

import torch
from fairseq import utils
from torch import Tensor

from ..errors import mistake
from . import replaces


@replaces(utils, "parse_embedding")
def parse_embedding(theirs, path: str) -> Dict[str, Tensor]:
    """fairseq always skips the first line as a header, and reads any file as vectors.

    Lost: the first word of GloVe's files was lost, and words with a space. The error did not name the bad file.
    """
    vectors: Dict[str, Tensor] = {}
    dimension, line = 0, 0
    try:
        with open(path, encoding="utf-8") as file:
            for line, text in enumerate(file, start=1):
                pieces = text.rstrip().split(" ")
                if line == 1 and len(pieces) == 2:  # the header: words and dimension
                    continue
                dimension = dimension or len(pieces) - 1
                word, numbers = " ".join(pieces[:-dimension]), pieces[-dimension:]
                vectors[word] = torch.tensor([float(number) for number in numbers])
                if not word or len(numbers) != dimension:
                    raise ValueError
    except ValueError:  # UnicodeDecodeError is one
        vectors = {}
    if not vectors:
        text = "give a text file with a word and its numbers in each line, as word2vec and fastText write them, too"
        raise mistake(f"{path} has no vector in line {line or 1}: {text}")
    return vectors


@replaces(utils, "load_embedding")
def load_embedding(theirs, vectors: Dict[str, Tensor], vocabulary, embedding):
    """fairseq does not check the dimension of pretrained vectors.

    Lost: torch's error showed two sizes and did not name the vectors.
    """
    given = len(next(iter(vectors.values())))
    if given != embedding.embedding_dim:
        raise mistake(
            f"the pretrained vectors have dimension {given}, the model's embeddings {embedding.embedding_dim}; set "
            "--encoder-embed-dim or --decoder-embed-dim to the vectors'"
        )
    return theirs(vectors, vocabulary, embedding)
