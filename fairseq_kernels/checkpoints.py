"""Checkpoints of fairseq's trainings: written whole or not at all, taken up from the newest whole one, refused in one
line where they are no checkpoints or of another kind of model; a finished training isn't trained further.
:func:`install` puts this into fairseq.
"""

import functools
import logging
import os
import pickle
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Dict, Optional, Tuple
from zipfile import is_zipfile

import torch
from fairseq import checkpoint_utils, file_io
from fairseq.models import FairseqLanguageModel
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.tasks import FairseqTask, LegacyFairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask

from .analysis.model_state import checked, place
from .errors import mistake, passing
from .models.output_layer_config import refuse_options_of_others
from .output_layers.table import ANY_LAYER, LAYERS

logger = logging.getLogger(__name__)
fairseq_load = checkpoint_utils.load_checkpoint
fairseq_save = checkpoint_utils.torch_persistent_save
fairseq_read = checkpoint_utils.load_checkpoint_to_cpu
OWN = re.compile(r"checkpoint(_last|_best|\.best_|\d|_\d+_\d)")  # names that trainings give, and averaging doesn't


def install() -> None:
    checkpoint_utils.torch_persistent_save = save
    checkpoint_utils.load_checkpoint = resume
    checkpoint_utils.load_checkpoint_to_cpu = read
    for task in (FairseqTask, LegacyFairseqTask):
        task.build_model = checked_for_task(task.build_model)
    if file_io.IOPathManager is None:  # else it knows other file systems
        file_io.PathManager.copy = staticmethod(copy)


def write(path: str, fill) -> None:
    """Writes a file beside ``path`` by ``fill(file)``, then renames it.

    Raises:
        SystemExit: one line: it can't be written.
    """
    part = f"{path}.tmp"
    try:
        with open(part, "wb") as file:
            fill(file)
        os.replace(part, path)
    except BaseException as error:
        Path(part).unlink(missing_ok=True)
        # torch has a RuntimeError in the place of what stopped it: a full disk, or Ctrl-C
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        if isinstance(cause, KeyboardInterrupt):
            raise cause from None
        if not isinstance(error, (OSError, RuntimeError)):
            raise
        why = getattr(cause, "strerror", None) or str(error).splitlines()[0]
        raise mistake(
            f"{path} can't be written ({why}); make room, and the same command goes on from the last checkpoint"
        ) from error


def early_stop() -> Dict:
    """What ``--patience`` has counted, which fairseq keeps in attributes of a function of its command."""
    command = sys.modules.get("fairseq_cli.train")
    return vars(command.should_stop_early) if command else {}


def save(obj, filename: str, async_write: bool = False) -> None:
    """In the place of fairseq's, which tries a full disk three times and leaves what fitted, and forgets what
    ``--patience`` has counted."""
    if early_stop():
        obj["extra_state"]["early_stop"] = dict(early_stop())
    if async_write:
        fairseq_save(obj, filename, async_write=True)
    else:
        write(filename, lambda file: torch.save(obj, file))


def copy(source: str, target: str, overwrite: bool = False) -> bool:
    """In the place of fairseq's, which an interruption or a full disk cuts off."""
    with open(source, "rb") as content:
        write(target, lambda file: shutil.copyfileobj(content, file, 1 << 20))
    return True


def read(path: str, arg_overrides=None, load_on_all_ranks: bool = False) -> dict:
    """In the place of fairseq's, which lets all that wrong files raise through."""
    return checked(Path(path), lambda: fairseq_read(path, arg_overrides, load_on_all_ranks))


def checked_for_task(build):
    """A task's ``build_model``, which in fairseq builds any model for any task.

    Raises:
        SystemExit: one line: a translation model where a language model is wanted, or the reverse; a new training's
            options that don't fit its output layer (a checkpoint may have some, which older versions ignored).
    """

    @functools.wraps(build)
    def build_model(task, cfg, from_checkpoint=False):
        if not from_checkpoint:
            refuse_options_of_others(cfg)
        task.from_checkpoint, task.output_layer_name = from_checkpoint, None
        try:
            model = build(task, cfg, from_checkpoint)
        finally:
            task.from_checkpoint = False
        is_language_model = isinstance(model, FairseqLanguageModel)
        for kind, name in ((LanguageModelingTask, "language_modeling"), (TranslationTask, "translation")):
            if isinstance(task, kind) and is_language_model != (kind is LanguageModelingTask):
                what = "a language model" if is_language_model else "no language model"
                raise mistake(
                    f"{type(model).__name__} is {what}, which doesn't fit --task {name}; give another --task, or "
                    "another --arch or checkpoint"
                )
        return model

    return build_model


def written_at(path: Path) -> int:
    """Modification time in nanoseconds; 0 if another process has renamed the file."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def newest(folder: Path) -> Optional[Path]:
    """The whole checkpoint that the training in the folder has written last: ``checkpoint_last``, or one written after
    it that is further on; None if there is none. Damaged ones are renamed, so that the training doesn't overwrite them.

    Raises:
        SystemExit: one line: one can't be read at the moment.
    """
    best: Tuple[int, int] = (0, 0)
    chosen, written = None, 0
    times = {path: written_at(path) for path in folder.glob("*.pt") if OWN.match(path.name) and not path.is_dir()}
    for path in sorted(times, key=lambda path: (not path.name.startswith("checkpoint_last"), -times[path])):
        if times[path] < written:  # the training has gone on since, from this one or from an older one
            continue
        try:
            here = place(path)
        except (SystemExit, LookupError, TypeError) as error:
            cause = error.__cause__
            if isinstance(cause, FileNotFoundError):  # another process of the training has renamed it
                continue
            refused = isinstance(cause, pickle.UnpicklingError) and "GLOBAL" in str(cause) and is_zipfile(path)
            if passing(cause) or refused:  # it may be whole
                raise
            logger.warning(f"{path} is damaged: left as {path.name}.damaged")
            with suppress(OSError):  # another process of the training has done it, or nothing may be written
                path.rename(f"{path}.damaged")
            continue
        if here[1] and here > best:
            best, chosen, written = here, path, times[path]
    return chosen


def finish_copies(cfg, path: Path, suffix: str, state: dict) -> None:
    """fairseq writes a checkpoint under one name, which it copies to others: makes the copies it was stopped before."""
    names = [] if cfg.no_last_checkpoints else ["checkpoint_last"]
    if state.get("val_loss") is not None and state["val_loss"] == state.get("best"):
        names.append("checkpoint_best")
    for name in names:
        target = path.with_name(f"{name}{suffix}.pt")
        if target != path and not (target.is_file() and place(target) >= place(path)):
            copy(str(path), str(target))


def finish_epoch(cfg, trainer, state: dict) -> None:
    """fairseq writes an epoch's checkpoint before ``--lr-scheduler reduce_lr_on_plateau`` has looked at its loss: lets
    it look."""
    iterator, loss = state.get("train_iterator", {}), state.get("val_loss")
    by_loss = isinstance(trainer.lr_scheduler, ReduceLROnPlateauLRSchedule)
    anew = cfg.reset_optimizer or cfg.reset_lr_scheduler or cfg.reset_dataloader
    if by_loss and not anew and loss is not None and not iterator.get("iterations_in_epoch", 1):
        trainer.lr_step(iterator["epoch"] - 1, loss)


def check_layer(layer: Optional[str], criterion: str, average: bool = False) -> None:
    """Warns of a criterion of fairseq's, which takes the model's log-probabilities and nothing else of its layer's.
    ``average``: the parameters are averaged, by ``--store-ema``.

    Raises:
        SystemExit: one line: an option that the output layer can't have.
    """
    lost = {"kerbs": "no sense ever moves", **dict.fromkeys(("squared-error", "softmax-bound"), "its loss isn't used")}
    own = LAYERS[layer].criterion if layer in lost else None
    if own and criterion not in (own, ANY_LAYER):
        logger.warning(f"--output-layer {layer} with --criterion {criterion}: {lost[layer]}; see {own}")
    if layer == "kerbs" and average:
        raise mistake("--store-ema doesn't fit --output-layer kerbs, whose senses move between words; leave it out")


def check_given(option: str, path: str) -> None:
    """
    Raises:
        SystemExit: one line: there is no such file. fairseq would begin anew where it is a folder.
    """
    if not file_io.PathManager.isfile(path):
        what = "is a folder" if os.path.isdir(path) else "not found"
        raise mistake(f"{option} {path} {what}; give a .pt file that fairseq-train wrote")


def choose(cfg, suffix: str) -> Optional[Path]:
    """Writes to ``cfg.restore_file`` where the training goes on from; returns that if it is of the training itself.

    Raises:
        SystemExit: one line: a file that is given isn't there.
    """
    folder = Path(cfg.save_dir)
    if cfg.restore_file != "checkpoint_last.pt":
        check_given("--restore-file", cfg.restore_file.replace(".pt", f"{suffix}.pt"))
    elif any(folder.glob("checkpoint*.pt")):
        path = newest(folder)
        if path is None:
            logger.warning(f"no whole checkpoint in {folder}: the training begins anew")
            if cfg.finetune_from_model:  # fairseq refuses both
                check_given("--finetune-from-model", cfg.finetune_from_model)
            else:
                cfg.restore_file = str(folder / "none.pt")
        elif path.name != f"checkpoint_last{suffix}.pt":
            cfg.restore_file = str(path).removesuffix(f"{suffix}.pt") + ".pt"
            cfg.finetune_from_model = None  # it has begun; fairseq refuses both
        return path
    elif cfg.finetune_from_model:
        check_given("--finetune-from-model", cfg.finetune_from_model)
    return None


def is_finished(cfg, trainer, epoch_itr, state: dict) -> bool:
    limits = trainer.cfg.optimization
    return (
        0 < limits.max_update <= trainer.get_num_updates()
        or 0 < limits.max_epoch < epoch_itr.next_epoch_idx
        or trainer.get_lr() <= limits.stop_min_lr
        or 0 < limits.stop_time_hours * 3600 < state.get("previous_training_time", 0)
        or 0 < cfg.patience <= early_stop().get("num_runs", 0)
    )


def resume(cfg, trainer, **options):
    """In the place of ``checkpoint_utils.load_checkpoint``, which knows ``checkpoint_last.pt`` alone.

    Raises:
        SystemExit: without an error: the training is finished. One line: as :func:`check_layer`, :func:`choose`.
    """
    layer, settings = getattr(trainer.task, "output_layer_name", None), trainer.cfg
    check_layer(layer, settings.criterion._name, settings.ema.store_ema)
    path = choose(cfg, trainer.checkpoint_suffix)
    trainer.get_model().finetuned = path is None and bool(cfg.finetune_from_model)
    state, epoch_itr = fairseq_load(cfg, trainer, **options)
    early_stop().clear()
    if state is not None and not (cfg.reset_optimizer or cfg.reset_meters):
        early_stop().update(state.get("early_stop", {}))
    made = trainer.get_num_updates()
    if state is not None and made:
        finish_epoch(cfg, trainer, state)
        if path is not None and not cfg.no_save and trainer.should_save_checkpoint_on_current_rank:
            finish_copies(cfg, path, trainer.checkpoint_suffix, state)
        logger.info(f"resumes after {made:,} updates from {cfg.restore_file}")
        if is_finished(cfg, trainer, epoch_itr, state):
            further = (
                "to train it further, raise --max-update, --max-epoch, --stop-time-hours or --patience, or lower "
                "--stop-min-lr, whichever ended it"
            )
            if path is None and Path(cfg.save_dir).resolve() not in Path(cfg.restore_file).resolve().parents:
                # another training's: nothing would be written here
                raise mistake(
                    f"--restore-file {cfg.restore_file} is of a training that is finished ({made:,} updates); "
                    f"{further}, or give it as --finetune-from-model for a new training that begins with its model"
                )
            logger.info(f"the training in {cfg.save_dir} is finished ({made:,} updates); {further}")
            raise SystemExit(0)
    return state, epoch_itr
