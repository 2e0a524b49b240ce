"""What KerBS has learned: senses by word, the nearest words of each sense (Miao et al. 2019, Table 6), theta by word
(Figure 8) and by frequency. ``scripts/kerbs_senses.sh`` runs it."""

import json
import shlex
import sys
from pathlib import Path
from typing import Dict, List, Optional

import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair
from torch import Tensor

from .. import fairseq_plugin  # noqa: F401  (a damaged dictionary in one line)
from ..checkpoint import check_finite, load, model_state, task_settings
from ..errors import CommandParser, mistake, positive_int
from .measurement import provenance
from .plotting import file_pyplot

PREFIX = "decoder.output_projection."


class Senses:
    """The senses of a checkpoint.

    Args:
        checkpoint: of a model trained with ``--output-layer kerbs``.
        data: the data-bin folder that it was trained on, for the words.
    """

    def __init__(self, checkpoint: Path, data: Path):
        state = model_state(checkpoint)
        layer = {key[len(PREFIX) :]: value for key, value in state.items() if key.startswith(PREFIX)}
        if "sense_word" not in layer:
            raise mistake(f"{checkpoint} has no senses; give a checkpoint trained with --output-layer kerbs")
        self.vectors = torch.nn.functional.normalize(layer["weight"].float(), dim=1)
        self.home: Tensor = layer["sense_word"]
        self.theta: Optional[Tensor] = layer.get("theta")
        check_finite(checkpoint, [self.vectors] if self.theta is None else [self.vectors, self.theta])
        self.usage: Optional[Tensor] = layer.get("allocation.usage")
        self.occurrences: Optional[Tensor] = layer.get("allocation.occurrences")
        self.dictionary = dictionary(checkpoint, data, 1 + int(self.home.max()))
        self.words = self.dictionary.symbols

    def of(self, word: int) -> List[int]:
        """A word's senses, the most used first."""
        senses = (self.home == word).nonzero().squeeze(1)
        return (senses if self.usage is None else senses[self.usage[senses].argsort(descending=True)]).tolist()

    def neighbours(self, sense: int, number: int) -> List[str]:
        """The nearest other words, by the cosine of their nearest sense."""
        similarity = self.vectors @ self.vectors[sense]
        similarity[self.home == self.home[sense]] = -torch.inf
        names: Dict[str, None] = {}
        for other in similarity.argsort(descending=True).tolist():
            names.setdefault(self.words[int(self.home[other])])
            if len(names) == number:
                break
        return list(names)

    def row(self, word: int, number: int) -> Dict:
        """A word with its senses, each with its neighbours, theta, and its part in the word."""
        known = {name: values for name, values in (("theta", self.theta), ("usage", self.usage)) if values is not None}
        senses = [{"neighbours": self.neighbours(sense, number),
                   **{name: round(float(values[sense]), 4) for name, values in known.items()}}
                  for sense in self.of(word)]  # fmt: skip
        return {"word": self.words[word], "senses": senses}

    def ranked(self) -> Tensor:
        """The words, the most frequent first (in the dictionary's order where nothing was counted)."""
        order = torch.arange(len(self.words))
        if self.occurrences is not None:
            order = self.occurrences.argsort(descending=True, stable=True)
        return order[order >= self.dictionary.nspecial]

    def chosen(self, number: int) -> List[int]:
        """The most frequent words of each number of senses."""
        counts, order = torch.bincount(self.home, minlength=len(self.words)), self.ranked()
        return [int(w) for n in sorted(set(counts.tolist()), reverse=True) for w in order[counts[order] == n][:number]]

    def by_frequency(self) -> List[Dict]:
        """Of the words of rank 1 to 10, 11 to 100 and so on: senses a word, and theta's mean and standard deviation."""
        order, decades = self.ranked(), []
        ends = [min(10**power, len(order)) for power in range(1, 1 + len(str(len(order) - 1)))]
        for first, last in zip([0, *ends], ends):
            senses = torch.isin(self.home, order[first:last])
            entry = {"ranks": [first + 1, last], "senses_a_word": round(int(senses.sum()) / (last - first), 3)}
            if self.theta is not None:
                theta = self.theta[senses]
                entry["theta"] = round(float(theta.mean()), 4)
                entry["deviation"] = round(float(theta.std(correction=0)), 4)
            decades.append(entry)
        return decades


def dictionary(checkpoint: Path, data: Path, number: int) -> Dictionary:
    """The ``number`` words of a model's decoder, from the data-bin folder of its training.

    Raises:
        SystemExit: one line: the folder's dictionary is of another training.
    """
    path = data / "dict.txt"
    if not path.is_file() and any(data.glob("dict.*.txt")):  # of translation
        language = task_settings(load(checkpoint)).get("target_lang")
        path = data / f"dict.{language or infer_language_pair(str(data))[1]}.txt"
    words = Dictionary.load(str(path))
    if len(words) != number:
        raise mistake(f"{path} has {len(words):,} words, the checkpoint {number:,}; give the data-bin of its training")
    return words


def plot(rows: List[Dict], decades: List[Dict], path: Path) -> None:
    """Theta of each sense of the words, as the paper's Figure 8, and its mean over words of like frequency."""
    pyplot = file_pyplot()
    width = max(6, 0.3 * len(rows))
    shape = {"figsize": (width + 4, 4), "width_ratios": (width, 4), "sharey": True, "constrained_layout": True}
    figure, (words, frequency) = pyplot.subplots(1, 2, **shape)
    for place, row in enumerate(rows):
        values = [sense["theta"] for sense in row["senses"]]
        words.scatter([place] * len(values), values, s=[20 + 60 * sense.get("usage", 0) for sense in row["senses"]])
    words.set_xticks(range(len(rows)), [row["word"] for row in rows], rotation=90)
    words.set_ylabel("theta of each sense")
    means, deviations = ([entry[name] for entry in decades] for name in ("theta", "deviation"))
    frequency.errorbar(range(len(decades)), means, deviations, fmt="o", capsize=3)
    names = ["{:,} to {:,}".format(*entry["ranks"]) for entry in decades]
    frequency.set_xticks(range(len(decades)), names, rotation=90)
    frequency.set_xlabel("words by frequency (± standard deviation)")
    for axes in (words, frequency):
        axes.axhline(0, color="grey", linewidth=0.5)
    figure.savefig(path)
    pyplot.close(figure)


def main() -> None:
    parser = CommandParser(prog="kerbs_senses.sh", description="Senses, their neighbours and theta by word.")
    parser.add_argument("data", type=Path, help="data-bin folder of the training")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--words", nargs="+", help="these words (default: the most frequent of each number of senses)")
    parser.add_argument("--number", type=positive_int, default=8, help="words of each number of senses")
    parser.add_argument("--neighbours", type=positive_int, default=4, help="nearest words of each sense")
    parser.add_argument("--out", type=Path, help="folder for senses.json and theta.svg")
    args = parser.parse_args()
    senses = Senses(args.checkpoint, args.data)
    unknown = [word for word in args.words or () if word not in senses.words]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not in the dictionary of {args.data}")
    chosen = [senses.words.index(word) for word in args.words or ()] or senses.chosen(args.number)
    counts = torch.bincount(senses.home, minlength=len(senses.words))
    record = {
        "source": "Miao et al. 2019, Table 6 and Figure 8",
        "command": shlex.join(["bash", "scripts/kerbs_senses.sh", *sys.argv[1:]]),
        "provenance": provenance(),
        "words_by_senses": {int(n): int((counts == n).sum()) for n in counts.unique()},
        "by_frequency": senses.by_frequency(),
        "words": [senses.row(word, args.neighbours) for word in chosen],
    }
    show(record)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        (args.out / "senses.json").write_text(text, encoding="utf-8")
        if senses.theta is not None:
            plot(record["words"], record["by_frequency"], args.out / "theta.svg")


def show(record: Dict) -> None:
    """Prints the tables."""
    print("senses  words")
    for number, words in record["words_by_senses"].items():
        print(f"{number:6}  {words:,}")
    print(f"\n{'words by frequency':20} senses a word    theta")
    for entry in record["by_frequency"]:
        ranks, theta = "{:,} to {:,}".format(*entry["ranks"]), f"{entry['theta']:8.3f}" if "theta" in entry else ""
        print(f"{ranks:20} {entry['senses_a_word']:13.2f} {theta}")
    print(f"\n{'word':16} {'theta':>7} {'usage':>6}  nearest words")
    for row in record["words"]:
        for place, sense in enumerate(row["senses"]):
            values = [f"{sense[name]:6.2f}" if name in sense else " " * 6 for name in ("theta", "usage")]
            print(f"{'' if place else row['word']:16}  {' '.join(values)}  {', '.join(sense['neighbours'])}")


if __name__ == "__main__":
    main()
