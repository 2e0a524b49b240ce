"""Checkpoints are written whole or not at all; a training goes on from the newest whole one, and not past its end."""

import logging
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Dict, Optional

import torch
from fairseq import checkpoint_utils, file_io
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

from ..checkpoint import Damaged, newest, place, write
from ..errors import mistake
from . import replaces

logger = logging.getLogger(__name__)
FURTHER = "to go on, change what ended it: --max-update, --max-epoch, --stop-time-hours, --patience or --stop-min-lr"


def early_stop() -> Dict:
    """The counts of ``--patience``, which fairseq keeps in attributes of a function of its command."""
    command = sys.modules.get("fairseq_cli.train")
    return vars(command.should_stop_early) if command else {}


@replaces(checkpoint_utils, "torch_persistent_save", issue=3531)
def save(theirs, obj, filename: str, async_write: bool = False) -> None:
    """fairseq tries three times to write to a full disk and leaves a partial file. It does not save --patience's count.

    Lost: the error did not say why. An interrupted training stopped later than an uninterrupted one.
    """
    if early_stop():
        obj["extra_state"]["early_stop"] = dict(early_stop())
    write(filename, lambda file: torch.save(obj, file))


@replaces(file_io.PathManager, "copy")
def copy(theirs, source: str, target: str, overwrite: bool = False) -> bool:
    """fairseq copies over the older checkpoint.

    Lost: an interruption or a full disk destroyed checkpoint_last.pt and checkpoint_best.pt.
    """
    with open(source, "rb") as content:
        write(target, lambda file: shutil.copyfileobj(content, file, 1 << 20))
    return True


def choose(cfg, suffix: str) -> Optional[Path]:
    """Sets ``cfg.restore_file`` to the checkpoint to resume from; returns it if this training wrote it, else None."""
    is_given = cfg.restore_file != "checkpoint_last.pt"
    path = None if is_given else newest(Path(cfg.save_dir))
    if path is None:
        file = cfg.restore_file.replace(".pt", f"{suffix}.pt") if is_given else cfg.finetune_from_model
        if file and not file_io.PathManager.isfile(file):
            option = "--restore-file" if is_given else "--finetune-from-model"
            raise mistake(f"{option} {file} is not found, or no file; give a .pt file that fairseq-train wrote")
    elif path.name != f"checkpoint_last{suffix}.pt":
        cfg.restore_file = str(path).removesuffix(f"{suffix}.pt") + ".pt"
        cfg.finetune_from_model = None  # it has begun; fairseq refuses both
    return path


def finish_copies(cfg, path: Path, suffix: str, state: dict) -> None:
    """fairseq writes a checkpoint under one name, which it copies to others: makes the copies it was stopped before."""
    names = [] if cfg.no_last_checkpoints else ["checkpoint_last"]
    if state.get("val_loss") is not None and state["val_loss"] == state.get("best"):
        names.append("checkpoint_best")
    for target in (path.with_name(f"{name}{suffix}.pt") for name in names):
        with suppress(Damaged):
            if target.is_file() and place(target) >= place(path):
                continue
        file_io.PathManager.copy(str(path), str(target))


def finish_epoch(cfg, trainer, state: dict) -> None:
    """fairseq writes an epoch's checkpoint before ``--lr-scheduler reduce_lr_on_plateau`` has looked at its loss: lets
    it look."""
    iterator, loss = state["train_iterator"], state.get("val_loss")
    by_loss = isinstance(trainer.lr_scheduler, ReduceLROnPlateauLRSchedule)
    anew = cfg.reset_optimizer or cfg.reset_lr_scheduler or cfg.reset_dataloader
    if by_loss and not anew and loss is not None and not iterator.get("iterations_in_epoch", 1):
        trainer.lr_step(iterator["epoch"] - 1, loss)


def is_finished(cfg, trainer, epoch_itr, state: dict) -> bool:
    limits = trainer.cfg.optimization
    return (
        0 < limits.max_update <= trainer.get_num_updates()
        or 0 < limits.max_epoch < epoch_itr.next_epoch_idx
        or trainer.get_lr() <= limits.stop_min_lr
        or 0 < limits.stop_time_hours * 3600 < state.get("previous_training_time", 0)
        or 0 < cfg.patience <= early_stop().get("num_runs", 0)
    )


@replaces(checkpoint_utils, "load_checkpoint", issue=3531)
def resume(theirs, cfg, trainer, **options):
    """fairseq looks for checkpoint_last.pt only. It starts from scratch if a given file is missing, and continues a
    finished training. It keeps best loss and --patience from an earlier training in the same process.

    Lost: hours of training were lost, and its best checkpoint.
    """
    early_stop().clear()
    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    path = choose(cfg, trainer.checkpoint_suffix)
    trainer.get_model().finetuned = path is None and bool(cfg.finetune_from_model)
    state, epoch_itr = theirs(cfg, trainer, **options)
    if state is not None and not (cfg.reset_optimizer or cfg.reset_meters):
        early_stop().update(state.get("early_stop", {}))
    made = trainer.get_num_updates()
    if state is None or not made:
        return state, epoch_itr
    finish_epoch(cfg, trainer, state)
    if path is not None and not cfg.no_save and trainer.should_save_checkpoint_on_current_rank:
        finish_copies(cfg, path, trainer.checkpoint_suffix, state)
    logger.info(f"resumes after {made:,} updates from {cfg.restore_file}")
    if is_finished(cfg, trainer, epoch_itr, state):
        if path is None and Path(cfg.save_dir).resolve() not in Path(cfg.restore_file).resolve().parents:
            raise mistake(  # nothing would be written here
                f"--restore-file {cfg.restore_file} is of a training that is finished ({made:,} updates); {FURTHER}, "
                "or give it as --finetune-from-model for a new training that begins with its model"
            )
        logger.info(f"the training in {cfg.save_dir} is finished ({made:,} updates); {FURTHER}")
        raise SystemExit(0)
    return state, epoch_itr
