"""fairseq criterions: one that fits every output layer, and a name for each layer that has its own."""

from fairseq.criterions import CRITERION_REGISTRY, register_criterion

from ..output_layers.table import ANY_LAYER, Layer, for_each_layer
from .output_layer_criterion import OutputLayerCriterion, OutputLayerCriterionConfig

register_criterion(ANY_LAYER, dataclass=OutputLayerCriterionConfig)(OutputLayerCriterion)


@for_each_layer
def register(layer: Layer) -> None:
    """Registers the criterion that a layer names, unless it is registered already."""
    if layer.criterion not in CRITERION_REGISTRY:
        class_name = "".join(part.capitalize() for part in layer.criterion.split("_"))
        own = type(class_name, (OutputLayerCriterion,), {"layer_name": layer.name, "__module__": __name__})
        register_criterion(layer.criterion, dataclass=OutputLayerCriterionConfig)(own)
