"""How fairseq's commands read their options: mistakes in one line. :func:`install` puts this into fairseq."""

from argparse import ArgumentParser

from fairseq import options

from .errors import short_errors

fairseq_parse = options.parse_args_and_arch


def install() -> None:
    options.parse_args_and_arch = parse_args_and_arch


def parse_args_and_arch(parser: ArgumentParser, *args, **how):
    short_errors(parser)
    return fairseq_parse(parser, *args, **how)
