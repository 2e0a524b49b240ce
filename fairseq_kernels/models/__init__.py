"""fairseq models whose output layer is the package's."""

import sys
from dataclasses import make_dataclass

from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from hydra.core.config_store import ConfigStore

from ..output_layers.table import Layer, for_each_layer
from .kernel_lstm_lm import KernelLSTMLanguageModel
from .kernel_model import KernelModel
from .kernel_transformer import KernelTransformer
from .kernel_transformer_lm import KernelTransformerLanguageModel

__all__ = ["KernelLSTMLanguageModel", "KernelTransformer", "KernelTransformerLanguageModel"]


@for_each_layer
def add_options(layer: Layer) -> None:
    """Gives the models the options of an output layer that was registered after them."""
    for name, config in list(MODEL_DATACLASS_REGISTRY.items()):
        model = MODEL_REGISTRY[name]
        if issubclass(model, KernelModel) and not issubclass(config, layer.options):
            place = {"__module__": config.__module__}
            config = make_dataclass(config.__name__, (), bases=(config, layer.options), namespace=place)
            setattr(sys.modules[config.__module__], config.__name__, config)  # where pickle looks for it
            setattr(model, "__dataclass", config)
            MODEL_DATACLASS_REGISTRY[name] = config
            ConfigStore.instance().store(name=name, group="model", node=config(_name=name), provider="fairseq")
