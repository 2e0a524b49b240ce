"""fairseq's commands name the option that is wrong, in one line."""

import math
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from fairseq import options
from fairseq.dataclass import utils

from ..errors import mistake, nearest
from . import replaces
from .reading import evaluated

SIZES = """decoder_layers decoder_embed_dim decoder_hidden_size decoder_out_embed_dim decoder_ffn_embed_dim
encoder_layers encoder_embed_dim encoder_ffn_embed_dim tokens_per_sample beam nbest batch_size batch_size_valid
max_tokens max_tokens_valid update_freq encoder_attention_heads decoder_attention_heads distributed_world_size
log_interval save_interval validate_interval""".split()
COUNTS = """max_update max_epoch warmup_updates save_interval_updates validate_interval_updates lr num_workers clip_norm
weight_decay""".split()
SHARES = "dropout decoder_dropout_in decoder_dropout_out attention_dropout activation_dropout".split()
BOUNDS = {**dict.fromkeys(SIZES, (1, (1 << 31) - 1)), **dict.fromkeys(SHARES, (0, 1))}
BOUNDS.update(dict.fromkeys(COUNTS, (0, sys.float_info.max)), seed=(0, (1 << 31) - 1))


@replaces(utils, "eval_str_list")
def eval_str_list(theirs, text, kind=float):
    """fairseq reads a list of numbers as Python does.

    Lost: --lr 0.001x ended in a SyntaxError in "<unknown>, line 1".
    """
    try:
        numbers = theirs(text, kind)
    except (SyntaxError, ValueError, TypeError):
        numbers = []
    if text and numbers == []:
        raise ArgumentTypeError(f"{text!r} is neither a number nor a list of numbers such as [0.1,0.2]")
    return numbers


@replaces(options, "parse_args_and_arch")
def parse_args_and_arch(theirs, parser: ArgumentParser, *args, **how):
    """fairseq accepts any number, and answers a mistyped option with 150 lines of usage.

    Lost: the error did not name the wrong option. A training without any update ended without an error.
    """

    def error(message: str) -> None:
        raise mistake(nearest(parser, message))

    parser.error = error  # type: ignore[method-assign, assignment]
    parsed = theirs(parser, *args, **how)
    check(parsed[0] if isinstance(parsed, tuple) else parsed)
    return parsed


def check(args: Namespace) -> None:
    """Ends the program in a line that names a number, alone or in a list, that is not possible."""
    for name, given in vars(args).items():
        least, most = BOUNDS.get(name, (-math.inf, math.inf))
        for number in given if isinstance(given, list) else [given]:
            if isinstance(number, (int, float)) and not least <= number <= most:  # nan is in no bounds
                near = f"{least} or more" if number < least else f"at most {most}" if number > most else "a number"
                raise mistake(f"--{name.replace('_', '-')} {number} is not allowed: give {near}")
    betas = getattr(args, "adam_betas", None) or (0, 0)
    try:
        fits = [0 <= beta < 1 for beta in (evaluated(betas) if isinstance(betas, str) else betas)] == [True, True]
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise mistake(f"--adam-betas {betas} is not allowed: give two numbers from 0 to below 1, as '(0.9, 0.98)'")
