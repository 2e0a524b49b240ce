"""The output layers by their names of ``--output-layer``: class, criterion, own options, default bias. Torch only.

A layer from outside the package is a subclass of ``OutputLayer`` under ``@register_output_layer("NAME", OPTIONS)``:
``examples/own_layer`` has one.
"""

import re
from dataclasses import dataclass, field, fields
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Type

from .base import OutputLayer
from .generalized_softmax import GeneralizedSoftmax
from .kerbs import KerBSoftmax
from .sense_allocation import AllocationSettings
from .spherical import SoftmaxBound, SphericalSoftmax, SquaredError, TaylorSoftmax

ANY_LAYER = "output_layer_loss"  # the criterion of layers that have none of their own; it fits every layer


def option(default, help: str, const=None):
    """A dataclass' field that is an option of the command line; ``const`` is its value when given without one."""
    return field(default=default, metadata={"help": help, **({"argparse_const": const} if const else {})})


@dataclass
class Options:
    """An output layer's own options on the command line, each a field made by :func:`option`."""

    def arguments(self, words: int) -> Dict[str, Any]:
        """The layer's arguments for a vocabulary of ``words``, beside sizes, bias and memory."""
        return {its.name: getattr(self, its.name) for its in fields(self)}


@dataclass
class KernelOptions(Options):
    kernels: str = option("lin", "kernel or mixture in the softmax layer: lin, or 3xlin,log, ...")
    kernel_params: Optional[str] = option(None, 'kernel hyper-parameters, such as "log.p=2,rbf.gamma=learned"')
    untied_projections: bool = option(False, "give each component of a mixture a projection matrix of its own")
    latent_projection: Optional[str] = option(
        None,
        "tanh gives a single kernel the tanh(C^T h) that a mixture's components have; linear gives C^T h "
        "to a single kernel or to each component; the option alone means tanh",
        const="tanh",
    )
    output_start: float = option(1.0, "the output matrix starts so many times as large in effect; not a shared one")
    output_step: float = option(1.0, "each update of Adam moves the output matrix this many times as far in effect")

    def arguments(self, words):
        # checkpoints of version 0.2 hold a bool
        latent = {"true": "tanh", "false": None, "none": None, "": None}
        return {
            "kernels": self.kernels, "kernel_params": self.kernel_params, "untied": self.untied_projections,
            "latent_projection": latent.get(str(self.latent_projection).lower(), self.latent_projection),
            "start": self.output_start, "step": self.output_step,
        }  # fmt: skip


@dataclass
class SphericalOptions(Options):
    epsilon: float = option(0.0198, "epsilon of --output-layer spherical")


@dataclass
class KerbsOptions(Options):
    senses: str = option("3x", "sense vectors of --output-layer kerbs: a number, or a multiple of V as in 3x")
    kerbs_kernel: str = option("all", "where its kernel is used: all, positive (cos > 0, as its authors' code), none")
    kerbs_theta: float = option(0.0, "start of each sense's theta; 0 is the inner product")
    kerbs_reallocate_every: int = option(AllocationSettings.every, "updates between reallocations of senses; 0: none")
    kerbs_min_senses: int = option(AllocationSettings.minimum, "the least number of senses of a word")
    kerbs_max_senses: int = option(AllocationSettings.maximum, "the greatest number of senses of a word")
    kerbs_share: float = option(AllocationSettings.share, "the most senses that move at a time, as a part of V")
    kerbs_rate: float = option(AllocationSettings.rate, "beta of the moving averages of Eq. 12 and 13")

    def arguments(self, words):
        if self.kerbs_kernel not in ("all", "positive", "none"):
            raise ValueError(f"--kerbs-kernel {self.kerbs_kernel} is not allowed: choose all, positive or none")
        match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)[xV]|(\d+))", str(self.senses).strip())
        if not match:
            raise ValueError(f"--senses {self.senses} is not allowed: give a number, or a multiple of V as in 3x")
        senses = int(match[2]) if match[2] else int(float(match[1]) * words)
        allocation = None
        if self.kerbs_reallocate_every:
            allocation = AllocationSettings(
                every=self.kerbs_reallocate_every, rate=self.kerbs_rate, share=self.kerbs_share,
                minimum=self.kerbs_min_senses, maximum=self.kerbs_max_senses,
            )  # fmt: skip
        return {
            "senses": senses, "kernel": self.kerbs_kernel != "none", "positive_only": self.kerbs_kernel == "positive",
            "theta": self.kerbs_theta, "allocation": allocation,
        }  # fmt: skip


class Layer(NamedTuple):
    """One row of the table.

    Args:
        default_bias: ``"true"``, ``"false"`` or ``"prior"``; None is true in language models and false in translation.
    """

    name: str
    layer: Type[OutputLayer]
    criterion: str = ANY_LAYER
    options: Type[Options] = Options
    default_bias: Optional[str] = None


LAYERS: Dict[str, Layer] = {}
_followers: List[Callable[[Layer], None]] = []


def register_output_layer(
    name: str, options: Type[Options] = Options, criterion: str = ANY_LAYER, default_bias: Optional[str] = None
) -> Callable[[Type[OutputLayer]], Type[OutputLayer]]:
    """Decorator that makes a subclass of ``OutputLayer`` known as ``--output-layer NAME``.

    fairseq builds it as ``layer(embed_dim=, num_embeddings=, bias=, memory_budget=, **options.arguments(V))``.
    """

    def register(layer: Type[OutputLayer]) -> Type[OutputLayer]:
        layer.name = name
        LAYERS[name] = Layer(name, layer, criterion, options, default_bias)
        for follower in _followers:
            follower(LAYERS[name])
        return layer

    return register


def for_each_layer(follower: Callable[[Layer], None]) -> Callable[[Layer], None]:
    """Decorator of a function that is called with every row of the table, those of later layers too."""
    for layer in LAYERS.values():
        follower(layer)
    _followers.append(follower)
    return follower


register_output_layer("kernels", KernelOptions, "kernel_mixture_cross_entropy")(GeneralizedSoftmax)
register_output_layer("taylor", Options, "log_taylor_softmax", "prior")(TaylorSoftmax)
register_output_layer("spherical", SphericalOptions, "log_spherical_softmax", "prior")(SphericalSoftmax)
register_output_layer("squared-error", Options, "squared_error_of_outputs", "prior")(SquaredError)
register_output_layer("softmax-bound", Options, "softmax_upper_bound", "prior")(SoftmaxBound)
register_output_layer("kerbs", KerbsOptions, "kerbs_cross_entropy", "false")(KerBSoftmax)
