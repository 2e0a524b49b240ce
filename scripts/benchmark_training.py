#!/usr/bin/env python
"""Words per second and memory of whole training steps of an LSTM language model: ours against fairseq's, in one run.

    python scripts/benchmark_training.py                                     the paper's size at two vocabularies
    python scripts/benchmark_training.py --rows stock lin 3xlin,log taylor --words 30000
    python scripts/benchmark_training.py --optimizers adam fused_adamw       each row with each optimizer
    python scripts/benchmark_training.py --data data/swb/data-bin            batches of real text, its vocabulary
    python scripts/benchmark_training.py --data data/swb/data-bin --dim 128 --batch-size 16 --rows lin pol "pow pow.p=3"

A row is "stock" (lstm_lm and cross_entropy), "taylor", "spherical", "kerbs" or a kernel mixture, the latter followed by
"untied" or --kernel-params where wanted.
Each runs in a process of its own: fairseq's trainer, forward to update, on the same batches; rounds go through all
rows in turn. Memory is the peak of the process over its level just before the steps, one step done.
"""

import contextlib
import io
import itertools
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path

import benchmarks
import torch

from fairseq_kernels.errors import positive_int
from fairseq_kernels.output_layers.table import LAYERS

MODEL = ("--decoder-layers", "2", "--dropout", "0.1", "--decoder-dropout-out", "0")
SIZES = ("--decoder-embed-dim", "--decoder-hidden-size", "--decoder-out-embed-dim")


def flags(row: str):
    """fairseq's options of a row."""
    name, _, option = row.partition(" ")
    if name == "stock":
        return ["--arch", "lstm_lm", "--criterion", "cross_entropy"]
    if name in LAYERS:
        own = ["--output-layer", name, "--criterion", LAYERS[name].criterion]
        return ["--arch", "kernel_lstm_lm", *own, *option.split()]
    further = ["--untied-projections"] if option == "untied" else ["--kernel-params", option] if option else []
    return ["--arch", "kernel_lstm_lm", "--kernels", name, "--criterion", LAYERS["kernels"].criterion, *further]


def build_step(
    row: str, optimizer: str, data: str, real: bool, model: list, batch: int, length: int, device: str, precision: str
):
    """fairseq's training step on one batch after the other."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.trainer import Trainer

    import fairseq_kernels.fairseq_plugin  # noqa: F401  (registers models and criterions)

    sizes = ["--tokens-per-sample", str(length), "--sample-break-mode", "none", "--batch-size", str(batch)]
    training = ["--optimizer", optimizer, "--lr", "0.001", "--clip-norm", "5", "--seed", "1"]
    command = [data, "--task", "language_modeling", *flags(row), *model, *sizes, *training]
    command += (["--cpu"] if device == "cpu" else []) + ([f"--{precision}"] if precision else [])
    with contextlib.redirect_stdout(io.StringIO()):
        args = options.parse_args_and_arch(options.get_training_parser(), command)
        cfg = convert_namespace_to_omegaconf(args)
        task = tasks.setup_task(cfg.task)
        trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    if real:
        task.load_dataset("train")
        iterator = trainer.get_train_iterator(epoch=1, load_dataset=False).next_epoch_itr(shuffle=True)
        samples = [sample for _, sample in zip(range(16), iterator)]
    else:
        samples = [synthetic(len(task.dictionary), batch, length, seed) for seed in range(16)]
    trainer.begin_epoch(1)
    number = 0

    def step():
        nonlocal number
        trainer.train_step([samples[number % len(samples)]])
        number += 1

    return step


def synthetic(words: int, batch: int, length: int, seed: int):
    """A batch of words by Zipf's law."""
    generator = torch.Generator().manual_seed(seed)
    frequencies = 1 / torch.arange(1, words - 3, dtype=torch.float64)
    tokens = 4 + torch.multinomial(frequencies, batch * (length + 1), replacement=True, generator=generator)
    tokens = tokens.view(batch, length + 1)
    return {
        "id": torch.arange(batch),
        "nsentences": batch,
        "ntokens": batch * length,
        "net_input": {"src_tokens": tokens[:, :-1].contiguous(), "src_lengths": torch.full((batch,), length)},
        "target": tokens[:, 1:].contiguous(),
    }


def dictionary_folder(folder: str, words: int) -> str:
    """A data folder with a dictionary of so many words, fairseq's 4 special ones included."""
    path = Path(folder) / str(words)
    path.mkdir()
    (path / "dict.txt").write_text("".join(f"w{i} {words - i}\n" for i in range(words - 4)))
    return str(path)


def main() -> None:
    parser = benchmarks.options(__doc__)
    parser.add_argument("--rows", nargs="+", default=["stock", "lin"], help="first: what the others are compared with")
    parser.add_argument("--optimizers", nargs="+", default=["adam"], help="for every row: adam, fused_adamw, ...")
    parser.add_argument("--words", nargs="+", type=positive_int, default=[12_800, 30_000], help="V of random text")
    parser.add_argument("--data", help="data-bin folder, in the place of random words")
    parser.add_argument("--dim", type=positive_int, default=512, help="of embeddings, LSTM and contexts")
    parser.add_argument("--batch-size", type=positive_int, default=32)
    parser.add_argument("--length", type=positive_int, default=35)
    parser.add_argument("--steps", type=positive_int, default=5, help="steps a round, after one to warm up")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="", choices=["", "fp16", "amp"])
    args = parser.parse_args()
    if args.data and not os.path.isfile(os.path.join(args.data, "dict.txt")):
        parser.error(f"--data {args.data} has no dict.txt; give the data-bin folder that prepare-swb.sh made")
    if args.out:
        benchmarks.check(args.out)
    tokens, results = args.batch_size * args.length, []
    model = [*MODEL, *(word for option in SIZES for word in (option, str(args.dim)))]
    with tempfile.TemporaryDirectory() as folder:
        folders = [args.data] if args.data else [dictionary_folder(folder, words) for words in args.words]
        rows, shared = {}, {"real": bool(args.data), "device": args.device, "precision": args.precision, "model": model}
        shared.update(batch=args.batch_size, length=args.length)
        for data, row, optimizer in itertools.product(folders, args.rows, args.optimizers):
            label = f"{row}, {optimizer}" if len(args.optimizers) > 1 else row
            own = {"row": row, "optimizer": optimizer, "data": data}
            rows[f"{Path(data).name} {label}"] = {"words": Path(data).name, "row": label}, {**own, **shared}
        benchmarks.in_turn(build_step, rows, args)
    rows = [row for row, _ in rows.values()]
    for row in rows:
        if "error" in row:
            sys.exit(row["error"])
    print(f"{'V':>10} {'row':24} {'words/s':>9} {'ratio':>6} {'MiB':>7} {'ratio':>6}")
    for row in rows:
        first = next(other for other in rows if other["words"] == row["words"])
        result = {"words": row["words"], "row": row["row"], "words_per_second": round(tokens / row["seconds"])}
        result["speed_ratio"] = round(first["seconds"] / row["seconds"], 3)
        result["mebibytes"] = row["mebibytes"]
        result["memory_ratio"] = row["mebibytes"] and round(row["mebibytes"] / first["mebibytes"], 3)
        result["steps"] = row["steps"]
        results.append(result)
        print(
            f"{result['words']:>10} {result['row']:24} {result['words_per_second']:9,} {result['speed_ratio']:6.2f} "
            f"{result['mebibytes'] or float('nan'):7,.0f} {result['memory_ratio'] or float('nan'):6.2f}"
        )
    if args.out:
        settings = {"batch_size": args.batch_size, "length": args.length, "device": args.device, "model": model}
        benchmarks.keep(args.out, args.threads, settings=settings, rows=results)


if __name__ == "__main__":
    main()
