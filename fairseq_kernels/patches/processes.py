"""Trainings in several processes: on the CPU, too, and with the plugin in all of them."""

import functools
import logging
import os
import socket

import torch
from fairseq.distributed import utils
from fairseq.trainer import Trainer
from torch.multiprocessing import ProcessExitedException

from ..logs import log_as_fairseq
from . import replaces

logger = logging.getLogger(__name__)
TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


@replaces(utils, "call_main", issue=2879)
def call_main(theirs, cfg, main, **kwargs) -> None:
    """fairseq starts as many processes as there are GPUs. On the CPU it starts none and exits without an error. Its
    processes do not load the plugin.

    Lost: training in several processes failed on the CPU, and for kernel models everywhere.
    """
    run = functools.partial(with_plugin, main, os.getpid())
    try:
        if cfg.common.tpu or torch.cuda.is_available() and not cfg.common.cpu:
            theirs(cfg, run, **kwargs)
        else:
            call_on_cpu(cfg, run, kwargs)
    except ProcessExitedException as error:  # which has said why
        raise SystemExit(error.exit_code) from error


def call_on_cpu(cfg, main, kwargs: dict) -> None:
    """Runs ``main`` in this process, or in as many as ``--distributed-world-size`` says, joined by gloo."""
    options = cfg.distributed_training
    if all(map(os.environ.get, TORCHRUN)):
        options.distributed_init_method, options.distributed_no_spawn = "env://", True
        options.distributed_world_size, options.distributed_rank = (int(os.environ[name]) for name in TORCHRUN[2:])
    if options.distributed_world_size == 1:
        return main(cfg, **kwargs)
    options.distributed_backend, options.ddp_backend = "gloo", "legacy_ddp"
    logger.info(f"{options.distributed_world_size} processes on the CPU: gloo and legacy_ddp")
    if options.distributed_no_spawn:
        return utils.distributed_main(0, main, cfg, kwargs)
    if options.distributed_init_method is None:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            options.distributed_init_method = f"tcp://localhost:{free.getsockname()[1]}"
    options.distributed_rank = None  # each process takes its own number
    arguments = (main, cfg, {**kwargs, "start_rank": 0})
    torch.multiprocessing.spawn(utils.distributed_main, arguments, options.distributed_world_size)
    options.distributed_rank = 0


@replaces(Trainer, "train_step")
def train_step(theirs, trainer, samples, *args, **options):
    """fairseq takes the words of an update for none in a process whose last batch only fills up its turn.

    Lost: with several processes and --update-freq, an epoch's last gradient was up to twice too large.
    """
    own = samples if trainer.is_fsdp else [sample for sample in samples if sample]  # FSDP: as many passes in each
    return theirs(trainer, own or samples, *args, **options)


def with_plugin(main, parent: int, cfg, **kwargs) -> None:
    """``main``, if need be in a new process: there --user-dir registers nothing, as the package is imported already."""
    from .. import fairseq_plugin  # noqa: F401

    if os.getpid() != parent:
        log_as_fairseq(logging.getLogger().level)
    main(cfg, **kwargs)
