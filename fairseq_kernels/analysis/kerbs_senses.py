"""KerBS' senses: senses by word, the nearest words of each sense (Miao et al. 2019, Table 6), theta by word
(Figure 8) and by frequency. ``scripts/kerbs_senses.sh`` runs it."""

import json
import shlex
import sys
from pathlib import Path
from typing import Tuple

import pandas
import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair
from torch import Tensor

from .. import fairseq_plugin  # noqa: F401  (a damaged dictionary in one line)
from ..checkpoint import load, model_state, task_settings
from ..errors import CommandParser, mistake, positive_int
from .measurement import provenance

PREFIX = "decoder.output_projection."
VALUES = {"theta": "theta", "usage": "allocation.usage"}  # of a sense, where the layer has them


def senses(checkpoint: Path, data: Path) -> Tuple[pandas.DataFrame, Tensor]:
    """A data frame with one row for each sense, and the senses' vectors, scaled to length 1, by the frame's index.

    The columns are ``word``, the word's ``rank`` by frequency in training (from 1; 0: fairseq's own symbols), ``theta``
    and ``usage``, the share of the word that the sense has. The most used senses come first. The words are those of
    the data-bin folder ``data``.
    """
    state = model_state(checkpoint)
    layer = {key[len(PREFIX) :]: value for key, value in state.items() if key.startswith(PREFIX)}
    if "sense_word" not in layer:
        raise mistake(f"{checkpoint} has no senses; give a checkpoint trained with --output-layer kerbs")
    known = {name: layer[key] for name, key in VALUES.items() if key in layer}
    home = layer["sense_word"]
    words = dictionary(checkpoint, data, 1 + int(home.max()))
    counts = layer.get("allocation.occurrences", -torch.arange(len(words)))  # the dictionary is in frequency's order
    ranks = torch.zeros(len(words), dtype=torch.long)
    order = counts[words.nspecial :].argsort(descending=True, stable=True) + words.nspecial
    ranks[order] = torch.arange(1, 1 + len(order))
    columns = {name: values.numpy() for name, values in {"rank": ranks[home], **known}.items()}
    frame = pandas.DataFrame({"word": [words[word] for word in home.tolist()], **columns})
    frame = frame.sort_values("usage", ascending=False) if "usage" in frame else frame
    return frame, torch.nn.functional.normalize(layer["weight"].float(), dim=1)


def dictionary(checkpoint: Path, data: Path, number: int) -> Dictionary:
    """The ``number`` words of a model's decoder, from the data-bin folder of its training."""
    path = data / "dict.txt"
    if not path.is_file() and any(data.glob("dict.*.txt")):  # of translation
        language = task_settings(load(checkpoint)).get("target_lang")
        path = data / f"dict.{language or infer_language_pair(str(data))[1]}.txt"
    words = Dictionary.load(str(path))
    if len(words) != number:
        raise mistake(f"{path} has {len(words):,} words, the checkpoint {number:,}; give the data-bin of its training")
    return words


def by_frequency(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Senses a word, theta's mean and standard deviation, by the words' rank: 1 to 10, 11 to 100 and so on."""
    frame, last = frame[frame["rank"] > 0], int(frame["rank"].max())
    ends = [0, *(10**power for power in range(1, 1 + len(str(last - 1))))]
    names = [f"{start + 1} to {min(end, last)}" for start, end in zip(ends, ends[1:])]
    decades = frame.groupby(pandas.cut(frame["rank"], ends, labels=names), observed=True)
    columns = {"senses a word": decades.size() / decades.word.nunique()}
    if "theta" in frame:
        columns.update({"theta": decades.theta.mean(), "deviation": decades.theta.std(ddof=0)})
    return pandas.DataFrame(columns).rename_axis("rank").reset_index()


def most_frequent(frame: pandas.DataFrame, number: int) -> pandas.Series:
    """The most frequent words of each number of senses."""
    words = frame.assign(senses=frame.groupby("word").word.transform("size")).drop_duplicates("word")
    words = words[words["rank"] > 0].sort_values(["senses", "rank"], ascending=[False, True])
    return words.groupby("senses", sort=False).head(number).word


def neighbours(frame: pandas.DataFrame, vectors: Tensor, sense: int, number: int) -> str:
    """The nearest other words, by the cosine of their nearest sense."""
    nearest = frame.word.loc[(vectors @ vectors[sense]).argsort(descending=True).numpy()]
    return ", ".join(nearest[nearest != frame.word[sense]].unique()[:number])


def main() -> None:
    parser = CommandParser(prog="kerbs_senses.sh", description="Senses, their neighbours and theta by word.")
    parser.add_argument("data", type=Path, help="data-bin folder of the training")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--words", nargs="+", help="these words (default: the most frequent of each number of senses)")
    parser.add_argument("--number", type=positive_int, default=8, help="words of each number of senses")
    parser.add_argument("--neighbours", type=positive_int, default=4, help="nearest words of each sense")
    parser.add_argument("--out", type=Path, help="folder for senses.json")
    args = parser.parse_args()
    frame, vectors = senses(args.checkpoint, args.data)
    if unknown := sorted(set(args.words or ()) - set(frame.word)):
        parser.error(f"{', '.join(unknown)}: not in the dictionary of {args.data}")
    words = args.words or most_frequent(frame, args.number)
    rows = pandas.concat([frame[frame.word == word] for word in words])
    rows["neighbours"] = [neighbours(frame, vectors, sense, args.neighbours) for sense in rows.index]
    rows = rows.drop(columns="rank")
    by_senses = frame.groupby("word").size().value_counts().sort_index().rename_axis("senses").reset_index(name="words")
    tables = {"words_by_senses": by_senses, "by_frequency": by_frequency(frame), "words": rows}
    for table in tables.values():
        print(table.to_string(index=False, float_format="{:.3f}".format), end="\n\n")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        command = shlex.join(["bash", "scripts/kerbs_senses.sh", *sys.argv[1:]])
        record = {name: table.to_dict("records") for name, table in tables.items()}
        text = json.dumps({"command": command, "made": provenance(), **record}, indent=1, ensure_ascii=False) + "\n"
        (args.out / "senses.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
