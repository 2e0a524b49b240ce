"""What the layers' tests share: random inputs, gradients by autograd and by differences, and the memory of a pass."""

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode


def inputs(layer, tokens=7, seed=1, dtype=None):
    torch.manual_seed(seed)
    features = torch.randn(tokens, layer.embed_dim, dtype=dtype or layer.weight.dtype)
    return features.requires_grad_(), torch.randint(layer.num_embeddings, (tokens,))


def gradients(value, features, layer):
    """Of the features and all parameters."""
    return torch.autograd.grad(value, [features, *layer.parameters()], retain_graph=True, allow_unused=True)


def gradcheck(layer, features, loss):
    """torch's, of ``loss(layer, features)`` by the features and all parameters."""
    names = [name for name, _ in layer.named_parameters()]

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, features):
            return loss(self.layer, features)

    def function(features, *values):
        return torch.func.functional_call(Loss(), {f"layer.{n}": v for n, v in zip(names, values)}, (features,))

    values = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    return torch.autograd.gradcheck(function, (features, *values))


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
