"""A language model in plain PyTorch: output layer tied with the embeddings, mixed precision, gradient accumulation.

    python examples/pytorch_loop.py --kernels 3xlin,log --updates 300

It trains on Python's own documentation, which every CPython carries, and prints the validation perplexity.
"""

import argparse
import math
import re
from collections import Counter
from pydoc_data.topics import topics

import torch
from torch import nn

from fairseq_kernels import GeneralizedSoftmax, word_prior

LENGTH = 35  # words of a line in a batch


class LanguageModel(nn.Module):
    """An LSTM whose embeddings are also the output layer's projection matrix."""

    def __init__(self, vocab_size: int, dim: int, kernels: str):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, dim)
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.output = GeneralizedSoftmax(dim, vocab_size, kernels=kernels)
        self.output.weight = self.embedding.weight
        self.output.reset_parameters()  # initialises the shared matrix as an output layer's

    def forward(self, words, target):
        """The summed loss in nats: words (batch, length), target of the same shape."""
        features, _ = self.lstm(self.embedding(words))
        return self.output.nll(features, target)


def read_text():
    """Indices of training and validation words, and how often each word occurs in training."""
    paragraphs = list(dict.fromkeys("\n\n".join(topics[name] for name in sorted(topics)).split("\n\n")))  # no two alike
    valid = [word for text in paragraphs[::20] for word in re.findall(r"\w+|[^\w\s]", text.lower())]
    del paragraphs[::20]
    train = [word for text in paragraphs for word in re.findall(r"\w+|[^\w\s]", text.lower())]
    counts = Counter(train).most_common(5000)
    index = {word: place for place, (word, _) in enumerate(counts, 1)}  # 0 is for all other words
    texts = [torch.tensor([index.get(word, 0) for word in words]) for words in (train, valid)]
    return *texts, torch.bincount(texts[0], minlength=len(index) + 1)


def batches(text, batch_size: int):
    """Pairs of input and target words, (batch_size, LENGTH) each, in random order."""
    lines = text[: (len(text) - 1) // LENGTH * LENGTH].view(-1, LENGTH)
    targets = text[1 : lines.numel() + 1].view(-1, LENGTH)
    for rows in torch.randperm(len(lines)).split(batch_size):
        yield lines[rows], targets[rows]


@torch.no_grad()
def perplexity(model, text, device) -> float:
    losses = [model(words.to(device), target.to(device)).item() for words, target in batches(text, 64)]
    return math.exp(sum(losses) / ((len(text) - 1) // LENGTH * LENGTH))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", default="3xlin,log")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--accumulate", type=int, default=2, help="batches of an update")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--amp", action="store_true", help="float16 on a GPU, bfloat16 on the CPU")
    args = parser.parse_args()
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train, valid, counts = read_text()
    model = LanguageModel(len(counts), args.dim, args.kernels).to(device)
    model.output.set_prior(word_prior(train, len(counts)))  # a short training feels it
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
    scaler = torch.amp.GradScaler(device, enabled=args.amp and device == "cuda")
    amp_type = torch.float16 if device == "cuda" else torch.bfloat16

    if args.amp and device == "cpu":
        try:
            with torch.autocast(device, amp_type):
                model.lstm(torch.zeros(1, 1, args.dim))
        except RuntimeError:  # oneDNN's, without AVX-512
            print("this CPU has no LSTM in bfloat16: --amp is left out")
            args.amp = False
    queue = iter(())
    for update in range(1, args.updates + 1):
        total, tokens = 0.0, args.accumulate * 16 * LENGTH
        for _ in range(args.accumulate):
            words, target = next(queue, (None, None))
            if words is None:  # the next epoch
                queue = batches(train, 16)
                words, target = next(queue)
            with torch.autocast(device, amp_type, enabled=args.amp):
                loss = model(words.to(device), target.to(device)) / tokens  # a sum: parts of an update simply add up
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if update % 50 == 0:
            print(f"update {update} of {args.updates}, training perplexity {math.exp(total):.1f}", flush=True)
    print(f"valid perplexity {perplexity(model, valid, device):.1f}")


if __name__ == "__main__":
    main()
