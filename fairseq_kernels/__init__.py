"""Kernel functions in the softmax layer (Gao et al. 2019), as PyTorch layers and as a fairseq plugin.

``import fairseq_kernels`` alone loads nothing; ``from fairseq_kernels import GeneralizedSoftmax`` loads torch. If
fairseq is loaded already, as under its ``--user-dir``, models, criterions and optimizer are registered with it.
``import fairseq_kernels.fairseq_plugin`` registers them in any case.
"""

import importlib
import sys

__version__ = "0.4.0"
_MODULES = {
    "kernels": ("KERNELS", "Hyperparameter", "Kernel", "register_kernel"),
    "output_layers": (
        "AllocationSettings",
        "FactoredSGD",
        "GeneralizedSoftmax",
        "KerBSoftmax",
        "Options",
        "OutputLayer",
        "SoftmaxBound",
        "SphericalSoftmax",
        "SquaredError",
        "TaylorSoftmax",
        "factored",
        "option",
        "register_output_layer",
    ),
    "prior": ("word_prior",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str):
    """Loads a public name's module when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})


if sys.modules.get("fairseq") is not None:
    from . import fairseq_plugin  # noqa: F401
