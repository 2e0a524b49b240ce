"""The criterions' registered names, one for each output layer; the losses are the layers'."""

from fairseq.criterions import register_criterion

from ..layer_names import CRITERIONS
from .output_layer_criterion import OutputLayerCriterion, OutputLayerCriterionConfig


def registered(layer_name: str):
    """The criterion of an output layer, registered under its name in ``CRITERIONS``."""
    name = CRITERIONS[layer_name]
    class_name = "".join(part.capitalize() for part in name.split("_"))
    criterion = type(class_name, (OutputLayerCriterion,), {"layer_name": layer_name, "__module__": __name__})
    return register_criterion(name, dataclass=OutputLayerCriterionConfig)(criterion)


KernelMixtureCrossEntropy = registered("kernels")  # with Gao et al. (2019), Eq. 14
LogTaylorSoftmax = registered("taylor")  # de Brebisson & Vincent (2016), section 3.2
LogSphericalSoftmax = registered("spherical")  # section 3.1
SquaredErrorOfOutputs = registered("squared-error")  # section 1
SoftmaxUpperBound = registered("softmax-bound")  # section 2
KerbsCrossEntropy = registered("kerbs")  # Miao et al. (2019), Eq. 11
