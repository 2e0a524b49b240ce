"""What the layers' tests share: the layers, random inputs, gradients, and the memory of a pass."""

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_kernels import AllocationSettings, GeneralizedSoftmax, KerBSoftmax, SphericalSoftmax, TaylorSoftmax
from fairseq_kernels.output_layers.spherical import SoftmaxBound, SquaredError

FAMILY = {layer.name: layer for layer in (TaylorSoftmax, SphericalSoftmax, SquaredError, SoftmaxBound)}
LAYERS = {
    "lin": lambda d=6, v=9, **own: GeneralizedSoftmax(d, v, **own),
    "mixture": lambda d=6, v=9, **own: GeneralizedSoftmax(d, v, "2xlin,log", kernel_params="log.gamma=learned", **own),
    "untied": lambda d=6, v=9, **own: GeneralizedSoftmax(d, v, "lin,ssg", untied=True, **own),
    "taylor": lambda d=6, v=9, **own: TaylorSoftmax(d, v, **own),
    "spherical": lambda d=6, v=9, **own: SphericalSoftmax(d, v, **own),
    "kerbs": lambda d=6, v=9, **own: KerBSoftmax(d, v, bias=True, theta=0.5, **own),
    "allocation": lambda d=6, v=9, **own: KerBSoftmax(d, v, bias=True, allocation=AllocationSettings(), **own),
}


def randomised(layer):
    """The layer in float64 with random parameters, a learned hyper-parameter near its start."""
    layer = layer.double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += torch.randn_like(parameter) * (0.6 if parameter.dim() else 0.05)
    return layer


def tokens(number=7, dim=6, words=9):
    torch.manual_seed(1)
    features = torch.randn(number, dim, dtype=torch.float64, requires_grad=True)
    return features, torch.randint(words, (number,))


def gradients(value, *inputs):
    """Of the inputs that are used; zeros for others. The graph stays."""
    found = torch.autograd.grad(value, inputs, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs)]


def leaves(*tensors):
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


class OnCuda(torch.Tensor):
    """A CPU tensor that says it is on a GPU."""

    is_cuda = True


class Memory(TorchDispatchMode):
    """Records the largest tensor that an operation makes, and the most bytes alive after one, those of the ``given``
    tensors left out."""

    def __init__(self, *given):
        super().__init__()
        self.given = {StorageWeakRef(tensor.untyped_storage()).cdata for tensor in given}
        self.alive, self.peak = {}, 0
        self.numel, self.operation = 0, None

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                storage = StorageWeakRef(tensor.untyped_storage())
                if storage.cdata not in self.given:
                    self.alive[storage.cdata] = storage, tensor.untyped_storage().nbytes()
                if tensor.numel() > self.numel:
                    self.numel, self.operation = tensor.numel(), str(function)
        self.alive = {key: entry for key, entry in self.alive.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return result
