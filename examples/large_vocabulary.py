"""Four output layers for a vocabulary of all words of a text, however rare: speed, memory and perplexity.

    python examples/large_vocabulary.py data/talk-5M --words 1000000

DATA is a folder of `data-prep/prepare-text.sh`. Each layer ends the same LSTM. The exact softmax, `lin`, trains on as
many words as asked for; the other layers go on until they have had its time, too. Perplexity is of valid.txt.
"""

import argparse
import itertools
import math
import time
from collections import Counter
from pathlib import Path
from typing import Optional

import torch
from torch import nn

from fairseq_kernels import FactoredSGD, GeneralizedSoftmax, SphericalSoftmax, TaylorSoftmax, factored, word_prior
from fairseq_kernels.analysis.measurement import resident

LENGTH, LINES, DIM = 35, 32, 128  # words of a line, lines of a batch; units of the LSTM
RATE, CLIP = 0.004, 1.0  # of Adam, for all but the factored layers; of the gradient of the LSTM


class Adaptive(nn.AdaptiveLogSoftmaxWithLoss):
    """torch's adaptive softmax (Grave et al. 2017), the usual choice; it expects the most frequent word first."""

    def nll(self, features, target, reduction):
        return nn.functional.nll_loss(
            self(features, target).output.unsqueeze(1), torch.zeros_like(target), reduction=reduction
        )


def make_layer(name: str, prior):
    """The layer (features (N, DIM), target (N,) -> loss) and its optimizer."""
    vocab_size = len(prior)
    if name == "adaptive":
        layer = Adaptive(DIM, vocab_size, [vocab_size // 25, vocab_size // 5], div_value=2.0)
        return layer, torch.optim.Adam(layer.parameters(), RATE)
    if name == "lin":
        layer = GeneralizedSoftmax(DIM, vocab_size)
        layer.set_prior(prior)
        return layer, torch.optim.Adam(layer.parameters(), RATE)
    layer, rate = {"taylor": (TaylorSoftmax, 3000.0), "spherical": (SphericalSoftmax, 100.0)}[name]
    dense = layer(DIM, vocab_size)
    dense.set_prior(prior)
    layer = factored(dense)
    return layer, FactoredSGD([layer], rate)


def read_text(folder: Path):
    """Words of train.txt and valid.txt as numbers, the most frequent first, and each word's count in train.txt."""
    train, valid = ((folder / f"{name}.txt").read_text().replace("\n", " </s> ").split() for name in ("train", "valid"))
    counts = Counter(train)
    index = {word: place for place, (word, _) in enumerate((counts + Counter(valid)).most_common())}
    texts = [torch.tensor([index[word] for word in words]) for words in (train, valid)]
    return *texts, torch.bincount(texts[0], minlength=len(index))


def batches(text):
    """Pairs of input and target words, (LINES, LENGTH) each, in random order."""
    lines = text[: (len(text) - 1) // LENGTH * LENGTH].view(-1, LENGTH)
    targets = text[1 : lines.numel() + 1].view(-1, LENGTH)
    for rows in torch.randperm(len(lines)).split(LINES):
        yield lines[rows], targets[rows]


class LanguageModel(nn.Module):
    def __init__(self, vocab_size: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, DIM, sparse=True)  # an update of a batch's words alone
        self.lstm = nn.LSTM(DIM, DIM, num_layers=2, batch_first=True)

    def forward(self, words):
        return self.lstm(self.embedding(words))[0].flatten(0, 1)  # (batch * length, DIM)


@torch.no_grad()
def perplexity(model, layer, text) -> float:
    losses, words = zip(
        *((layer.nll(model(words), y.flatten(), reduction="sum").item(), y.numel()) for words, y in batches(text))
    )
    return math.exp(sum(losses) / sum(words))


def train(name: str, texts, words: int, seconds: Optional[float]):
    """Trains until both limits are reached: (words a second, MiB above the start, perplexity after so many words,
    after so many seconds, words by then, seconds in all)."""
    torch.manual_seed(1)
    text, valid, counts = texts
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory starts anew: Linux
    start = resident("VmRSS")
    model = LanguageModel(len(counts))
    layer, output = make_layer(name, word_prior(text, len(counts)))
    optimizers = [
        output,
        torch.optim.SparseAdam(model.embedding.parameters(), RATE),
        torch.optim.Adam(model.lstm.parameters(), RATE),
    ]
    done, spent, after_words, after_seconds = 0, 0.0, None, None
    for inputs, target in itertools.chain.from_iterable(batches(text) for _ in itertools.count()):
        began = time.perf_counter()
        layer.nll(model(inputs), target.flatten(), reduction="mean").backward()
        nn.utils.clip_grad_norm_(model.lstm.parameters(), CLIP)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        done, spent = done + target.numel(), spent + time.perf_counter() - began
        if after_words is None and done >= words:
            after_words = perplexity(model, layer, valid)
            memory = resident("VmHWM") - start
            seconds = seconds or spent
        if after_seconds is None and seconds and spent >= seconds:
            after_seconds, by_then = perplexity(model, layer, valid), done
        if after_words and after_seconds:
            return done / spent, memory / 2**20, after_words, after_seconds, by_then, spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with train.txt and valid.txt")
    parser.add_argument("--words", type=int, default=1_000_000, help="of training text")
    parser.add_argument("--layers", nargs="+", default=["lin", "adaptive", "taylor", "spherical"])
    args = parser.parse_args()
    texts, seconds = read_text(args.data), None
    print("layer      words/s   MiB  perplexity, after equal words  after equal time (words)")
    for name in args.layers:
        speed, memory, *both, words, spent = train(name, texts, args.words, seconds)
        seconds = seconds or spent
        print(f"{name:10} {speed:7.0f} {memory:5.0f}  {both[0]:29.1f}  {both[1]:16.1f} ({words:,})", flush=True)
    print(f"equal words: {args.words:,}; equal time: {seconds:.0f} s of training")


if __name__ == "__main__":
    main()
