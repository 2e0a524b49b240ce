"""The output layer's options, the same for every model, and how they become a layer."""

import logging
import os
from argparse import Namespace
from dataclasses import MISSING, dataclass, field, fields
from typing import Optional

import numpy as np
from fairseq.data import data_utils
from omegaconf import OmegaConf
from torch import nn

from ..errors import one_line_errors
from ..output_layers import GeneralizedSoftmax, OutputLayer

logger = logging.getLogger(__name__)


@dataclass
class OutputLayerConfig:
    kernels: str = field(
        default="lin", metadata={"help": "kernel or mixture in the softmax layer: lin, or 3xlin,log, ..."}
    )
    kernel_params: Optional[str] = field(
        default=None, metadata={"help": 'kernel hyper-parameters, such as "log.p=2,rbf.gamma=learned"'}
    )
    untied_projections: bool = field(
        default=False, metadata={"help": "give each component of a mixture a projection matrix of its own"}
    )
    output_bias: str = field(
        default="true",
        metadata={
            "help": "bias of each word in the output layer: true, false, or prior (starts as the words' log prior)",
            "argparse_const": "true",
        },
    )
    output_memory_mib: Optional[int] = field(
        default=None, metadata={"help": "work space of the loss in MiB (default: 32 on the CPU, 512 on CUDA)"}
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


def build_output_layer(cfg, task, dictionary, embed_dim: int, shared: Optional[nn.Embedding] = None) -> OutputLayer:
    """The layer that ``cfg`` describes; with ``shared`` its (first) projection matrix is the embedding's."""
    bias = str(cfg.output_bias).lower()
    if bias not in ("true", "false", "prior"):
        raise SystemExit(f"--output-bias {cfg.output_bias} is not allowed: choose true, false or prior")
    if cfg.output_memory_mib is not None and cfg.output_memory_mib < 1:
        raise SystemExit(f"--output-memory-mib {cfg.output_memory_mib} is not allowed: give 1 or more")
    with one_line_errors():
        layer = GeneralizedSoftmax(
            embed_dim,
            len(dictionary),
            kernels=cfg.kernels,
            bias=bias != "false",
            untied=cfg.untied_projections,
            kernel_params=cfg.kernel_params,
            memory_budget=None if cfg.output_memory_mib is None else cfg.output_memory_mib << 20,
        )
        if bias == "prior":
            layer.set_log_prior(word_counts(task, dictionary))
    if shared is not None:
        if shared.embedding_dim != embed_dim:
            raise SystemExit(
                f"sharing input and output embeddings needs one dimension for both, not {shared.embedding_dim} and "
                f"{embed_dim}; set them equal or don't share"
            )
        layer.weight = shared.weight
    return layer


def word_counts(task, dictionary) -> np.ndarray:
    """Count of each word in the training data, ``</s>`` and ``<unk>`` included; the dictionary's own counts, which
    lack these two, where there is no training data (a trained model's bias comes from its checkpoint)."""
    options = task.cfg or task.args  # the language modelling task has the latter only
    data = str(getattr(options, "data", "") or "").split(os.pathsep)[0]
    source, target = getattr(options, "source_lang", None), getattr(options, "target_lang", None)
    names = [f"train.{source}-{target}.{target}", f"train.{target}-{source}.{target}"] if target else ["train"]
    for name in names:
        dataset = data_utils.load_indexed_dataset(os.path.join(data, name), dictionary)
        if dataset is not None:
            counts = np.zeros(len(dictionary), dtype=np.int64)
            for sentence in range(len(dataset)):
                np.add.at(counts, dataset[sentence].numpy(), 1)
            return counts
    logger.warning("no training data in %r: the bias starts from the dictionary's counts", data)
    return np.asarray(dictionary.count)
