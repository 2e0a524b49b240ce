"""The output layer's options, the same for every model, and how they become a layer."""

import logging
import math
from argparse import Namespace
from dataclasses import MISSING, dataclass, fields, make_dataclass
from pathlib import Path
from typing import Callable, Optional

import numpy as np
import torch
from fairseq.utils import split_paths
from omegaconf import OmegaConf
from torch import nn

from ..errors import mistake, one_line_errors
from ..output_layers import LAYERS, GeneralizedSoftmax, Options, OutputLayer
from ..output_layers.table import option
from ..word_counts import word_counts

logger = logging.getLogger(__name__)


@dataclass
class SharedOptions:
    output_layer: str = option("kernels", f"{', '.join(LAYERS)}; each has a criterion of its own")
    output_init: float = option(1.0, "factor of the output matrix's initial values, also where embeddings share it")
    output_bias: Optional[str] = option(
        None, "bias of each word: true, false, or prior (starts from the words' frequencies); default: prior for the "
        "spherical family, false for kerbs, else true for language models and false for translation", "true"
    )
    output_memory_mib: Optional[int] = option(
        None, "work space in MiB, of the loss (the spherical family's needs none) and of evaluation (default: 192 on "
        "the CPU, 512 on CUDA)",
    )


# and the options of each layer in the table
OutputLayerConfig = make_dataclass(
    "OutputLayerConfig",
    (),
    bases=(SharedOptions, *(layer.options for layer in LAYERS.values() if layer.options is not Options)),
    namespace={"__module__": __name__},
)


def refuse_options_of_others(cfg) -> None:
    """Refuses options of an output layer that isn't the chosen one: they would change nothing. ``cfg`` may be of any
    model."""
    if OmegaConf.is_config(cfg) and "output_layer" not in cfg:
        return
    cfg = with_defaults(cfg, OutputLayerConfig)
    own = {its.name for its in fields(LAYERS[cfg.output_layer].options)} if cfg.output_layer in LAYERS else ()
    for layer in LAYERS.values():
        for its in fields(layer.options):
            if its.name not in own and getattr(cfg, its.name, its.default) not in (its.default, ""):
                raise mistake(
                    f"--{its.name.replace('_', '-')} has no meaning with --output-layer {cfg.output_layer}; leave "
                    f"it out, or give --output-layer {layer.name}"
                )


def with_defaults(cfg, config: type) -> Namespace:
    """The options of ``cfg`` (a DictConfig or Namespace), completed by the defaults of the dataclass ``config``.

    Under a named architecture ``cfg`` has only the options that were given; an old checkpoint's lacks newer ones.
    Unresolved interpolations become None.
    """
    values = OmegaConf.to_container(cfg, resolve=True) if OmegaConf.is_config(cfg) else dict(vars(cfg))
    for field_ in fields(config):
        default = field_.default if field_.default_factory is MISSING else field_.default_factory()
        value = values.setdefault(field_.name, default)
        if isinstance(value, str) and value.startswith("${"):
            values[field_.name] = None
    return Namespace(**values)


def set_defaults(args, **defaults) -> None:
    """Gives a named architecture's options that were not given their values."""
    for name, value in defaults.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


def refuse_unsupported(cfg) -> None:
    """Refuses options of the stock models that kernel models can't have."""
    for name in ("adaptive_softmax_cutoff", "tie_adaptive_weights", "tie_adaptive_proj", "base_layers"):
        value = getattr(cfg, name, None)
        if value:
            given = f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
            why = "" if name == "base_layers" else ": kernels replace the softmax layer"
            raise mistake(f"{given} is not supported here{why}; leave it out")


def build_output_layer(
    cfg, task, embed_dim: int, shared: Optional[nn.Embedding] = None, default_bias: str = "true",
    start: Optional[Callable] = None,
) -> OutputLayer:  # fmt: skip
    """Builds the layer that ``cfg`` describes.

    Args:
        shared: the embedding whose matrix is the (first) projection matrix.
        start: initialises a projection matrix of kernels that isn't shared; default: the layer's own start.
    """
    words = len(task.target_dictionary)
    if cfg.output_layer not in LAYERS:
        raise mistake(f"--output-layer {cfg.output_layer} is not known; choose from {', '.join(LAYERS)}")
    row = LAYERS[cfg.output_layer]
    default_bias = row.default_bias or default_bias
    bias = str(default_bias if cfg.output_bias in (None, "") else cfg.output_bias).lower()
    if bias not in ("true", "false", "prior"):
        raise mistake(f"--output-bias {cfg.output_bias} is not allowed: choose true, false or prior")
    if cfg.output_memory_mib is not None and cfg.output_memory_mib < 1:
        raise mistake(f"--output-memory-mib {cfg.output_memory_mib} is not allowed: give 1 or more")
    budget = None if cfg.output_memory_mib is None else cfg.output_memory_mib << 20
    with one_line_errors():
        options = row.options(**{its.name: getattr(cfg, its.name) for its in fields(row.options)})
        sizes = {"embed_dim": embed_dim, "num_embeddings": words, "memory_budget": budget}
        layer = row.layer(**sizes, bias=bias != "false", **options.arguments(words))
        if bias == "prior" and not getattr(task, "from_checkpoint", False):  # which has the bias
            layer.set_prior(training_counts(task) + 1.0)
    if shared is not None:
        shapes = tuple(shared.weight.shape), layer.weight_shape()
        if shapes[0] != shapes[1]:
            raise mistake(
                f"input embeddings {shapes[0]} and output matrix {shapes[1]} can't be shared: set their dimensions "
                "equal, or leave out --share-decoder-input-output-embed (kerbs has several vectors a word)"
            )
        layer.weight = shared.weight
        if getattr(cfg, "output_start", 1) != 1:
            raise mistake(
                f"--output-start {cfg.output_start} doesn't fit shared embeddings, which keep their start: in effect "
                "the output matrix starts --output-step times as large as they are; leave it out"
            )
    if start is not None and isinstance(layer, GeneralizedSoftmax):
        for matrix in layer.matrices():
            if shared is None or matrix is not shared.weight:
                start(matrix)
                with torch.no_grad():
                    matrix *= layer.start / layer.step
    if cfg.output_init != 1:
        if not 0 < cfg.output_init < math.inf:
            raise mistake(f"--output-init {cfg.output_init} is not allowed: give a number above 0")
        with torch.no_grad():
            for matrix in (layer.weight, *getattr(layer, "untied_weights", ())):
                matrix *= cfg.output_init
    task.output_layer_name = layer.name  # which the criterion, built after the model, looks at
    return layer


def training_counts(task) -> np.ndarray:
    """Count of each word in the training data, ``</s>`` and ``<unk>`` included; the dictionary's own counts, which
    lack these two, where there is no training data."""
    dictionary = task.target_dictionary
    options = task.cfg or task.args  # the language modelling task has the latter only
    data = str(getattr(options, "data", "") or "")
    source, target = getattr(options, "source_lang", None), getattr(options, "target_lang", None)
    names = [f"train.{source}-{target}.{target}", f"train.{target}-{source}.{target}"] if target else ["train"]
    for name in names:
        counts = [word_counts(Path(part, name), dictionary) for part in split_paths(data)]  # one for each epoch
        if counts and not any(of_part is None for of_part in counts):
            return sum(counts)
    logger.warning("no %s.idx in %r: the bias starts from the dictionary's counts", names[0], data)
    return np.asarray(dictionary.count)
