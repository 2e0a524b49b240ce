"""Output layers whose parameters FSDP2 (``torch.distributed.fsdp.fully_shard``) has sharded."""

import sys


def becomes_forward_methods(layer) -> bool:
    """Has FSDP2 gather a layer's parameters for ``nll`` and ``distill`` as for ``forward``. True if they are sharded
    now: the caller calls its method again.

    Raises:
        ValueError: they belong to another module's unit, which gathers them in its own forward alone.
    """
    if not hasattr(getattr(layer, "weight", None), "placements"):  # no DTensor
        return False
    fsdp = sys.modules["torch.distributed.fsdp"]
    if not isinstance(layer, fsdp.FSDPModule):
        raise ValueError("the layer's weight is sharded: call this in the model's forward, or fully_shard(layer), too")
    for method in ("nll", "distill"):
        fsdp.register_fsdp_forward_method(layer, method)
    return True
