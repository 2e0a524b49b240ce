"""DailyDialog: each turn with its reply, to BPE and fairseq's binary data.

The corpus (Li et al. 2017) is http://yanran.li/dailydialog. Its text is tokenised; here it becomes lower case. The
source language is called ``post``, the target ``reply``. Dialogues of the development and test text that also stand in
the training text are left out, as Miao et al. (2019, section 4) do.
"""

from pathlib import Path

import prepare_bitext as bitext
from common import read_lines

FILES = {"train": "train", "valid": "validation", "test": "test"}


def dialogues(path):
    """The turns of each dialogue, with single spaces."""
    lines = (line.split("__eou__") for line in read_lines(path))
    return [tuple(" ".join(turn.split()) for turn in turns if turn.strip()) for turns in lines]


def pairs(paths):
    """``{(split, "post" or "reply"): turns}``, and prints how many dialogues are left out."""
    corpus, lines = {split: dialogues(path) for split, path in paths.items()}, {}
    train = set(corpus["train"])
    for split, given in corpus.items():
        used = given if split == "train" else [dialogue for dialogue in given if dialogue not in train]
        print(f"{split}: {len(used):,} dialogues, {len(given) - len(used)} left out that also stand in train")
        lines[split, "post"] = [turn for dialogue in used for turn in dialogue[:-1]]
        lines[split, "reply"] = [turn for dialogue in used for turn in dialogue[1:]]
    return lines


def main():
    parser = bitext.argument_parser(__doc__.split("\n\n")[0])
    parser.add_argument("--data", required=True, type=Path, metavar="DIR",
                        help="the unpacked archive, or a folder with dailydialog.{train,validation,test}.txt")
    parser.set_defaults(source_lang="post", target_lang="reply", tokenized=True, joined_dictionary=True)
    args = parser.parse_args()
    form = "{0}/dialogues_{0}.txt" if (args.data / "train").is_dir() else "dailydialog.{}.txt"
    paths = {split: args.data / form.format(name) for split, name in FILES.items()}
    bitext.prepare(args, paths.values(), lambda: pairs(paths))
