"""What current torch needs to load fairseq's checkpoints safely."""

import argparse

import torch


def allow_namespaces() -> None:
    """Lets torch's safe loader read fairseq's checkpoints, which hold an ``argparse.Namespace``.

    Since torch 2.6 ``torch.load`` refuses classes it doesn't know. A Namespace only holds values; checkpoints that
    carry code stay refused.
    """
    torch.serialization.add_safe_globals([argparse.Namespace])
