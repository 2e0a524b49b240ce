"""Converts a fairseq checkpoint to another dictionary, for training on with --finetune-from-model.

python -m fairseq_kernels.extend_vocabulary CHECKPOINT OLD_DICT NEW_DICT OUT [--vectors FILE]
"""

import re
from pathlib import Path
from typing import Dict

import torch
from fairseq import utils
from fairseq.data import Dictionary
from torch import Tensor

from . import fairseq_plugin  # noqa: F401  (its reader of vectors)
from .checkpoint import load, write
from .errors import CommandParser, mistake

INPUT = "decoder.embed_tokens.weight"
OUTPUT = re.compile(r"decoder\.(output_projection|fc_out)\.(weight|bias|untied_weights\.\d+)")  # ours, fairseq's own


def extended(
    state: Dict[str, Tensor], old: Dictionary, new: Dictionary, vectors: Dict[str, Tensor]
) -> Dict[str, Tensor]:
    """A model's parameters, with a row for each word of its decoder's ``new`` dictionary.

    Words of the ``old`` dictionary keep their rows, wherever they are now. Each new word gets
    its vector from ``vectors`` in embeddings and in matrices shared with them. Without one it gets the mean of the old
    rows, as in all other matrices.
    """
    if "decoder.output_projection.sense_word" in state:
        raise mistake("the vocabulary of --output-layer kerbs, which has several vectors a word, can't be extended")
    if len(old) != len(state[INPUT]):
        raise mistake(f"OLD_DICT has {len(old):,} words, the checkpoint {len(state[INPUT]):,}; give its own")
    rows = torch.tensor([old.indices.get(word, -1) for word in new.symbols])
    state = dict(state)
    for name, tensor in list(state.items()):
        embeds = tensor.shape == state[INPUT].shape and torch.equal(tensor, state[INPUT])
        if embeds or OUTPUT.fullmatch(name):
            mean = tensor.float().mean(0, keepdim=True).to(tensor)
            state[name] = torch.cat([tensor, mean])[rows]  # -1 is the mean
            for place in (rows < 0).nonzero().flatten().tolist() if embeds else ():
                if new[place] in vectors:
                    state[name][place] = vectors[new[place]]
    return state


def main() -> None:
    parser = CommandParser(prog="python -m fairseq_kernels.extend_vocabulary", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("old", type=Path, help="dict.txt (dict.LANGUAGE.txt) of its training, of the decoder")
    parser.add_argument("new", type=Path, help="the same with other words, in any order")
    parser.add_argument("out", type=Path, help="the checkpoint to write")
    parser.add_argument("--vectors", help="embeddings of new words, as for --decoder-embed-path")
    args = parser.parse_args()
    content, old, new = load(args.checkpoint), Dictionary.load(str(args.old)), Dictionary.load(str(args.new))
    vectors = utils.parse_embedding(args.vectors) if args.vectors else {}
    content["model"] = extended(content["model"], old, new, vectors)
    content["last_optimizer_state"] = None  # it is of the old parameters
    write(str(args.out), lambda file: torch.save(content, file))
    added = len(set(new.symbols) - set(old.symbols))
    print(f"{args.out}: {len(new):,} words, {added:,} of them new; train on with --finetune-from-model {args.out}")


if __name__ == "__main__":
    main()
