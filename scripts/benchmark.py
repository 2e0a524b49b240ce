#!/usr/bin/env python
"""Speed and memory of output layers and of the models around them; each command measures all its rows in one run.

    python scripts/benchmark.py limit       a layer's step against its bare matrix products
    python scripts/benchmark.py layer       a layer's step against other implementations
    python scripts/benchmark.py training    an LSTM language model's training step, and with --scoring its perplexity
    python scripts/benchmark.py decoding    beam search of the paper's transformer

Each row runs in a process of its own; rounds go through all rows in turn. Seconds are those of the fastest step, ratios
those of the seconds to the first row's of the same group. Memory is the peak of the process over its level just before
the steps, one step done (on a GPU: of torch's allocations). COMMAND --help has its options. --out FILE puts the record
after the others in a JSON file.
"""

import argparse
import contextlib
import io
import itertools
import json
import logging
import shlex
import sys
import tempfile
import timeit
import warnings
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import torch
import torch.nn.functional as F
from torch import nn

from fairseq_kernels import FactoredSGD, GeneralizedSoftmax, factored
from fairseq_kernels.analysis.measurement import measured, provenance
from fairseq_kernels.errors import CommandParser, positive_int
from fairseq_kernels.fused.matrix_products import onednn, word_blocks
from fairseq_kernels.kernels import PAPER_KERNELS
from fairseq_kernels.kernels.spec import parse_kernels
from fairseq_kernels.output_layers.table import LAYERS

Step = Callable[[], None]
NINE = ",".join(PAPER_KERNELS)


def compare(rows: List[Tuple[Dict, Callable[[], Step]]], args: Namespace) -> None:
    """Measures all rows, prints them, and puts them with their command and origin after the others in ``args.out``.

    Args:
        rows: of each its ``group``, its ``name`` and the ``tokens`` of a step, and what makes the step. The former gets
            all ``steps``' seconds, of these the least (``seconds``), their ``ratio`` and ``mebibytes``.
    """
    for round_ in range(args.rounds):
        for row, build in rows:
            result = measured(build, args.steps, args.threads, args.device)
            row["steps"] = row.get("steps", []) + [round(second, 5) for second in result["seconds"]]
            row["seconds"] = min(row["steps"])
            row["mebibytes"] = max(row.get("mebibytes", 0), round(result["mebibytes"], 1))
            print(f"round {round_ + 1}: {row['group']}: {row['name']}: {row['seconds']:.3f} s", file=sys.stderr)
    print(f"{'':20} {'':36} {'seconds':>9} {'ratio':>6} {'words/s':>9} {'MiB':>7}")
    first: Dict[str, Dict] = {}
    for row, _ in rows:
        row["ratio"] = round(row["seconds"] / first.setdefault(row["group"], row)["seconds"], 4)
        speed = f"{row['seconds']:9.3f} {row['ratio']:6.2f} {row['tokens'] / row['seconds']:9,.0f}"
        print(f"{row['group']:20} {row['name']:36} {speed} {row['mebibytes']:7,.0f}")
    if args.out:
        command = shlex.join(["python", "scripts/benchmark.py", *sys.argv[1:]])
        settings = {name: value for name, value in vars(args).items() if name not in ("measure", "out")}
        record = {"command": command, "made": provenance(args.threads), "settings": settings}
        records = json.loads(args.out.read_text()) if args.out.exists() else []
        args.out.write_text(json.dumps([*records, {**record, "rows": [row for row, _ in rows]}], indent=1) + "\n")


# ------------------------------------------------------------------------------------------------------ layer

LAYER = """Time and memory of output layers, forward and backward: this package's against what else there is.

A layer is a kernel mixture, with "untied" after it where its components have matrices of their own, an output layer's
name as "taylor", with "factored" after it where W is kept in factors, whose step is then in the time, too, or another
implementation: "mos 9", "stock", "torch chunked", "taylor autograd", "spherical autograd".
"""
COMPARED = {  # by the number of tokens
    2048: ["mos 9", "9xlin", NINE, "9xlin untied"],
    4096: ["stock", "torch chunked", "lin", "taylor", "taylor autograd", "spherical", "spherical autograd"],
}


def layer_step(name: str, tokens: int, words: int, dim: int, device: str, dtype: str = "float32") -> Step:
    """One training step of a layer without bias: loss and all gradients, which are dropped before the next one."""
    features = torch.randn(tokens, dim, device=device, dtype=getattr(torch, dtype)).requires_grad_()
    target = torch.randint(words, (tokens,), device=device)
    first, _, option = name.partition(" ")
    if name in ON_A_PROJECTION:
        layer = projection(words, dim)
        loss = partial(ON_A_PROJECTION[name], layer)
    elif first == "mos":
        loss, layer = mixture_of_softmaxes(int(option), words, dim)
    elif first in LAYERS:
        layer = LAYERS[first].layer(dim, words, bias=False)
        nn.init.normal_(layer.weight, std=dim**-0.5)
        layer = factored(layer) if option == "factored" else layer
        loss = layer.nll
    else:
        layer = GeneralizedSoftmax(dim, words, first, bias=False, untied=option == "untied")
        loss = layer.nll
    layer.to(device=device, dtype=features.dtype)
    optimizer = FactoredSGD([layer], lr=1e-3 / tokens) if option == "factored" else None

    def step():
        loss(features, target).backward()
        features.grad = None
        if optimizer:
            optimizer.step()
        layer.zero_grad(set_to_none=True)

    return step


def projection(words: int, dim: int) -> nn.Linear:
    layer = nn.Linear(dim, words, bias=False)
    nn.init.normal_(layer.weight, std=dim**-0.5)
    return layer


def mixture_of_softmaxes(components: int, words: int, dim: int):
    """Mixture of Softmaxes (Yang et al. 2018) as it is usually written: probabilities of all components, autograd."""
    contexts = nn.Linear(dim, components * dim, bias=False)
    weights = nn.Linear(dim, components, bias=False)
    output = projection(words, dim)

    def loss(features, target):
        hidden = torch.tanh(contexts(features)).view(-1, dim)
        probabilities = F.softmax(output(hidden), dim=-1).view(-1, components, words)
        mixed = (probabilities * F.softmax(weights(features), dim=-1).unsqueeze(2)).sum(1)
        return F.nll_loss((mixed + 1e-8).log(), target, reduction="sum")

    return loss, nn.ModuleList([contexts, weights, output])


def fairseq_cross_entropy(layer, features, target):
    log_probabilities = F.log_softmax(layer(features), dim=-1, dtype=torch.float32)
    return F.nll_loss(log_probabilities, target, reduction="sum")


def torch_chunked(layer, features, target):
    options = torch.nn.LinearCrossEntropyOptions()
    return F.linear_cross_entropy(features, layer.weight, target, reduction="sum", options=options)


def by_autograd(numerator, layer, features, target):
    """The spherical family's formulas over all V outputs."""
    numerators = numerator(layer(features))
    chosen = numerators.gather(1, target.unsqueeze(1)).squeeze(1)
    return (numerators.sum(1).log() - chosen.log()).sum()


ON_A_PROJECTION = {
    "stock": fairseq_cross_entropy,
    "torch chunked": torch_chunked,
    "taylor autograd": partial(by_autograd, lambda output: 1 + output + output.square() / 2),
    "spherical autograd": partial(by_autograd, lambda output: output.square() + 0.0198),
}


def layer(args: Namespace) -> None:
    sizes = {"words": args.words, "dim": args.dim, "device": args.device, "dtype": args.dtype}
    rows = []
    for tokens, names in ({args.tokens: args.only} if args.only else COMPARED).items():
        for name in names:
            row = {"group": f"{tokens:,} tokens", "name": name, "tokens": tokens}
            rows.append((row, partial(layer_step, name, tokens, **sizes)))
    compare(rows, args)


# ------------------------------------------------------------------------------------------------------ limit

LIMIT = """How near the generalized softmax is to the machine's limit: its step against its bare matrix products.

Exact softmax needs three products a component: the scores, dL/dW and dL/dh. They are done here on blocks of the layer's
own size, by the faster of torch's way and oneDNN's, without anything between them; mog counts as two components, since
its two Gaussians a word meet two a context in half the coordinates. A ratio of 1 is the limit of exact arithmetic."""
CHUNK = 384  # rows of a product, as the layer has them


def product_step(kernels: str, tokens: int, words: int, dim: int, device: str) -> Step:
    """The three products of each component."""
    contexts = tokens * sum(2 if kernel == "mog" else 1 for kernel in parse_kernels(kernels))
    matrix, grad_matrix = torch.randn(words, dim, device=device), torch.zeros(words, dim, device=device)
    rows, scores = torch.randn(CHUNK, dim, device=device), torch.randn(CHUNK, words, device=device)

    def step(library, contexts=contexts):
        with library():
            for start in range(0, contexts, CHUNK):
                some = rows[: min(CHUNK, contexts - start)]
                for block in word_blocks(words, CHUNK, matrix.device):
                    torch.mm(some, matrix[block].T, out=scores[: len(some), block])
                grad_matrix.addmm_(scores[: len(some)].T, some)
                scores[: len(some)] @ matrix

    def seconds(library):
        return min(timeit.repeat(partial(step, library, CHUNK), number=1, repeat=3))

    libraries = [contextlib.nullcontext, *([onednn] if hasattr(torch.backends.mkldnn, "matmul") else [])]
    return partial(step, min(libraries, key=seconds))


def limit(args: Namespace) -> None:
    sizes = {"tokens": args.tokens, "words": args.words, "dim": args.dim, "device": args.device}
    rows = []
    for kernels in args.only:
        for name, build in ("products", product_step), ("layer", layer_step):
            row = {"group": kernels, "name": name, "tokens": args.tokens}
            rows.append((row, partial(build, kernels, **sizes)))
    compare(rows, args)


# --------------------------------------------------------------------------------------------------- training

TRAINING = """Words per second and memory of training steps of an LSTM language model, and with --scoring of scoring.

A row is "stock" (lstm_lm and cross_entropy), an output layer's name as "taylor", or a kernel mixture, with options of
fairseq's where wanted, as in "pow --kernel-params pow.p=3" or "lin --optimizer fused_adamw --fp16". Each runs by
fairseq's trainer, from forward to update, on the same batches. Scoring is fairseq-eval-lm's: the log-probabilities of
all words, of which each target's is taken."""
BATCHES = 16
MODEL = ("--decoder-layers", "2", "--dropout", "0.1", "--decoder-dropout-out", "0")
SIZES = ("--decoder-embed-dim", "--decoder-hidden-size", "--decoder-out-embed-dim")


def flags(row: str):
    """fairseq's options of a row."""
    name, *options = row.split()
    if name == "stock":
        return ["--arch", "lstm_lm", "--criterion", "cross_entropy", *options]
    which, layer = ("--output-layer", name) if name in LAYERS else ("--kernels", "kernels")
    return ["--arch", "kernel_lstm_lm", which, name, "--criterion", LAYERS[layer].criterion, *options]


def model_step(command: List[str], scoring: bool) -> Step:
    """fairseq's training step, or the scoring of a language model, on one batch after the other."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.sequence_scorer import SequenceScorer
    from fairseq.trainer import Trainer

    import fairseq_kernels.fairseq_plugin  # noqa: F401  (registers models and criterions)

    with contextlib.redirect_stdout(io.StringIO()):
        args = options.parse_args_and_arch(options.get_training_parser(), command)
        cfg = convert_namespace_to_omegaconf(args)
        task = tasks.setup_task(cfg.task)
        trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    task.load_dataset("train")
    iterator = trainer.get_train_iterator(epoch=1, load_dataset=False).next_epoch_itr(shuffle=True)
    samples = itertools.cycle(list(itertools.islice(iterator, BATCHES)))
    trainer.begin_epoch(1)
    if scoring:
        model, scorer = trainer.model.eval(), SequenceScorer(task.target_dictionary)
        return lambda: scorer.generate([model], trainer._prepare_sample(next(samples))[0])
    return lambda: trainer.train_step([next(samples)])


def random_text(folder: str, words: int, tokens: int) -> str:
    """A data-bin folder with so many tokens of training text by Zipf's law, of so many words, fairseq's 4 included."""
    from fairseq.data.indexed_dataset import make_builder

    path = Path(folder, f"{words:,} words")
    path.mkdir()
    (path / "dict.txt").write_text("".join(f"w{i} {words - i}\n" for i in range(words - 4)))
    frequencies = 1 / torch.arange(1, words - 3, dtype=torch.float64)
    builder = make_builder(str(path / "train.bin"), "mmap", vocab_size=words)
    builder.add_item(4 + torch.multinomial(frequencies, tokens, replacement=True))
    builder.finalize(str(path / "train.idx"))
    return str(path)


def training(args: Namespace) -> None:
    common = ["--task", "language_modeling", *MODEL, *(f"{option}={args.dim}" for option in SIZES)]
    common += ["--tokens-per-sample", args.length, "--sample-break-mode", "none", "--batch-size", args.batch_size]
    common += ["--optimizer", "adam", "--lr", 0.001, "--clip-norm", 5, "--seed", 1, "--num-workers", 0]
    common += ["--cpu"] if args.device == "cpu" else []
    tokens = args.batch_size * args.length
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        texts = [args.data] if args.data else [random_text(folder, words, BATCHES * tokens) for words in args.words]
        for data, scoring, name in itertools.product(texts, [False, True][: args.scoring + 1], args.rows):
            row = {"group": f"{Path(data).name}{', scoring' * scoring}", "name": name, "tokens": tokens}
            rows.append((row, partial(model_step, list(map(str, [data, *common, *flags(name)])), scoring)))
        compare(rows, args)


# --------------------------------------------------------------------------------------------------- decoding

DECODING = """Beam-search speed of kernel mixtures against lin: the transformer of the paper, on the same sentences.

The weights are random and every hypothesis has the same length, so that all models do the same number of steps."""


def decoding_step(kernels: str, args: Namespace) -> Step:
    """Beam search for all sentences."""
    from fairseq import options, tasks
    from fairseq.models import ARCH_CONFIG_REGISTRY, build_model
    from fairseq.sequence_generator import SequenceGenerator
    from fairseq.utils import move_to_cuda

    import fairseq_kernels.fairseq_plugin  # noqa: F401  (registers the models)

    command = [args.data, "--task", "translation"]
    task = tasks.setup_task(options.parse_args_and_arch(options.get_generation_parser(), command))
    task.load_dataset("test")
    dataset = task.dataset("test")
    numbers = range(min(args.sentences, len(dataset)))
    batches = [numbers[start : start + args.batch_size] for start in numbers[:: args.batch_size]]
    samples = [dataset.collater([dataset[number] for number in batch]) for batch in batches]
    samples = samples if args.device == "cpu" else [move_to_cuda(sample) for sample in samples]
    settings = Namespace(arch=args.arch, kernels=kernels, share_decoder_input_output_embed=True)
    ARCH_CONFIG_REGISTRY[args.arch](settings)
    model = build_model(settings, task).eval().to(args.device)
    lengths = {"beam_size": args.beam, "max_len_a": 0, "max_len_b": args.length, "min_len": args.length}
    generator = SequenceGenerator([model], task.target_dictionary, **lengths)

    def step():
        for sample in samples:
            generator.generate([], sample)

    return step


def decoding(args: Namespace) -> None:
    row = {"group": Path(args.data).name, "tokens": args.sentences * args.length}
    compare([({**row, "name": kernels}, partial(decoding_step, kernels, args)) for kernels in args.kernels], args)


# ------------------------------------------------------------------------------------------------------- main


def main() -> None:
    parser = CommandParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(measure: Callable, description: str, **sizes):
        raw = argparse.RawDescriptionHelpFormatter
        own = commands.add_parser(measure.__name__, description=description, formatter_class=raw)
        own.set_defaults(measure=measure)
        add = own.add_argument
        add("--rounds", type=positive_int, default=3)
        add("--threads", type=positive_int, help="of torch on the CPU (default: torch's own choice)")
        add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
        add("--out", type=Path, help="JSON file, gets the record after its others")
        for name, default in sizes.items():
            add(f"--{name.replace('_', '-')}", type=positive_int, default=default, help=f"default: {default}")
        return add

    add = command(limit, LIMIT, tokens=1024, words=30_000, dim=512, steps=2)
    add("--only", nargs="+", metavar="KERNELS", default=["lin", "9xlin", NINE], help="these mixtures")
    add = command(layer, LAYER, tokens=4096, words=30_000, dim=512, steps=3)
    add("--only", nargs="+", metavar="NAME", help="these layers alone, at --tokens (the table has its own)")
    add("--dtype", default="float32", choices=["float32", "bfloat16", "float16", "float64"])
    add = command(training, TRAINING, dim=512, batch_size=32, length=35, steps=5)
    add("--rows", nargs="+", default=["stock", "lin"], help="first: what the others are compared with")
    add("--words", nargs="+", type=positive_int, default=[12_800, 30_000], help="V of random text")
    add("--data", help="data-bin folder, in the place of random words")
    add("--scoring", action="store_true", help="measure scoring, too")
    add = command(decoding, DECODING, sentences=64, batch_size=32, length=20, beam=5, steps=1)
    add("data", help="data-bin folder of a translation corpus")
    add("--arch", default="kernel_transformer_iwslt_de_en")
    add("--kernels", nargs="+", default=["lin", "9xlin", NINE])
    args = parser.parse_args()
    args.measure(args)


if __name__ == "__main__":
    main()
