"""How fairseq's commands read their options: mistakes in one line. :func:`install` puts this into fairseq."""

import math
import sys
from argparse import ArgumentParser, Namespace
from typing import Optional

from fairseq import options

from .compat import evaluated
from .errors import mistake, short_errors
from .output_layers.table import LAYERS

fairseq_parse = options.parse_args_and_arch
# fairseq takes any number, and ends in an error that names no option, or in a training of nothing
SIZES = (
    *("decoder_layers", "decoder_embed_dim", "decoder_hidden_size", "decoder_out_embed_dim", "decoder_ffn_embed_dim"),
    *("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "tokens_per_sample", "beam", "nbest"),
    *("batch_size", "batch_size_valid", "max_tokens", "max_tokens_valid", "update_freq"),
    *("encoder_attention_heads", "decoder_attention_heads"),
    *("distributed_world_size", "log_interval", "save_interval", "validate_interval"),
)
COUNTS = (
    *("max_update", "max_epoch", "warmup_updates", "save_interval_updates", "validate_interval_updates", "lr"),
    *("num_workers", "clip_norm", "weight_decay"),
)
SHARES = ("dropout", "decoder_dropout_in", "decoder_dropout_out", "attention_dropout", "activation_dropout")
BOUNDS = {**dict.fromkeys(SIZES, (1, (1 << 31) - 1)), **dict.fromkeys(SHARES, (0, 1))}
BOUNDS.update(dict.fromkeys(COUNTS, (0, sys.float_info.max)), seed=(0, (1 << 31) - 1))


def install() -> None:
    options.parse_args_and_arch = parse_args_and_arch


def parse_args_and_arch(parser: ArgumentParser, *args, **how):
    short_errors(parser)
    parsed = fairseq_parse(parser, *args, **how)
    args = parsed[0] if isinstance(parsed, tuple) else parsed
    check_numbers(args)
    check_betas(getattr(args, "adam_betas", None))
    check_criterion(getattr(args, "arch", None), getattr(args, "criterion", None))
    return parsed


def check_numbers(args: Namespace) -> None:
    """
    Raises:
        SystemExit: one line: a number that is not possible.
    """
    for name, given in vars(args).items():
        least, most = BOUNDS.get(name, (-math.inf, math.inf))
        for number in given if isinstance(given, list) else [given]:
            if isinstance(number, (int, float)) and not least <= number <= most:  # nan is in no bounds
                near = f"{least} or more" if number < least else f"at most {most}" if number > most else "a number"
                raise mistake(f"--{name.replace('_', '-')} {number} is not allowed: give {near}")


def check_criterion(arch: Optional[str], criterion: Optional[str]) -> None:
    """
    Raises:
        SystemExit: one line: the criterion is for an adaptive softmax, which kernel models have none of. fairseq would
            ask for another ``--ddp-backend``.
    """
    if criterion == "adaptive_loss" and str(arch).startswith("kernel_"):
        raise mistake(
            f"--criterion adaptive_loss doesn't fit --arch {arch}, which has no adaptive softmax; give --criterion "
            f"{LAYERS['kernels'].criterion}"
        )


def check_betas(given) -> None:
    """
    Raises:
        SystemExit: one line: they are no pair of numbers that Adam takes. fairseq's own Adam takes any.
    """
    try:
        betas = evaluated(given) if isinstance(given, str) else given
        fits = betas is None or [0 <= beta < 1 for beta in betas] == [True, True]
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise mistake(f"--adam-betas {given} is not allowed: give two numbers from 0 to below 1, as '(0.9, 0.98)'")
