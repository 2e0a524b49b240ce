"""The output layer's options, the same for every model, and how they become a layer."""

import logging
import math
import os
import re
from argparse import Namespace
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple, Type

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import nn

from ..errors import mistake, one_line_errors
from ..fused.matrix_products import onednn_is_faster
from ..kernels.spec import refuse_unused_parameters
from ..layer_names import SPHERICAL
from ..output_layers import (
    AllocationSettings,
    GeneralizedSoftmax,
    KerBSoftmax,
    OutputLayer,
    SoftmaxBound,
    SphericalSoftmax,
    SquaredError,
    TaylorSoftmax,
)
from ..word_counts import word_counts

logger = logging.getLogger(__name__)


def kernel_options(cfg, words: int) -> Dict:
    refuse_unused_parameters(cfg.kernels, cfg.kernel_params)
    return {
        "kernels": cfg.kernels,
        "kernel_params": cfg.kernel_params,
        "untied": cfg.untied_projections,
        "latent_projection": latent_projection(cfg.latent_projection),
    }


def latent_projection(value) -> Optional[str]:
    """The layer's argument; checkpoints of version 0.2 hold a bool."""
    value = {"true": "tanh", "false": None, "none": None, "": None}.get(str(value).lower(), value)
    if value not in (None, "tanh", "linear"):
        raise ValueError(f"--latent-projection {value} is not allowed: choose tanh or linear")
    return value


def kerbs_options(cfg, words: int) -> Dict:
    if cfg.kerbs_kernel not in ("all", "positive", "none"):
        raise ValueError(f"--kerbs-kernel {cfg.kerbs_kernel} is not allowed: choose all, positive or none")
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)[xV]|(\d+))", str(cfg.senses).strip())
    if not match:
        raise ValueError(f"--senses {cfg.senses} is not allowed: give a number, or a multiple of V as in 3x")
    senses = int(match[2]) if match[2] else int(float(match[1]) * words)
    if senses < words:
        raise ValueError(
            f"--senses {cfg.senses} is not allowed: it is of all {words} words together; give {words} or more, or a "
            "multiple of V as in 3x"
        )
    allocation = None
    if cfg.kerbs_reallocate_every:
        allocation = AllocationSettings(
            every=cfg.kerbs_reallocate_every,
            rate=cfg.kerbs_rate,
            minimum=cfg.kerbs_min_senses,
            maximum=cfg.kerbs_max_senses,
            share=cfg.kerbs_share,
        )
    return {
        "senses": senses,
        "kernel": cfg.kerbs_kernel != "none",
        "positive_only": cfg.kerbs_kernel == "positive",
        "theta": cfg.kerbs_theta,
        "allocation": allocation,
    }


# of each name in layer_names: the class, and its arguments beside sizes, bias and memory
OUTPUT_LAYERS: Dict[str, Tuple[Type[OutputLayer], Callable[[Namespace, int], Dict]]] = {
    "kernels": (GeneralizedSoftmax, kernel_options),
    "taylor": (TaylorSoftmax, lambda cfg, words: {}),
    "spherical": (SphericalSoftmax, lambda cfg, words: {"epsilon": cfg.epsilon}),
    "squared-error": (SquaredError, lambda cfg, words: {}),
    "softmax-bound": (SoftmaxBound, lambda cfg, words: {}),
    "kerbs": (KerBSoftmax, kerbs_options),
}
# the bias of each when nothing is said; other layers have one in language models alone
DEFAULT_BIAS = {**dict.fromkeys(SPHERICAL, "prior"), "kerbs": "false"}


@dataclass
class OutputLayerConfig:
    output_layer: str = field(
        default="kernels",
        metadata={"help": f"{', '.join(OUTPUT_LAYERS)}; each has a criterion of its own"},
    )
    epsilon: float = field(default=0.0198, metadata={"help": "epsilon of --output-layer spherical"})
    senses: str = field(
        default="3x", metadata={"help": "sense vectors of --output-layer kerbs: a number, or a multiple of V as in 3x"}
    )
    kerbs_kernel: str = field(
        default="all",
        metadata={"help": "where KerBS' kernel is used: all, positive (where cos > 0, as its authors' code), or none"},
    )
    kerbs_theta: float = field(default=0.0, metadata={"help": "start of each sense's theta; 0 is the inner product"})
    kerbs_reallocate_every: int = field(
        default=AllocationSettings.every,
        metadata={"help": "updates between two reallocations of senses; 0 leaves them where they are"},
    )
    kerbs_min_senses: int = field(default=AllocationSettings.minimum, metadata={"help": "senses that a word keeps"})
    kerbs_max_senses: int = field(default=AllocationSettings.maximum, metadata={"help": "senses that a word gets to"})
    kerbs_share: float = field(
        default=AllocationSettings.share,
        metadata={"help": "the most senses that move at a time, as a part of the vocabulary"},
    )
    kerbs_rate: float = field(
        default=AllocationSettings.rate, metadata={"help": "beta of the moving averages of Eq. 12 and 13"}
    )
    kernels: str = field(
        default="lin", metadata={"help": "kernel or mixture in the softmax layer: lin, or 3xlin,log, ..."}
    )
    kernel_params: Optional[str] = field(
        default=None, metadata={"help": 'kernel hyper-parameters, such as "log.p=2,rbf.gamma=learned"'}
    )
    untied_projections: bool = field(
        default=False, metadata={"help": "give each component of a mixture a projection matrix of its own"}
    )
    latent_projection: Optional[str] = field(
        default=None,
        metadata={
            "help": "tanh gives a single kernel the tanh(C^T h) that a mixture's components have; linear gives C^T h "
            "to a single kernel or to each component; the option alone means tanh",
            "argparse_const": "tanh",
        },
    )
    output_init: float = field(
        default=1.0,
        metadata={"help": "start of the output matrix, times this number; of embeddings too that share it"},
    )
    output_bias: Optional[str] = field(
        default=None,
        metadata={
            "help": "bias of each word in the output layer: true, false, or prior (starts as the words' frequencies "
            "ask for); default: prior for the spherical family, false for kerbs, else true for language models and "
            "false for translation",
            "argparse_const": "true",
        },
    )
    output_memory_mib: Optional[int] = field(
        default=None,
        metadata={
            "help": "work space in MiB, of the loss (the spherical family's needs none) and of evaluation (default: "
            "192 on the CPU, 512 on CUDA)"
        },
    )


# the options that belong to one output layer
OWN_OPTIONS = {
    "kernels": ("kernels", "kernel_params", "untied_projections", "latent_projection"),
    "spherical": ("epsilon",),
    "kerbs": ("senses", *(option.name for option in fields(OutputLayerConfig) if option.name.startswith("kerbs_"))),
}


def refuse_options_of_others(cfg) -> None:
    """Options of an output layer that isn't the chosen one would change nothing. ``cfg`` may be of any model."""
    if OmegaConf.is_config(cfg) and "output_layer" not in cfg:
        return
    cfg = with_defaults(cfg, OutputLayerConfig)
    defaults = {option.name: option.default for option in fields(OutputLayerConfig)}
    for layer, names in OWN_OPTIONS.items():
        for name in names if layer != cfg.output_layer else ():
            if getattr(cfg, name) not in (defaults[name], ""):
                raise mistake(
                    f"--{name.replace('_', '-')} has no meaning with --output-layer {cfg.output_layer}; leave it out, "
                    f"or give --output-layer {layer}"
                )


def with_defaults(cfg, config: type) -> Namespace:
    """The options of ``cfg`` (a DictConfig or Namespace), those it lacks as the dataclass ``config`` has them.

    Under a named architecture fairseq hands over what it was given; and checkpoints may be older than an option.
    Interpolations that nothing resolves become None.
    """
    values = OmegaConf.to_container(cfg, resolve=True) if OmegaConf.is_config(cfg) else dict(vars(cfg))
    for field_ in fields(config):
        default = field_.default if field_.default_factory is MISSING else field_.default_factory()
        value = values.setdefault(field_.name, default)
        if isinstance(value, str) and value.startswith("${"):
            values[field_.name] = None
    return Namespace(**values)


def refuse_unsupported(cfg) -> None:
    """Options of the stock models that kernel models can't have. A model of one's own may lack them."""
    for name in ("adaptive_softmax_cutoff", "tie_adaptive_weights", "tie_adaptive_proj", "base_layers"):
        value = getattr(cfg, name, None)
        if value:
            given = f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
            why = "" if name == "base_layers" else ": kernels replace the softmax layer"
            raise mistake(f"{given} is not supported here{why}; leave it out")


def build_output_layer(
    cfg, task, dictionary, embed_dim: int, shared: Optional[nn.Embedding] = None, default_bias: str = "true"
) -> OutputLayer:
    """The layer that ``cfg`` describes; with ``shared`` its (first) projection matrix is the embedding's."""
    refuse_unsupported(cfg)
    words = getattr(getattr(task, "args", None), "output_dictionary_size", -1)
    if words >= 0:
        raise mistake(f"--output-dictionary-size {words} is not supported: all words are predicted; leave it out")
    if cfg.output_layer not in OUTPUT_LAYERS:
        raise mistake(f"--output-layer {cfg.output_layer} is not known; choose from {', '.join(OUTPUT_LAYERS)}")
    default_bias = DEFAULT_BIAS.get(cfg.output_layer, default_bias)
    bias = str(default_bias if cfg.output_bias in (None, "") else cfg.output_bias).lower()
    if bias not in ("true", "false", "prior"):
        raise mistake(f"--output-bias {cfg.output_bias} is not allowed: choose true, false or prior")
    if cfg.output_memory_mib is not None and cfg.output_memory_mib < 1:
        raise mistake(f"--output-memory-mib {cfg.output_memory_mib} is not allowed: give 1 or more")
    budget = None if cfg.output_memory_mib is None else cfg.output_memory_mib << 20
    with one_line_errors():
        onednn_is_faster()  # else a wrong FAIRSEQ_KERNELS_ONEDNN is noticed in training
        layer_class, options = OUTPUT_LAYERS[cfg.output_layer]
        sizes = {"embed_dim": embed_dim, "num_embeddings": len(dictionary), "memory_budget": budget}
        layer = layer_class(**sizes, bias=bias != "false", **options(cfg, len(dictionary)))
        if bias == "prior" and not getattr(task, "from_checkpoint", False):  # which has the bias
            layer.set_log_prior(training_counts(task, dictionary))
    if shared is not None:
        if cfg.output_layer == "kerbs":
            raise mistake(
                "--share-decoder-input-output-embed doesn't fit --output-layer kerbs, which has several vectors a "
                "word; leave it out"
            )
        if shared.embedding_dim != embed_dim:
            raise mistake(
                f"sharing input and output embeddings needs one dimension for both, not {shared.embedding_dim} and "
                f"{embed_dim}; set them equal or don't share"
            )
        layer.weight = shared.weight
    if cfg.output_init != 1:
        if not 0 < cfg.output_init < math.inf:
            raise mistake(f"--output-init {cfg.output_init} is not allowed: give a number above 0")
        with torch.no_grad():
            for matrix in (layer.weight, *getattr(layer, "untied_weights", ())):
                matrix *= cfg.output_init
    task.output_layer_name = layer.name  # which the criterion, built after the model, looks at
    return layer


def training_counts(task, dictionary) -> np.ndarray:
    """Count of each word in the training data, ``</s>`` and ``<unk>`` included; the dictionary's own counts, which
    lack these two, where there is no training data."""
    options = task.cfg or task.args  # the language modelling task has the latter only
    data = str(getattr(options, "data", "") or "").split(os.pathsep)[0]
    source, target = getattr(options, "source_lang", None), getattr(options, "target_lang", None)
    names = [f"train.{source}-{target}.{target}", f"train.{target}-{source}.{target}"] if target else ["train"]
    for name in names:
        counts = word_counts(Path(data, name), dictionary)
        if counts is not None:
            return counts
    logger.warning("no %s.idx in %r: the bias starts from the dictionary's counts", names[0], data)
    return np.asarray(dictionary.count)
