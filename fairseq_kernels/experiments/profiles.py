"""The profiles ``configs/{lm,mt}/PROFILE.yaml``, which fairseq-hydra-train reads too, as fairseq-train's arguments."""

import shlex
from argparse import Namespace
from typing import Dict, List, Optional, Sequence

import yaml

from .tables import checkout

NAMES = {"task": "task", "model": "arch", "criterion": "criterion", "optimizer": "optimizer"}
NAMES["lr_scheduler"] = "lr-scheduler"  # a group's _name as fairseq-train's option
# named architectures: the models themselves, for hydra's use, leave settings open on the command line
ARCHITECTURES = {"kernel_lstm_lm": "kernel_lstm_lm_swb"}
ARCHITECTURES.update({name: f"{name}_iwslt_de_en" for name in ("transformer", "kernel_transformer")})
STOCK_CRITERIONS = {"lm": "cross_entropy", "mt": "label_smoothed_cross_entropy"}
TAKE_BOOLEANS = ("update_epoch_batch_itr", "output_bias")  # settings that take true or false on the command line
# arguments that change nothing of what is trained
INDIFFERENT = (
    *("data", "save_dir", "user_dir", "cpu", "log_format", "log_interval", "no_epoch_checkpoints"),
    *("keep_interval_updates", "no_progress_bar", "no_seed_provided", "arch"),
)


def profiles(kind: str) -> List[str]:
    """The names of all for ``lm`` or ``mt``."""
    return sorted(path.stem for path in checkout("configs", kind).glob("*.yaml"))


def load_profile(kind: str, name: str) -> Dict[str, Dict]:
    """Settings by hydra group.

    Raises:
        ValueError: there is no such profile, or it isn't one.
    """
    if name not in profiles(kind):
        raise ValueError(f"--profile {name} is not known; choose from {', '.join(profiles(kind))}")
    path = checkout("configs", kind, f"{name}.yaml")
    try:
        groups = yaml.safe_load(path.read_text(encoding="utf-8"))
        for group in NAMES:
            groups[group]["_name"]
    except (yaml.YAMLError, LookupError, TypeError) as error:
        raise ValueError(
            f"{path} is no profile: {' '.join(str(error).split())}; it needs {', '.join(NAMES)} with a _name each"
        ) from None
    return groups


def option_value(options: Sequence[str], name: str) -> Optional[str]:
    """The value of an option among fairseq's arguments (``--name value`` or ``--name=value``), of the last if there are
    several; None if there is none."""
    words = [f"{name}={value}" if word == name else word for word, value in zip(options, options[1:])] + [*options[-1:]]
    values = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return values[-1] if values else None


def fairseq_arguments(kind: str, profile: str, options: Sequence[str]) -> List[str]:
    """fairseq-train's arguments but for the data and ``--save-dir``.

    Args:
        kind: ``lm`` or ``mt``.
        profile: a name in ``configs/KIND``.
        options: of fairseq-train, which win over the profile's; ``--stock`` stands for fairseq's own model and
            criterion, ``--output-layer`` chooses the criterion. An ``--arch`` other than the profile's has its own
            sizes, and the profile's ``--output-bias`` alone; another ``--lr-scheduler`` comes without the
            profile's settings of its own, and without its ``--stop-min-lr``.

    Raises:
        ValueError: there is no such profile.
    """
    groups = load_profile(kind, profile)
    model, criterion = groups["model"], groups["criterion"]
    layer = option_value(options, "--output-layer") or "kernels"
    if "--stock" in options:
        options = [word for word in options if word != "--stock"]
        model["_name"] = model["_name"].removeprefix("kernel_")
        model.pop("output_bias", None)
        criterion["_name"] = STOCK_CRITERIONS[kind]
    elif layer != "kernels":
        from ..output_layers.table import ANY_LAYER, LAYERS  # loads torch, which most rows do without

        criterion["_name"] = LAYERS[layer].criterion if layer in LAYERS else ANY_LAYER
        if layer == "kerbs":  # several vectors a word: none to share with the embeddings
            model.pop("share_decoder_input_output_embed", None)
        else:  # a spherical loss has no label smoothing
            criterion.pop("label_smoothing", None)
    arch = option_value(options, "--arch") or model["_name"]
    if arch not in (model["_name"], ARCHITECTURES.get(model["_name"])):
        ours = ("output_bias",) if arch.startswith("kernel_") else ()
        model = groups["model"] = {name: model[name] for name in ("_name", *ours) if name in model}
    model["_name"] = ARCHITECTURES.get(model["_name"], model["_name"])
    if option_value(options, "--lr-scheduler") not in (None, groups["lr_scheduler"]["_name"]):
        del groups["lr_scheduler"]  # fairseq-train refuses settings of a scheduler that it doesn't use
        groups["optimization"].pop("stop_min_lr", None)  # another one's warm-up begins at 0
    words = []
    for group, settings in groups.items():
        for name, value in settings.items():
            if value == "???" or value is False and name not in TAKE_BOOLEANS:
                continue
            flag = "--" + (NAMES[group] if name == "_name" else name.replace("_", "-"))
            value = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [flag] if value == "True" and name not in TAKE_BOOLEANS else [flag, value]
    return [*words, *options]


def parsed(arguments: Sequence[str]) -> Namespace:
    """What fairseq-train makes of its arguments, defaults included.

    Raises:
        SystemExit: one line: it refuses them.
    """
    from fairseq import options

    from .. import fairseq_plugin  # noqa: F401  (registers the models)

    return options.parse_args_and_arch(options.get_training_parser(), list(arguments))


def understood(arguments: str) -> Dict:
    """What fairseq-train understands by its arguments, but for those that change no training; empty where it refuses
    them."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    # the fused AdamW makes adam's steps
    words = ["DATA", *("adam" if word == "fused_adamw" else word for word in shlex.split(arguments))]
    try:
        values = vars(parsed(words))
    except (ValueError, SystemExit, LookupError, RuntimeError):  # fairseq raises all kinds
        return {}
    model = ARCH_MODEL_REGISTRY[values["arch"]].__name__
    return {**{name: str(value) for name, value in values.items() if name not in INDIFFERENT}, "model": model}


def difference(known: str, wanted: str) -> str:
    """How two lists of fairseq-train's arguments differ in what they mean, in words; "" if they don't."""
    if known == wanted:
        return ""
    there, here = understood(known), understood(wanted)
    if not there:
        return f"arguments that fairseq-train refuses now: {known}"
    names = [name for name in sorted({*there, *here}) if there.get(name) != here.get(name)]
    each = [f"--{name.replace('_', '-')} {there.get(name)} in the place of {here.get(name)}" for name in names]
    return ", ".join(each)
