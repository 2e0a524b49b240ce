"""A kernel's scores in a chunk: by its fused Function, or by its formula under autograd."""

from typing import List, Sequence

from torch import Tensor

from .inner_product import Scale
from .mixture_nll import Scores


def fused_scores(
    kernel, products: Sequence[Tensor], words: Sequence[Tensor], contexts: Sequence[Tensor], token_factor: List[Tensor]
) -> Scores:
    """S times the scale, as ``kernel.scores``, with what the loss may do to it (the buffer rule).

    Args:
        token_factor: the list in which the loss may leave a factor where S is a product as it is.
    """
    before = [times_written(product) for product in products]
    if kernel.fused is None:
        similarity = kernel.formula(products, words, contexts)
    else:
        similarity = kernel.fused.apply(*kernel.fused_values(), *products, *words, *contexts)
    # as it is: one that the formula has overwritten has a gradient of its own
    is_product = any(similarity is p and times_written(p) == times for p, times in zip(products, before))
    free, scale = is_product or kernel.fused is not None, kernel.value("scale")
    if not isinstance(scale, Tensor) and scale == 1.0:
        return Scores(similarity, free, token_factor if is_product else None)
    return Scores(Scale.apply(similarity, scale) if free else similarity * scale, free)


def times_written(tensor: Tensor) -> int:
    """Counts the changes in place; 0 in ``torch.inference_mode``, which counts none and needs no gradient."""
    return 0 if tensor.is_inference() else tensor._version
