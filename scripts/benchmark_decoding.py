#!/usr/bin/env python
"""Beam-search speed of kernel mixtures against lin: the transformer of the paper, in one run, on the same sentences.

    python scripts/benchmark_decoding.py DATA_BIN [--kernels lin 9xlin ...] [--out results/decoding.json]

The weights are random and every hypothesis has the same length, so that all models do the same number of steps.
Each round times every model once; the table has the fastest round's seconds and the ratio to the first model.
"""

import os
import sys
import time
from argparse import Namespace

import benchmarks
import torch
from fairseq import options, tasks
from fairseq.models import ARCH_CONFIG_REGISTRY, build_model
from fairseq.sequence_generator import SequenceGenerator

import fairseq_kernels.fairseq_plugin  # noqa: F401  (registers the models)
from fairseq_kernels.errors import one_line_errors, positive_int
from fairseq_kernels.experiments.data import Corpus
from fairseq_kernels.kernels import PAPER_KERNELS

ARCHITECTURES = [name for name in ARCH_CONFIG_REGISTRY if name.startswith("kernel_transformer") and "lm" not in name]


def build(task, kernels: str, arch: str):
    """An untrained model of a named architecture."""
    args = Namespace(arch=arch, kernels=kernels, share_decoder_input_output_embed=True)
    ARCH_CONFIG_REGISTRY[arch](args)
    return build_model(args, task).eval()


def batches(task, subset: str, sentences: int, size: int, device: str):
    """Batches of the first sentences, on the device, as the generator takes them."""
    task.load_dataset(subset)
    dataset = task.dataset(subset)
    rows = range(min(sentences, len(dataset)))
    for start in rows[::size]:
        batch = dataset.collater([dataset[row] for row in rows[start : start + size]])
        yield {"net_input": {key: value.to(device) for key, value in batch["net_input"].items()}}


def main() -> None:
    parser = benchmarks.options(__doc__)
    parser.add_argument("data", help="data-bin folder of a translation corpus")
    parser.add_argument("--arch", default="kernel_transformer_iwslt_de_en", choices=ARCHITECTURES, metavar="ARCH")
    parser.add_argument("--kernels", nargs="+", default=["lin", "9xlin", ",".join(PAPER_KERNELS)])
    parser.add_argument("--subset", default="test")
    parser.add_argument("--sentences", type=positive_int, default=64)
    parser.add_argument("--batch-size", type=positive_int, default=32)
    parser.add_argument("--length", type=positive_int, default=20, help="words of every hypothesis")
    parser.add_argument("--beam", type=positive_int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if not os.path.isdir(args.data):
        parser.error(f"data folder {args.data} not found")
    with one_line_errors():
        splits = Corpus.at(args.data).splits()
    if args.subset not in splits:
        parser.error(f"--subset {args.subset} is not in {args.data}; it has {', '.join(splits)}")
    if args.out:
        benchmarks.check(args.out)
    torch.set_num_threads(args.threads or torch.get_num_threads())
    torch.manual_seed(1)
    parser = options.get_generation_parser()
    task = tasks.setup_task(options.parse_args_and_arch(parser, [args.data, "--task", "translation"]))
    samples = list(batches(task, args.subset, args.sentences, args.batch_size, args.device))
    generators = {}
    for kernels in args.kernels:
        model = build(task, kernels, args.arch).to(args.device)
        generators[kernels] = SequenceGenerator(
            [model],
            task.target_dictionary,
            beam_size=args.beam,
            max_len_a=0,
            max_len_b=args.length,
            min_len=args.length,
        )
    seconds = {kernels: [] for kernels in args.kernels}
    for round_ in range(args.rounds + 1):
        for kernels, generator in generators.items():
            start = time.perf_counter()
            for sample in samples:
                generator.generate([], sample)
            if args.device != "cpu":
                torch.cuda.synchronize()
            if round_:  # the first warms up
                seconds[kernels].append(time.perf_counter() - start)
            print(f"round {round_}: {kernels} {time.perf_counter() - start:.2f} s", file=sys.stderr)
    first = min(seconds[args.kernels[0]])
    rows = [{"kernels": k, "seconds": min(s), "rounds": s, "ratio": min(s) / first} for k, s in seconds.items()]
    for row in rows:
        print(f"{row['kernels']:40} {row['seconds']:8.2f} s   {row['ratio']:.2f} x")
    if args.out:
        settings = {key: value for key, value in vars(args).items() if key not in ("out", "data")}
        settings["words"] = len(task.target_dictionary)
        benchmarks.keep(args.out, args.threads, settings=settings, rows=rows)


if __name__ == "__main__":
    main()
