"""Trainings in several processes: on the CPU, too, and with the plugin in all of them. :func:`install` puts this into
fairseq.
"""

import functools
import logging
import os
import socket
from pathlib import Path

import torch
from fairseq.distributed import utils
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from .errors import PREFIX, explanation, mistake
from .logs import log_as_fairseq

logger = logging.getLogger(__name__)
fairseq_call = utils.call_main
TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


def install() -> None:
    utils.call_main = call_main
    utils._broadcast_object_slow = broadcast_object


def call_main(cfg, main, **kwargs) -> None:
    """In the place of fairseq's, which counts GPUs: on the CPU it would start no process, and end well.

    Raises:
        SystemExit: one line: options that don't fit each other, or a training that left no checkpoint.
    """
    options = cfg.distributed_training
    rank = options.distributed_rank  # fairseq forgets a node's when it starts its processes
    run = functools.partial(with_plugin, main, os.getpid())
    try:
        if cfg.common.tpu or torch.cuda.is_available() and not cfg.common.cpu:
            fairseq_call(cfg, run, **kwargs)
        else:
            call_on_cpu(cfg, run, kwargs)
    except ProcessRaisedException as error:
        lines = [line for line in str(error).splitlines() if PREFIX in line]
        if not lines:  # in a line, after what the process has said
            raise RuntimeError(str(error).strip().splitlines()[-1]) from error
        raise mistake(lines[-1].partition(PREFIX)[2]) from error
    except ProcessExitedException as error:
        raise mistake(f"one of the processes ended ({error}); see above") from error
    first = not (rank or options.distributed_rank)  # torchrun's is only there now
    if main.__name__ in ("main", "pre_main") and "train" in main.__module__ and first:
        if not cfg.checkpoint.no_save and not any(Path(cfg.checkpoint.save_dir).glob("checkpoint*.pt")):
            raise mistake(
                f"the training ended without a checkpoint in {cfg.checkpoint.save_dir}: no batch was trained, or no "
                "checkpoint was due; check --max-epoch, --max-update, --lr, --stop-min-lr, the data, --save-interval "
                "and --no-last-checkpoints"
            )


def broadcast_object(content, src_rank: int, group, dist_device):
    """In the place of fairseq's, which sends a checkpoint's settings as a file that torch.load refuses."""
    contents = [content]
    torch.distributed.broadcast_object_list(contents, src_rank, group, dist_device)
    return contents[0]


def call_on_cpu(cfg, main, kwargs: dict) -> None:
    """Runs ``main`` in this process, or in as many as ``--distributed-world-size`` says, joined by gloo."""
    options = cfg.distributed_training
    if all(map(os.environ.get, TORCHRUN)):
        size, rank = os.environ["WORLD_SIZE"], os.environ["RANK"]
        if not (size.isdecimal() and rank.isdecimal() and int(rank) < int(size)):
            raise mistake(f"WORLD_SIZE={size} with RANK={rank} is not allowed: torchrun sets them, or leave them unset")
        options.distributed_init_method, options.distributed_no_spawn = "env://", True
        options.distributed_world_size, options.distributed_rank = int(size), int(rank)
    if "://" not in (options.distributed_init_method or "://"):
        method = options.distributed_init_method
        raise mistake(f"--distributed-init-method {method} is not allowed: give tcp://HOST:PORT")
    if options.distributed_world_size == 1:
        return main(cfg, **kwargs)
    if options.ddp_backend not in ("pytorch_ddp", "c10d", "legacy_ddp", "no_c10d"):
        raise mistake(f"--ddp-backend {options.ddp_backend} doesn't run on a CPU; give --ddp-backend legacy_ddp")
    options.distributed_backend, options.ddp_backend = "gloo", "legacy_ddp"
    logger.info(f"{options.distributed_world_size} processes on the CPU: gloo and legacy_ddp")
    if options.distributed_no_spawn:
        if options.distributed_init_method is None:
            raise mistake(
                "--distributed-no-spawn needs --distributed-init-method tcp://HOST:PORT and each process's "
                "--distributed-rank; or leave it out, and the processes are started"
            )
        utils.distributed_main(0, main, cfg, kwargs)
        return
    if options.distributed_rank:
        raise mistake(
            f"--distributed-rank {options.distributed_rank} is of a process that you start yourself; add "
            "--distributed-no-spawn, or leave it out"
        )
    if options.distributed_init_method is None:
        options.distributed_init_method = f"tcp://localhost:{free_port()}"
    options.distributed_rank = None  # each process takes its own number
    arguments = (functools.partial(errors_raised, main), cfg, {**kwargs, "start_rank": 0})
    torch.multiprocessing.spawn(utils.distributed_main, arguments, options.distributed_world_size)
    options.distributed_rank = 0


def with_plugin(main, parent: int, cfg, **kwargs) -> None:
    """``main``, if need be in a new process: there --user-dir registers nothing, as the package is imported already."""
    from . import fairseq_plugin  # noqa: F401

    if os.getpid() != parent:
        log_as_fairseq(logging.getLogger().level)
    try:
        main(cfg, **kwargs)
    except KeyError as error:
        metric = cfg.checkpoint.best_checkpoint_metric
        if error.args != (metric,):
            raise
        raise mistake(
            f"--best-checkpoint-metric {metric} is nothing that validation measures; the last line of the log with "
            "'valid' has what it measures: loss or ppl, say"
        ) from error


def errors_raised(main, cfg, **kwargs) -> None:
    """``main``, whose one line of a mistake comes to the process that has started this one, instead of from each."""
    try:
        main(cfg, **kwargs)
    except SystemExit as end:
        if end.code:
            raise RuntimeError(end.code) from None
    except Exception as error:
        line = explanation(error)
        if line is None:
            raise
        raise RuntimeError(mistake(line)) from error


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]
