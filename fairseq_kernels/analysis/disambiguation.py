"""Which of several close words comes next? Gao et al. (2019, section 4.5 and Table 4), at every word of a text.

Clusters of close words come from the inner products of the lin model's word vectors, as in the paper. Wherever the text
has a word of a cluster, each model's probabilities, renormalised in the cluster, give its choice and the log-likelihood
of the text's word. Intervals of differences come from resampling lines, the same for both models; they tell of this
text, not of other trainings. Since the clusters are what this one lin model finds close, lin of another seed is the
control. The same words in random clusters tell what a model gains everywhere: only the rest is disambiguation of close
words. ``scripts/table4.sh`` calls it.
"""

import itertools
import re
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor

from ..errors import mistake
from ..output_layers import GeneralizedSoftmax
from .markdown import escaped, markdown_table
from .reading import Reading, read

SIZE = 5  # words in a cluster
VOCABULARY = 2000  # the clusters' words are among this many most frequent ones
EXAMPLES = 5  # sentences in each direction
SEED = 1  # of the bootstrap and of the random clusters
NEIGHBOURS = 20  # words of about the same frequency
CHUNK = 512  # positions whose V log-probabilities are in memory at a time
RESAMPLES = 2000
CONFIDENCE = 0.95
SHOWN = 10  # clusters beside the sentences


def frequent_words(dictionary: Dictionary, number: int) -> Tensor:
    """The words most frequent in training, at most ``number``: no padding words, no symbols such as ``<unk>``."""
    words = range(dictionary.nspecial, len(dictionary))
    frequent = [word for word in words if dictionary.count[word] > 0 and not re.fullmatch("<.+>", dictionary[word])]
    return torch.tensor(frequent[:number], dtype=torch.long)


def clusters(weight: Tensor, candidates: Tensor, size: int, number: int) -> Tensor:
    """Disjoint clusters of close words (number, size), the tightest first; in each the centre, then from near to far.

    Greedy: of the candidates (C,), the one with the greatest mean inner product of its vector in ``weight`` (V, d) with
    its ``size - 1`` nearest others makes a cluster with these; its words are candidates no longer; and so on.
    """
    vectors = weight[candidates].double()
    similarities = vectors @ vectors.T
    similarities.fill_diagonal_(-torch.inf)
    groups = []
    for _ in range(number):
        nearest = similarities.topk(size - 1)
        centre = nearest.values.mean(1).argmax()
        cluster = torch.cat([centre.view(1), nearest.indices[centre]])
        similarities[cluster] = similarities[:, cluster] = -torch.inf
        groups.append(candidates[cluster])
    return torch.stack(groups)


def shuffled(words: Tensor, counts: Tensor, seed: int) -> Tensor:
    """Clusters (number, size) of the same words, each replaced by one of similar frequency: the words, sorted by
    their counts (V,), are permuted within blocks of ``NEIGHBOURS``."""
    by_count = words.flatten()[counts[words.flatten()].argsort(descending=True, stable=True)]
    generator = torch.Generator().manual_seed(seed)
    parts = [part[torch.randperm(len(part), generator=generator)] for part in by_count.split(NEIGHBOURS)]
    place_of = torch.empty_like(counts)
    place_of[by_count] = torch.cat(parts)
    return place_of[words]


class Questions(NamedTuple):
    """The n positions of a text whose word is in a cluster."""

    positions: Tensor  # (n,) in the text
    lines: Tensor  # (n,) the text's line, from 0
    choices: Tensor  # (n, size) words of the cluster
    target: Tensor  # (n,) which of them is the text's


def questions(reading: Reading, groups: Tensor) -> Questions:
    """Where the text has a word of the clusters (number, size)."""
    cluster_of = torch.full((len(reading.dictionary),), -1)
    cluster_of[groups] = torch.arange(len(groups)).unsqueeze(1)
    positions = (cluster_of[reading.words] >= 0).nonzero().flatten()
    words = reading.words[positions]
    choices = groups[cluster_of[words]]
    lines = (reading.positions == 0).cumsum(0)[positions] - 1
    return Questions(positions, lines, choices, (choices == words.unsqueeze(1)).long().argmax(1))


class Answers(NamedTuple):
    """A model's choices at n positions."""

    choice: Tensor  # (n,) which word of the cluster is the most probable
    right: Tensor  # (n,) 1 where that is the text's, else 0
    log_likelihood: Tensor  # (n,) of the text's word in the cluster, nats


@torch.no_grad()
def answers(reading: Reading, asked: Questions) -> Answers:
    """The choices of the model that made the ``reading``."""
    parts = zip(asked.positions.split(CHUNK), asked.choices.split(CHUNK))
    log_p = torch.cat([reading.layer(reading.features[rows]).gather(1, choices) for rows, choices in parts])
    log_p = log_p.double().log_softmax(1)
    choice = log_p.argmax(1)
    return Answers(choice, (choice == asked.target).double(), log_p.gather(1, asked.target.unsqueeze(1)).squeeze(1))


def bootstrap(statistic: Callable, values: Sequence[Tensor], lines: Tensor, seed: int) -> Dict:
    """A function of the sums of ``values``, (n,) each, with its percentile bootstrap interval over lines (n,)."""
    _, places = np.unique(lines.numpy(), return_inverse=True)
    sums = np.stack([np.bincount(places, each.numpy()) for each in values])  # (values, lines)
    count = sums.shape[1]
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    low, high = map(float, np.quantile(statistic(*(sums @ drawn.T)), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]))
    mean = float(statistic(*sums.sum(1)))
    return {"mean": mean, "low": low, "high": high, "excludes_0": low > 0 or high < 0}


def difference(values: Tensor, baseline: Tensor, lines: Tensor, seed: int) -> Dict:
    """The mean difference of two models' values (n,) with its interval."""
    return bootstrap(np.divide, [values - baseline, torch.ones_like(values)], lines, seed)


def gain_beyond_random(close: Sequence[Answers], random: Sequence[Answers], lines: Tensor, seed: int) -> Dict:
    """The reduction of the loss (negative log-likelihood) in close clusters, as a share of the baseline's loss, minus
    that in random clusters; with its interval. Each pair has the model's answers first, then the baseline's."""
    values = [answers.log_likelihood for answers in (*close, *random)]
    return bootstrap(
        lambda own, base, own_random, base_random: own_random / base_random - own / base, values, lines, seed
    )


def disagreements(reading: Reading, asked: Questions, pair: Dict[str, Answers], number: int) -> str:
    """In Markdown, for each model of the pair: how often it is right where the other is wrong, and the ``number``
    different sentences where the log-likelihoods differ most, as in the paper's Table 4."""
    names, text = reading.dictionary.symbols, ""
    for (winner, right), (loser, wrong) in itertools.permutations(pair.items()):
        where = (right.right > wrong.right).nonzero().flatten()
        gain = (right.log_likelihood - wrong.log_likelihood)[where]
        examples: Dict[Tuple, Dict] = {}
        for n in where[gain.argsort(descending=True, stable=True)].tolist():
            position = int(asked.positions[n])
            sentence = reading.words[position - int(reading.positions[position]) : position + 1].tolist()
            choices = {name: int(asked.choices[n, answer.choice[n]]) for name, answer in pair.items()}
            if len(examples) < number:
                examples.setdefault(tuple(sentence), {"Ground Truth": sentence[-1], **choices})
        rows = [[who, f"{escaped(' '.join(names[each] for each in context))} **{escaped(names[word])}**"]
                for (*context, _), choices in examples.items() for who, word in choices.items()]  # fmt: skip
        text += f"\n{winner} right, {loser} wrong: {len(where):,} times.\n\n"
        text += markdown_table(["Model", "Prediction"], rows)
    return text


@torch.no_grad()
def compare(data: Path, checkpoints: Dict[str, Path]) -> Tuple[Dict[str, List[Dict]], Dict[str, str]]:
    """Compares language models, ``checkpoints`` by name, with the first, the baseline, which has the kernel lin alone.

    Returns:
        Metrics by model, as a record has them: ``cluster_accuracy`` and mean ``cluster_log_likelihood`` (nats), and of
        all but the baseline the ``difference`` from it in these, and :func:`gain_beyond_random`; in ``details`` the
        numbers of clusters, positions and lines. And, in Markdown, by model, the clusters and where the two differ.
    """
    baseline = next(iter(checkpoints))
    first = read(checkpoints[baseline], data)
    if not isinstance(first.layer, GeneralizedSoftmax) or first.layer.component_names() != ["lin"]:
        raise mistake(f"{checkpoints[baseline]} is no model with --kernels lin, whose word vectors make the clusters")
    candidates = frequent_words(first.dictionary, VOCABULARY)
    groups = clusters(first.layer.weight, candidates, SIZE, max(1, len(candidates) // (2 * SIZE)))
    asked = questions(first, groups)
    counts = torch.tensor(first.dictionary.count)
    asked_random = questions(first, shuffled(groups, counts, SEED))  # at the same positions: the words are the same
    reference, reference_random = answers(first, asked), answers(first, asked_random)
    tightest = [", ".join(first.dictionary[word] for word in cluster) for cluster in groups[:SHOWN]]
    shown = "The tightest clusters:\n\n" + "".join(f"- {escaped(words)}\n" for words in tightest)
    details = {"clusters": len(groups), "positions": len(asked.positions), "lines": len(asked.lines.unique())}
    shared = {"split": "test", "details": details}
    metrics: Dict[str, List[Dict]] = {}
    sentences: Dict[str, str] = {}
    for name, checkpoint in checkpoints.items():
        reading = first if name == baseline else read(checkpoint, data)
        own, own_random = answers(reading, asked), answers(reading, asked_random)
        pairs = (own.right, reference.right), (own.log_likelihood, reference.log_likelihood)
        metrics[name] = [{**shared, "metric": f"cluster_{metric}", "value": float(mine.mean())}
                         for metric, (mine, _) in zip(("accuracy", "log_likelihood"), pairs)]  # fmt: skip
        if name != baseline:
            for metric, pair in zip(metrics[name], pairs):
                metric["difference"] = difference(*pair, asked.lines, SEED)
            gain = gain_beyond_random((own, reference), (own_random, reference_random), asked.lines, SEED)
            figure = {"metric": "cluster_gain_beyond_random", "value": gain["mean"], "difference": gain}
            metrics[name].append({**shared, **figure})
            sentences[name] = shown + disagreements(first, asked, {baseline: reference, name: own}, EXAMPLES)
    return metrics, sentences
