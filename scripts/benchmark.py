#!/usr/bin/env python
"""Speed and memory of output layers and of the models around them; each command measures all its rows in one run.

    python scripts/benchmark.py limit       a layer's step against its bare matrix products
    python scripts/benchmark.py layer       a layer's step against other implementations
    python scripts/benchmark.py training    an LSTM language model's training step, and with --scoring its perplexity
    python scripts/benchmark.py decoding    beam search of the paper's transformer
    python scripts/benchmark.py gpu         what trains with many words on a GPU

Each row runs in a process of its own; rounds go through all rows in turn. Seconds are those of the fastest step, ratios
those of the seconds to the first row's of the same group. Memory is the peak of the process over its level just before
the steps, one step done (on a GPU: of torch's allocations). COMMAND --help has its options. --out FILE puts the record
after the others in a JSON file.
"""

import argparse
import contextlib
import copy
import io
import itertools
import json
import logging
import os
import shlex
import signal
import statistics
import sys
import tempfile
import time
import timeit
import warnings
from argparse import Namespace
from functools import cache, partial
from importlib import import_module
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
from fairseq_kernels.whole_files import read_records, write_text

Step = Callable[[], None]
NINE = ",".join(PAPER_KERNELS)
compiled = cache(partial(torch.compile, dynamic=False))  # with the sizes as constants


def compare(rows: List[Tuple[Dict, Callable[[], Step]]], args: Namespace, summary=min, imports=()) -> None:
    """Measures all rows, prints them, and puts them with their command and origin after the others in ``args.out``.

    The file is written after each row. A row that fails has the ``error`` in the place of its figures.

    Args:
        rows: of each its ``group``, its ``name`` and the ``tokens`` of a step, and what makes the step. The former gets
            all ``steps``' seconds, their ``summary`` (``seconds``), its ``ratio`` to the group's first and
            ``mebibytes``.
    """
    records, first = read_records(args.out) if args.out else [], {}
    command = shlex.join(["python", "scripts/benchmark.py", *sys.argv[1:]])
    settings = {name: value for name, value in vars(args).items() if name not in ("measure", "out")}
    record = {"command": command, "made": provenance(args.threads), "settings": settings}
    record["rows"] = [row for row, _ in rows]
    for round_, (row, build) in itertools.product(range(args.rounds), rows):
        try:
            result = measured(build, args.steps, args.threads, args.device, imports)
            row["steps"] = row.get("steps", []) + [round(second, 7) for second in result.pop("seconds")]
            row["mebibytes"] = max(row.get("mebibytes", 0), round(result.pop("mebibytes"), 1))
            row |= {"seconds": round(summary(row["steps"]), 7), **result}
            row["ratio"] = round(row["seconds"] / first.setdefault(row["group"], row)["seconds"], 4)
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:200]
        told = row.get("error") or f"{row['seconds']:.3g} s"
        print(f"round {round_ + 1}: {row['group']}: {row['name']}: {told}", file=sys.stderr)
        if args.out:
            write_text(args.out, json.dumps([*records, record], indent=1) + "\n")
    print(f"{'':32} {'':36} {'seconds':>9} {'ratio':>6} {'words/s':>9} {'MiB':>7}")
    for row in (row for row, _ in rows if "seconds" in row):
        speed = f"{row['seconds']:9.4f} {row['ratio']:6.2f} {row['tokens'] / row['seconds']:9,.0f}"
        print(f"{row['group']:32} {row['name']:36} {speed} {row['mebibytes']:7,.0f}")


# ------------------------------------------------------------------------------------------------------ layer

LAYER = """Time and memory of output layers, forward and backward: this package's against what else there is.

A layer is a kernel mixture, with "untied" after it where its components have matrices of their own, an output layer's
name as "taylor", with "factored" after it where W is kept in factors, whose step is then in the time, too, or another
implementation: "mos 9", "stock", "stock compiled", "torch chunked", "taylor autograd", "spherical autograd", and of
other packages "liger", "cce" and, without cut-cross-entropy's filter of small gradients, "cce exact".
"""
COMPARED = {  # by the number of tokens
    2048: ["mos 9", "9xlin", NINE, "9xlin untied"],
    4096: ["stock", "torch chunked", "lin", "taylor", "taylor autograd", "spherical", "spherical autograd"],
}


def layer_step(name: str, tokens: int, words: int, dim: int, device: str, dtype="float32", check=0, decode=0) -> Step:
    """One training step of a layer without bias: loss and all gradients, which are dropped before the next one. The
    first ``check`` tokens' gradients are compared with float64's before. ``decode``: all log-probabilities, no loss."""
    features = torch.randn(tokens, dim, device=device, dtype=getattr(torch, dtype)).requires_grad_()
    target = torch.randint(words, (tokens,), device=device)
    first, _, option = name.partition(" ")
    with torch.device(device):  # a CPU takes seconds for so many random numbers
        if name in ON_A_PROJECTION:
            layer = projection(words, dim)
        elif first == "mos":
            layer = MixtureOfSoftmaxes(int(option), words, dim)
        elif first in LAYERS:
            layer = LAYERS[first].layer(dim, words, bias=False)
            nn.init.normal_(layer.weight, std=dim**-0.5)
            layer = factored(layer) if option == "factored" else layer
        else:
            layer = GeneralizedSoftmax(dim, words, first, bias=False, untied=option == "untied")
    loss = partial(ON_A_PROJECTION[name], layer) if name in ON_A_PROJECTION else layer.nll
    layer.to(features.dtype)
    optimizer = FactoredSGD([layer], lr=1e-3 / tokens) if option == "factored" else None

    def step():
        if decode:
            with torch.no_grad():
                return layer(features).log_softmax(-1, dtype=torch.float32)
        loss(features, target).backward()
        features.grad = None
        if optimizer:
            optimizer.step()
        layer.zero_grad(set_to_none=True)

    if check:
        step.gradient_error = gradient_error(layer, loss, features[:check].detach(), target[:check])
    return step


def gradient_error(layer, loss, features, target) -> float:
    """The largest relative error of a gradient, against that of the layer's probabilities in float64."""
    exact, rows = copy.deepcopy(layer).double(), features.double().requires_grad_()
    values = loss(features.requires_grad_(), target), F.cross_entropy(exact(rows), target, reduction="sum")
    inputs = [features, *layer.parameters()], [rows, *exact.parameters()]
    gradients = map(torch.autograd.grad, values, inputs)
    return max(((own - right).norm() / right.norm()).item() for own, right in zip(*gradients))


def projection(words: int, dim: int) -> nn.Linear:
    layer = nn.Linear(dim, words, bias=False)
    nn.init.normal_(layer.weight, std=dim**-0.5)
    return layer


class MixtureOfSoftmaxes(nn.Module):
    """Mixture of Softmaxes (Yang et al. 2018) as it is usually written: probabilities of all components, autograd."""

    def __init__(self, components: int, words: int, dim: int):
        super().__init__()
        self.contexts = nn.Linear(dim, components * dim, bias=False)
        self.weights = nn.Linear(dim, components, bias=False)
        self.output = projection(words, dim)

    def forward(self, features):
        hidden = torch.tanh(self.contexts(features)).view(-1, features.size(1))
        probabilities = F.softmax(self.output(hidden), dim=-1).view(len(features), -1, len(self.output.weight))
        return ((probabilities * F.softmax(self.weights(features), dim=-1).unsqueeze(2)).sum(1) + 1e-8).log()

    def nll(self, features, target):
        return F.nll_loss(self(features), target, reduction="sum")


def fairseq_cross_entropy(layer, features, target):
    log_probabilities = F.log_softmax(layer(features), dim=-1, dtype=torch.float32)
    return F.nll_loss(log_probabilities, target, reduction="sum")


def fused(module, function, layer, features, target, **options):
    """The loss of a package that multiplies by the words itself."""
    return getattr(import_module(module), function)(features, layer.weight, target, reduction="sum", **options)


def by_autograd(numerator, layer, features, target):
    """The spherical family's formulas over all V outputs."""
    numerators = numerator(layer(features))
    chosen = numerators.gather(1, target.unsqueeze(1)).squeeze(1)
    return (numerators.sum(1).log() - chosen.log()).sum()


ON_A_PROJECTION = {
    "stock": fairseq_cross_entropy,
    "torch chunked": lambda *given: fused(
        "torch.nn.functional", "linear_cross_entropy", *given, options=nn.LinearCrossEntropyOptions()
    ),
    "stock compiled": lambda *given: compiled(fairseq_cross_entropy)(*given),
    "liger": partial(fused, "liger_kernel.transformers.functional", "liger_fused_linear_cross_entropy"),
    "cce": partial(fused, "cut_cross_entropy", "linear_cross_entropy"),
    "cce exact": partial(fused, "cut_cross_entropy", "linear_cross_entropy", filter_eps=None),
    "taylor autograd": partial(by_autograd, lambda output: 1 + output + output.square() / 2),
    "spherical autograd": partial(by_autograd, lambda output: output.square() + 0.0198),
}


def layer(args: Namespace) -> None:
    sizes = {"words": args.words, "dim": args.dim, "device": args.device, "dtype": args.dtype}
    rows = [
        ({"group": f"{tokens:,} tokens", "name": name, "tokens": tokens}, partial(layer_step, name, tokens, **sizes))
        for tokens, names in ({args.tokens: args.only} if args.only else COMPARED).items()
        for name in names
    ]
    compare(rows, args)


# ------------------------------------------------------------------------------------------------------ limit

LIMIT = """How near the generalized softmax is to the machine's limit: its step against its bare matrix products.

Exact softmax needs three products a component: the scores, dL/dW and dL/dh. They are done here on blocks of the layer's
own size, by the faster of torch's way and oneDNN's, without anything between them; mog counts as two components, since
its two Gaussians a word meet two a context in half the coordinates. A ratio of 1 is the limit of exact arithmetic."""
CHUNK = 384  # rows of a product, as the layer has them


def product_step(kernels: str, tokens: int, words: int, dim: int, device: str, dtype="float32", chunk=CHUNK) -> Step:
    """The three products of each component."""
    new = {"device": device, "dtype": getattr(torch, dtype)}
    contexts = tokens * sum(2 if kernel == "mog" else 1 for kernel in parse_kernels(kernels))
    matrix, grad_matrix = torch.randn(words, dim, **new), torch.zeros(words, dim, **new)
    rows, scores = torch.randn(chunk, dim, **new), torch.randn(chunk, words, **new)

    def step(library, contexts=contexts):
        with library():
            for start in range(0, contexts, chunk):
                some = rows[: min(chunk, contexts - start)]
                for block in word_blocks(words, chunk, matrix.device):
                    torch.mm(some, matrix[block].T, out=scores[: len(some), block])
                grad_matrix.addmm_(scores[: len(some)].T, some)
                scores[: len(some)] @ matrix

    def seconds(library):
        return min(timeit.repeat(partial(step, library, chunk), number=1, repeat=3))

    libraries = [contextlib.nullcontext, *([onednn] if hasattr(torch.backends.mkldnn, "matmul") else [])]
    return partial(step, min(libraries, key=seconds))


def limit(args: Namespace) -> None:
    sizes = {"tokens": args.tokens, "words": args.words, "dim": args.dim, "device": args.device}
    rows = [
        ({"group": kernels, "name": name, "tokens": args.tokens}, partial(build, kernels, **sizes))
        for kernels in args.only
        for name, build in (("products", product_step), ("layer", layer_step))
    ]
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


# -------------------------------------------------------------------------------------------------------- gpu

GPU = """What trains with many words on a GPU, this package's layers and others', the most important rows first.

Loss and all gradients of a layer at three sizes, in bfloat16 and in float32 with TF32; updates of a small Llama by
transformers' Trainer; a step of decoding. "products" are the limit: the three matrix products of one component. Seconds
are the median, gradient_error is the largest relative error of a gradient against float64's, on 512 tokens."""
LOSSES = ["lin", "liger", "cce", "torch chunked", "stock", "stock compiled", "2xlin", "9xlin", "cce exact", "taylor"]
NEED_TRITON = ["liger", "cce", "cce exact", "stock compiled"]


def llama_step(head: str, words: int, dim: int, depth: int, texts: int, length: int, device: str) -> Step:
    """Three updates by transformers' Trainer; the step has the seconds from the end of one to the end of the next."""
    import transformers

    from fairseq_kernels.huggingface import replace_head

    sizes = {"vocab_size": words, "hidden_size": dim, "intermediate_size": 3 * dim, "num_hidden_layers": depth}
    with torch.device(device):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_attention_heads=dim // 64 or 1, **sizes))
    model = model if head in ("stock", "liger") else replace_head(model, head)
    data = [{"input_ids": text, "labels": text} for text in torch.randint(words, (3 * texts, length))]
    options = transformers.TrainingArguments(
        tempfile.gettempdir(), max_steps=3, per_device_train_batch_size=texts, bf16=True, use_cpu=device == "cpu",
        use_liger_kernel=head == "liger", liger_kernel_config=dict.fromkeys(("rope", "rms_norm", "swiglu"), False),
        save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True,
    )  # fmt: skip
    ends, seconds = [], []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, options, state, control, **others):
            if device != "cpu":
                torch.cuda.synchronize()
            ends.append(time.perf_counter())
            seconds.extend([ends[-1] - ends[-2:][0]] * (state.global_step > 1))

    trainer = transformers.Trainer(model, options, train_dataset=data, callbacks=[Clock])
    trainer.remove_callback(transformers.PrinterCallback)
    step = partial(trainer.train)
    step.seconds = seconds
    return step


def prepared(build: Callable[..., Step], precision: str) -> Step:
    """A step that has run once; its process ends after a minute."""
    signal.alarm(60)
    torch.set_float32_matmul_precision(precision)
    try:
        step = build()
        step()
    except Exception as error:  # other packages' may not survive the way to the caller
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
    return step


def gpu(args: Namespace) -> None:
    args.device = "cpu" if args.rehearse else "cuda"
    at_once = 8192, 8, [(4096, 128_256), (2048, 50_257), (512, 30_000)]
    (tokens, texts, sizes), rows = (64, 2, [(64, 50)]) if args.rehearse else at_once, []

    def add(group, name, count, size, build, precision="highest"):
        build = partial(build, dim=size[0], words=size[1], device=args.device)
        if not args.rehearse or name not in NEED_TRITON:
            row = {"group": f"{group}, d = {size[0]:,}, V = {size[1]:,}", "name": name, "tokens": count}
            rows.append((row, partial(prepared, build, precision)))

    for dtype, precision in ("bfloat16", "highest"), ("float32", "high"):
        options = {"tokens": tokens, "dtype": dtype}
        for size in sizes:
            add(dtype, "products", tokens, size, partial(product_step, "lin", chunk=tokens, **options), precision)
            for name in [*LOSSES, "3xlin,log", "mos 9"] + [NINE] * (size == sizes[-1]):
                add(dtype, name, tokens, size, partial(layer_step, name, check=min(512, tokens), **options), precision)
        if dtype == "bfloat16":
            for name in "stock", "liger", "lin", "2xlin":
                build = partial(llama_step, name, depth=texts, texts=texts, length=tokens // texts)
                add("Llama", name, tokens, (sizes[0][0] // 4, sizes[0][1]), build)
            for batch, name in itertools.product((1, 64), ("stock", "lin", "9xlin")):
                build = partial(layer_step, name, batch, dtype=dtype, decode=True)
                add(f"decoding {batch}", name, batch, sizes[0], build)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # a row compiles less than starting others takes
    imports = ["fairseq_kernels.huggingface", "transformers.trainer", "transformers.models.llama.modeling_llama"]
    imports += ["torch._inductor.compile_fx"] * (not args.rehearse)
    compare(rows, args, statistics.median, imports)


# ------------------------------------------------------------------------------------------------------- main


def main() -> None:
    parser = CommandParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(measure: Callable, description: str, **sizes):
        raw = argparse.RawDescriptionHelpFormatter
        own = commands.add_parser(measure.__name__, description=description, formatter_class=raw)
        own.set_defaults(measure=measure)
        add = own.add_argument
        add("--threads", type=positive_int, help="of torch on the CPU (default: torch's own choice)")
        add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
        add("--out", type=Path, help="JSON file, gets the record after its others")
        for name, default in sizes.items():
            add(f"--{name.replace('_', '-')}", type=positive_int, default=default, help=f"default: {default}")
        return add

    add = command(limit, LIMIT, rounds=3, tokens=1024, words=30_000, dim=512, steps=2)
    add("--only", nargs="+", metavar="KERNELS", default=["lin", "9xlin", NINE], help="these mixtures")
    add = command(layer, LAYER, rounds=3, tokens=4096, words=30_000, dim=512, steps=3)
    add("--only", nargs="+", metavar="NAME", help="these layers alone, at --tokens (the table has its own)")
    add("--dtype", default="float32", choices=["float32", "bfloat16", "float16", "float64"])
    add = command(training, TRAINING, rounds=3, dim=512, batch_size=32, length=35, steps=5)
    add("--rows", nargs="+", default=["stock", "lin"], help="first: what the others are compared with")
    add("--words", nargs="+", type=positive_int, default=[12_800, 30_000], help="V of random text")
    add("--data", help="data-bin folder, in the place of random words")
    add("--scoring", action="store_true", help="measure scoring, too")
    add = command(decoding, DECODING, rounds=3, sentences=64, batch_size=32, length=20, beam=5, steps=1)
    add("data", help="data-bin folder of a translation corpus")
    add("--arch", default="kernel_transformer_iwslt_de_en")
    add("--kernels", nargs="+", default=["lin", "9xlin", NINE])
    add = command(gpu, GPU, rounds=1, steps=10)
    add("--rehearse", action="store_true", help="tiny sizes on the CPU, without what needs Triton")
    args = parser.parse_args()
    args.measure(args)


if __name__ == "__main__":
    main()
