"""A training's settings: those of a profile ``configs/{lm,mt}/PROFILE.yaml``, which fairseq-hydra-train reads too, and
the options given beside it. Settings are a dict by fairseq's names until fairseq's arguments are made of them."""

from typing import List

from omegaconf import OmegaConf

from .tables import ROOT, Settings

# named architectures: the models themselves, for hydra's use, leave settings open on the command line
ARCHITECTURES = {"kernel_lstm_lm": "kernel_lstm_lm_swb"}
ARCHITECTURES.update({name: f"{name}_iwslt_de_en" for name in ("transformer", "kernel_transformer")})
STOCK_CRITERIONS = {"lm": "cross_entropy", "mt": "label_smoothed_cross_entropy"}
TAKE_BOOLEANS = ("update_epoch_batch_itr", "output_bias")  # settings that take true or false on the command line


def profiles(kind: str) -> List[str]:
    """The names of all profiles for ``lm`` or ``mt``."""
    return sorted(path.stem for path in (ROOT / "configs" / kind).glob("*.yaml"))


def training_settings(kind: str, profile: str, options: Settings) -> Settings:
    """fairseq-train's settings but for the data, the place and the device.

    Args:
        kind: ``lm`` or ``mt``.
        profile: a name in ``configs/KIND``.
        options: of fairseq-train, which win over the profile's; ``stock`` stands for fairseq's own model and
            criterion, ``output_layer`` chooses the criterion. An ``arch`` other than the profile's has its own sizes,
            and the profile's ``output_bias`` alone; another ``lr_scheduler`` comes without the profile's settings of
            its own, and without its ``stop_min_lr``.
    """
    groups = OmegaConf.to_container(OmegaConf.load(ROOT / "configs" / kind / f"{profile}.yaml"))
    model, criterion, layer = groups["model"], groups["criterion"], options.get("output_layer", "kernels")
    if "stock" in options:
        options = {name: value for name, value in options.items() if name != "stock"}
        model["_name"] = model["_name"].removeprefix("kernel_")
        model.pop("output_bias", None)
        criterion["_name"] = STOCK_CRITERIONS[kind]
    elif layer != "kernels":
        from ..output_layers.table import ANY_LAYER, LAYERS

        criterion["_name"] = LAYERS[layer].criterion if layer in LAYERS else ANY_LAYER
        if layer == "kerbs":  # several vectors a word: none to share with the embeddings
            model.pop("share_decoder_input_output_embed", None)
        else:  # a spherical loss has no label smoothing
            criterion.pop("label_smoothing", None)
    arch = options.get("arch", model["_name"])
    if arch not in (model["_name"], ARCHITECTURES.get(model["_name"])):
        ours = ("output_bias",) if str(arch).startswith("kernel_") else ()
        model = groups["model"] = {name: model[name] for name in ("_name", *ours) if name in model}
    model["_name"] = ARCHITECTURES.get(model["_name"], model["_name"])
    if options.get("lr_scheduler", groups["lr_scheduler"]["_name"]) != groups["lr_scheduler"]["_name"]:
        del groups["lr_scheduler"]  # fairseq-train refuses settings of a scheduler that it doesn't use
        groups["optimization"].pop("stop_min_lr", None)  # another one's warm-up begins at 0
    settings: Settings = {}
    for group, values in groups.items():
        for name, value in values.items():
            if value == "???" or value is False and name not in TAKE_BOOLEANS:
                continue
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            own = name if name != "_name" else "arch" if group == "model" else group
            settings[own] = True if value is True and name not in TAKE_BOOLEANS else text
    return {**{name: value for name, value in settings.items() if name not in options}, **options}
