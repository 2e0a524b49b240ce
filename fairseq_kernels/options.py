"""How fairseq's commands read their options: mistakes in one line. :func:`install` puts this into fairseq."""

import math
from argparse import ArgumentParser, Namespace

from fairseq import options

from .errors import mistake, short_errors

fairseq_parse = options.parse_args_and_arch
# fairseq takes any number, and ends in an error that names no option, or in a training of nothing
SIZES = (
    *("decoder_layers", "decoder_embed_dim", "decoder_hidden_size", "decoder_out_embed_dim", "decoder_ffn_embed_dim"),
    *("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "tokens_per_sample", "beam", "nbest"),
    *("batch_size", "batch_size_valid", "max_tokens", "max_tokens_valid", "update_freq"),
)
COUNTS = ("max_update", "max_epoch", "warmup_updates", "save_interval_updates", "validate_interval_updates", "lr")


def install() -> None:
    options.parse_args_and_arch = parse_args_and_arch


def parse_args_and_arch(parser: ArgumentParser, *args, **how):
    short_errors(parser)
    parsed = fairseq_parse(parser, *args, **how)
    check_numbers(parsed[0] if isinstance(parsed, tuple) else parsed)
    return parsed


def check_numbers(args: Namespace) -> None:
    """
    Raises:
        SystemExit: one line: a number that is not possible.
    """
    for names, least in ((SIZES, 1), (COUNTS, 0)):
        for name in names:
            given = getattr(args, name, None)
            for number in given if isinstance(given, list) else [given]:
                if isinstance(number, (int, float)) and not least <= number < math.inf:
                    option = f"--{name.replace('_', '-')}"
                    raise mistake(f"{option} {number} is not allowed: give {least} or more")
