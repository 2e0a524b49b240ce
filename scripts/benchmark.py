#!/usr/bin/env python
"""Speed and memory of output layers and of the models around them; each command measures all its rows in one run.

    python scripts/benchmark.py limit       a layer's step against its bare matrix products, turn by turn
    python scripts/benchmark.py layer       a layer's step against other implementations
    python scripts/benchmark.py training    an LSTM language model's training step, and with --scoring its perplexity
    python scripts/benchmark.py decoding    beam search of the paper's transformer

COMMAND --help has its options. --out FILE puts the record after the others in a JSON file.
"""

import argparse
import contextlib
import io
import itertools
import json
import logging
import shlex
import statistics
import sys
import tempfile
import time
import warnings
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import torch
import torch.nn.functional as F
from torch import nn

from fairseq_kernels import GeneralizedSoftmax, SphericalSoftmax, TaylorSoftmax
from fairseq_kernels.analysis.measurement import measured, provenance
from fairseq_kernels.errors import CommandParser, positive_int
from fairseq_kernels.fused.matrix_products import onednn, word_blocks
from fairseq_kernels.kernels import PAPER_KERNELS
from fairseq_kernels.kernels.spec import parse_kernels
from fairseq_kernels.output_layers.table import LAYERS


def in_turn(build: Callable, rows: Dict[str, Tuple[Dict, Dict]], args: Namespace) -> None:
    """Measures ``build``'s steps for every row in turn, ``args.rounds`` times, each time in a new process.

    Args:
        rows: by name, the row and the arguments of ``build``. The row gets all ``steps``' seconds, of these the least
            (``seconds``), and ``mebibytes``.
    """
    for round_ in range(args.rounds):
        for name, (row, arguments) in rows.items():
            result = measured(build, arguments, args.steps, args.threads, args.device)
            row["steps"] = row.get("steps", []) + [round(second, 5) for second in result["seconds"]]
            row["seconds"] = min(row["steps"])
            peaks = [peak for peak in (row.get("mebibytes"), result["mebibytes"]) if peak is not None]
            row["mebibytes"] = round(max(peaks), 1) if peaks else None
            least = min(result["seconds"])
            print(f"round {round_ + 1}: {name}: {least:.3f} s, {row['mebibytes']} MiB", file=sys.stderr)


def timed(steps: List[Callable[[], None]], rounds: int) -> List[List[float]]:
    """Each step's seconds; the steps are taken in turn, after one round to warm up."""
    taken: List[List[float]] = [[] for _ in steps]
    for round_ in range(rounds + 1):
        for step, times in zip(steps, taken):
            start = time.perf_counter()
            step()
            if round_:
                times.append(time.perf_counter() - start)
    return taken


def keep(args: Namespace, **record) -> None:
    """Puts a record with its command and origin after the others in ``args.out``, where that is given."""
    if args.out:
        command = shlex.join(["python", "scripts/benchmark.py", *sys.argv[1:]])
        records = json.loads(args.out.read_text()) if args.out.exists() else []
        record = {"command": command, "made": provenance(args.threads), **record}
        args.out.write_text(json.dumps([*records, record], indent=1) + "\n")


# ------------------------------------------------------------------------------------------------------ limit

LIMIT = """How near the generalized softmax is to the machine's limit: its step against its bare matrix products.

Exact softmax needs three products a component: the scores, dL/dW and dL/dh. They are done here on blocks of the layer's
own size, by the faster of torch's way and oneDNN's, without anything between them; mog counts as two components, since
its two Gaussians a word meet two a context in half the coordinates. A ratio of 1 is the limit of exact arithmetic."""
LIMIT_ROWS = {"lin": "lin", "9xlin": "9xlin", "nine kernels": ",".join(PAPER_KERNELS)}
CHUNK = 384  # rows of a product, as the layer has them


def layer_step(kernels: str, tokens: int, words: int, dim: int) -> Callable[[], None]:
    """Loss and all gradients, without bias."""
    layer = GeneralizedSoftmax(dim, words, kernels, bias=False)
    features, target = torch.randn(tokens, dim, requires_grad=True), torch.randint(words, (tokens,))

    def step():
        layer.nll(features, target).backward()
        features.grad = None
        layer.zero_grad(set_to_none=True)

    return step


def product_step(components: int, tokens: int, words: int, dim: int, library: Callable) -> Callable[[], None]:
    """The three products of each component, in the context that ``library`` gives."""
    matrix, grad_matrix = torch.randn(words, dim), torch.zeros(words, dim)
    rows, scores = torch.randn(CHUNK, dim), torch.randn(CHUNK, words)

    def step():
        with library():
            for start in range(0, components * tokens, CHUNK):
                some = rows[: min(CHUNK, components * tokens - start)]
                for block in word_blocks(words, CHUNK, matrix.device):
                    torch.mm(some, matrix[block].T, out=scores[: len(some), block])
                grad_matrix.addmm_(scores[: len(some)].T, some)
                scores[: len(some)] @ matrix

    return step


def limit(args: Namespace) -> None:
    sizes, rows = (args.tokens, args.words, args.dim), []
    ways = {"torch": contextlib.nullcontext, **({"oneDNN": onednn} if hasattr(torch.backends.mkldnn, "matmul") else {})}
    for name, kernels in ({name: name for name in args.only} if args.only else LIMIT_ROWS).items():
        components = sum(2 if kernel == "mog" else 1 for kernel in parse_kernels(kernels))
        steps = [product_step(components, *sizes, library) for library in ways.values()]
        step, *products = map(statistics.median, timed([layer_step(kernels, *sizes), *steps], args.rounds))
        bare = min(products)
        way = list(ways)[products.index(bare)]
        row = {"name": name, "kernels": kernels, "seconds": step, "products": bare, "by": way, "ratio": step / bare}
        rows.append(row)
        print(f"{name:14} {step:8.3f} s, its products {bare:8.3f} s (by {way}), ratio {step / bare:.3f}", flush=True)
    keep(args, tokens=args.tokens, words=args.words, dim=args.dim, rows=rows)


# ------------------------------------------------------------------------------------------------------ layer

LAYER = """Time and memory of output layers, forward and backward: this package's against what else there is.

Every implementation runs in a process of its own on the same random inputs; rounds go through all of them in turn.
Seconds are those of the fastest step. Memory is the peak of the process over its level just before the steps, with
the layer built and one step done (on a GPU: of torch's allocations)."""
COMPARISONS = [  # each with N
    ("9xlin", "mos 9", 2048), ("nine kernels", "mos 9", 2048), ("9xlin untied", "9xlin", 2048),
    ("lin", "stock", 4096), ("lin", "torch chunked", 4096),
    ("taylor", "stock", 4096), ("spherical", "stock", 4096),
    ("taylor", "taylor autograd", 4096), ("spherical", "spherical autograd", 4096),
]  # fmt: skip


def implementation_step(name: str, tokens: int, words: int, dim: int, device: str, dtype: str) -> Callable[[], None]:
    """One training step of a layer: loss and all gradients, which are dropped before the next one."""
    features = torch.randn(tokens, dim, device=device, dtype=getattr(torch, dtype)).requires_grad_()
    target = torch.randint(words, (tokens,), device=device)
    first, _, option = name.partition(" ")
    if name in ON_A_PROJECTION:
        layer = projection(words, dim)
        loss = partial(ON_A_PROJECTION[name], layer)
    elif first == "mos":
        loss, layer = mixture_of_softmaxes(int(option), words, dim)
    else:
        layer = ours(first, option, words, dim)
        loss = layer.nll
    layer.to(device=device, dtype=features.dtype)

    def step():
        loss(features, target).backward()
        features.grad = None
        layer.zero_grad(set_to_none=True)

    return step


def ours(first: str, option: str, words: int, dim: int) -> nn.Module:
    """This package's layers, without bias as the others."""
    if first in ("taylor", "spherical"):
        layer = (SphericalSoftmax if first == "spherical" else TaylorSoftmax)(dim, words, bias=False)
        nn.init.normal_(layer.weight, std=dim**-0.5)
        return layer
    kernels = list(PAPER_KERNELS) if first == "nine" else first
    return GeneralizedSoftmax(dim, words, kernels, bias=False, untied=option == "untied")


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
    sides = [(name, tokens) for *pair, tokens in COMPARISONS for name in pair]
    sides = [(name, args.tokens) for name in args.only] if args.only else sides
    own = {"words": args.words, "dim": args.dim, "device": args.device, "dtype": args.dtype}
    rows = {}
    for name, tokens in dict.fromkeys(sides):
        row = {"implementation": name, "tokens": tokens, "words": args.words, "dim": args.dim}
        rows[name, tokens] = row, {"name": name, "tokens": tokens, **own}
    in_turn(implementation_step, {f"{name}, N = {tokens:,}": row for (name, tokens), row in rows.items()}, args)
    rows = {key: row for key, (row, _) in rows.items()}
    print(f"{'implementation':22} {'against':22} {'N':>7} {'seconds':>9} {'ratio':>6} {'MiB':>7} {'ratio':>6}")
    comparisons = []
    for ours, other, tokens in COMPARISONS:
        if (ours, tokens) in rows and (other, tokens) in rows:
            first, second = rows[ours, tokens], rows[other, tokens]
            ratio = {"ours": ours, "other": other, "tokens": tokens}
            ratio["time_ratio"] = round(first["seconds"] / second["seconds"], 4)
            ratio["memory_ratio"] = second["mebibytes"] and round(first["mebibytes"] / second["mebibytes"], 4)
            comparisons.append(ratio)
            memory = f"{first['mebibytes'] or float('nan'):7,.0f} {ratio['memory_ratio'] or float('nan'):6.2f}"
            print(f"{ours:22} {other:22} {tokens:7,} {first['seconds']:9.3f} {ratio['time_ratio']:6.2f} {memory}")
    keep(args, device=args.device, dtype=args.dtype, comparisons=comparisons, rows=list(rows.values()))


# --------------------------------------------------------------------------------------------------- training

TRAINING = """Words per second and memory of training steps of an LSTM language model, and with --scoring of scoring.

A row is "stock" (lstm_lm and cross_entropy), an output layer's name as "taylor", or a kernel mixture, with options of
its own where wanted, as in "pow --kernel-params pow.p=3". Each runs in a process of its own, by fairseq's trainer, from
forward to update, on the same batches; rounds go through all rows in turn. Scoring is fairseq-eval-lm's: the
log-probabilities of all words, of which each target's is taken. Memory is the peak of the process over its level just
before the steps, one step done."""
MODEL = ("--decoder-layers", "2", "--dropout", "0.1", "--decoder-dropout-out", "0")
SIZES = ("--decoder-embed-dim", "--decoder-hidden-size", "--decoder-out-embed-dim")


def flags(row: str):
    """fairseq's options of a row."""
    name, *options = row.split()
    if name == "stock":
        return ["--arch", "lstm_lm", "--criterion", "cross_entropy", *options]
    which, layer = ("--output-layer", name) if name in LAYERS else ("--kernels", "kernels")
    return ["--arch", "kernel_lstm_lm", which, name, "--criterion", LAYERS[layer].criterion, *options]


def model_step(command: List[str], real: bool, batch: int, length: int, scoring: bool) -> Callable[[], None]:
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
    if real:
        task.load_dataset("train")
        iterator = trainer.get_train_iterator(epoch=1, load_dataset=False).next_epoch_itr(shuffle=True)
        samples = itertools.cycle([sample for _, sample in zip(range(16), iterator)])
    else:
        samples = itertools.cycle([synthetic(len(task.dictionary), batch, length, seed) for seed in range(16)])
    trainer.begin_epoch(1)
    if scoring:
        model, scorer = trainer.model.eval(), SequenceScorer(task.target_dictionary)
        return lambda: scorer.generate([model], trainer._prepare_sample(next(samples))[0])
    return lambda: trainer.train_step([next(samples)])


def synthetic(words: int, batch: int, length: int, seed: int):
    """A batch of words by Zipf's law."""
    generator = torch.Generator().manual_seed(seed)
    frequencies = 1 / torch.arange(1, words - 3, dtype=torch.float64)
    tokens = 4 + torch.multinomial(frequencies, batch * (length + 1), replacement=True, generator=generator)
    tokens = tokens.view(batch, length + 1)
    net_input = {"src_tokens": tokens[:, :-1].contiguous(), "src_lengths": torch.full((batch,), length)}
    target = tokens[:, 1:].contiguous()
    sizes = {"nsentences": batch, "ntokens": batch * length}
    return {"id": torch.arange(batch), **sizes, "net_input": net_input, "target": target}


def dictionary_folder(folder: str, words: int) -> str:
    """A data folder with a dictionary of so many words, fairseq's 4 special ones included."""
    path = Path(folder, str(words))
    path.mkdir()
    (path / "dict.txt").write_text("".join(f"w{i} {words - i}\n" for i in range(words - 4)))
    return str(path)


def training(args: Namespace) -> None:
    model = [*MODEL, *(word for option in SIZES for word in (option, str(args.dim)))]
    sizes = ["--tokens-per-sample", args.length, "--sample-break-mode", "none", "--batch-size", args.batch_size]
    common = [*model, *sizes, "--lr", "0.001", "--clip-norm", "5", "--seed", "1"]
    common += (["--cpu"] if args.device == "cpu" else []) + ([f"--{args.precision}"] if args.precision else [])
    kinds = ["training", "scoring"] if args.scoring else ["training"]
    shared = {"real": bool(args.data), "batch": args.batch_size, "length": args.length}
    with tempfile.TemporaryDirectory() as folder:
        folders = [args.data] if args.data else [dictionary_folder(folder, words) for words in args.words]
        rows = {}
        for data, row, optimizer, kind in itertools.product(folders, args.rows, args.optimizers, kinds):
            label = f"{row}, {optimizer}" if len(args.optimizers) > 1 else row
            command = [data, "--task", "language_modeling", *flags(row), *common, "--optimizer", optimizer]
            arguments = {"command": list(map(str, command)), "scoring": kind == "scoring", **shared}
            words = Path(data).name
            rows[f"{words} {label}, {kind}"] = {"words": words, "row": label, "kind": kind}, arguments
        in_turn(model_step, rows, args)
    results = []
    print(f"{'V':>10} {'row':24} {'':9} {'words/s':>9} {'ratio':>6} {'MiB':>7} {'ratio':>6}")
    for row in (row for row, _ in rows.values()):
        first = next(other for other, _ in rows.values() if all(other[key] == row[key] for key in ("words", "kind")))
        result = {key: row[key] for key in ("words", "row", "kind", "mebibytes", "steps")}
        result["words_per_second"] = round(args.batch_size * args.length / row["seconds"])
        result["speed_ratio"] = round(first["seconds"] / row["seconds"], 3)
        result["memory_ratio"] = row["mebibytes"] and round(row["mebibytes"] / first["mebibytes"], 3)
        results.append(result)
        speed = f"{result['words_per_second']:9,} {result['speed_ratio']:6.2f}"
        memory = f"{row['mebibytes'] or float('nan'):7,.0f} {result['memory_ratio'] or float('nan'):6.2f}"
        print(f"{row['words']:>10} {row['row']:24} {row['kind']:9} {speed} {memory}")
    settings = {"batch_size": args.batch_size, "length": args.length, "device": args.device, "model": model}
    keep(args, settings=settings, rows=results)


# --------------------------------------------------------------------------------------------------- decoding

DECODING = """Beam-search speed of kernel mixtures against lin: the transformer of the paper, on the same sentences.

The weights are random and every hypothesis has the same length, so that all models do the same number of steps.
Each round times every model once; the table has the fastest round's seconds and the ratio to the first model."""


def decoding(args: Namespace) -> None:
    from fairseq import options, tasks
    from fairseq.models import ARCH_CONFIG_REGISTRY, build_model
    from fairseq.sequence_generator import SequenceGenerator
    from fairseq.utils import move_to_cuda

    import fairseq_kernels.fairseq_plugin  # noqa: F401  (registers the models)

    torch.manual_seed(1)
    command = [args.data, "--task", "translation"]
    task = tasks.setup_task(options.parse_args_and_arch(options.get_generation_parser(), command))
    task.load_dataset("test")
    dataset = task.dataset("test")
    numbers = range(min(args.sentences, len(dataset)))
    batches = [numbers[start : start + args.batch_size] for start in numbers[:: args.batch_size]]
    samples = [dataset.collater([dataset[number] for number in batch]) for batch in batches]
    samples = samples if args.device == "cpu" else [move_to_cuda(sample) for sample in samples]
    lengths = {"beam_size": args.beam, "max_len_a": 0, "max_len_b": args.length, "min_len": args.length}

    def decode(kernels):
        settings = Namespace(arch=args.arch, kernels=kernels, share_decoder_input_output_embed=True)
        ARCH_CONFIG_REGISTRY[args.arch](settings)
        model = build_model(settings, task).eval().to(args.device)
        generator = SequenceGenerator([model], task.target_dictionary, **lengths)

        def step():
            for sample in samples:
                generator.generate([], sample)
            if args.device != "cpu":
                torch.cuda.synchronize()

        return step

    seconds = timed([decode(kernels) for kernels in args.kernels], args.rounds)
    first = min(seconds[0])
    rows = [{"kernels": kernels, "seconds": min(each), "rounds": each, "ratio": min(each) / first}
            for kernels, each in zip(args.kernels, seconds)]  # fmt: skip
    for row in rows:
        print(f"{row['kernels']:40} {row['seconds']:8.2f} s   {row['ratio']:.2f} x")
    record = {name: value for name, value in vars(args).items() if name not in ("out", "data", "measure")}
    keep(args, settings={**record, "words": len(task.target_dictionary)}, rows=rows)


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
        add("--out", type=Path, help="JSON file, gets the record after its others")
        for name, default in sizes.items():
            add(f"--{name.replace('_', '-')}", type=positive_int, default=default, help=f"default: {default}")
        if measure is not limit:
            add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
        return add

    add = command(limit, LIMIT, tokens=1024, words=30_000, dim=512)
    add("--only", nargs="+", metavar="KERNELS", help="these mixtures")
    add = command(layer, LAYER, tokens=4096, words=30_000, dim=512, steps=3)
    add("--only", nargs="+", metavar="NAME", help="these implementations alone, at --tokens (the table has its own)")
    add("--dtype", default="float32", choices=["float32", "bfloat16", "float16", "float64"])
    add = command(training, TRAINING, dim=512, batch_size=32, length=35, steps=5)
    add("--rows", nargs="+", default=["stock", "lin"], help="first: what the others are compared with")
    add("--optimizers", nargs="+", default=["adam"], help="for every row: adam, fused_adamw, ...")
    add("--words", nargs="+", type=positive_int, default=[12_800, 30_000], help="V of random text")
    add("--data", help="data-bin folder, in the place of random words")
    add("--scoring", action="store_true", help="measure scoring, too")
    add("--precision", default="", choices=["", "fp16", "amp"])
    add = command(decoding, DECODING, sentences=64, batch_size=32, length=20, beam=5)
    add("data", help="data-bin folder of a translation corpus")
    add("--arch", default="kernel_transformer_iwslt_de_en")
    add("--kernels", nargs="+", default=["lin", "9xlin", ",".join(PAPER_KERNELS)])
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    args.measure(args)


if __name__ == "__main__":
    main()
