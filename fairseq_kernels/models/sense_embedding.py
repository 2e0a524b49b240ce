"""Input embeddings from KerBS' sense vectors (Miao et al. 2019, Eq. 6 and 7)."""

from typing import Optional

import torch
from torch import Tensor, nn

from ..output_layers import KerBSoftmax


class SenseEmbedding(nn.Module):
    """The embedding of a word i: sum_j p(s = <i,j> | y = i) w_<i,j>.

    p is the posterior given the context vector that predicted the word (Eq. 6), or, without one, the prior: how much
    the word has used each of its senses (the layer's moving average), all alike before anything is known.

    Args:
        layer: the output layer, whose vectors these are; it stays the model's own.
        padding_idx: this word's embedding is 0.
    """

    def __init__(self, layer: KerBSoftmax, padding_idx: int):
        super().__init__()
        self._layer = [layer]  # in a list: its parameters are registered where the layer is
        self.embedding_dim, self.padding_idx = layer.embed_dim, padding_idx

    def forward(self, words: Tensor, context: Optional[Tensor] = None) -> Tensor:
        """Words (...) and the context vectors (..., d) that predicted them, to (..., d)."""
        [layer] = self._layer
        senses = layer.word_senses()[words]
        missing, senses = senses < 0, senses.clamp_min(0)
        vectors = nn.functional.embedding(senses, layer.weight)
        if context is None:
            # idle senses and unknown words keep a share
            usage = torch.ones_like(senses) if layer.allocation is None else layer.allocation.usage[senses] + 1e-3
            scores = usage.log()
        else:  # half precision has no room for the norms' product
            wide = torch.promote_types(vectors.dtype, torch.float32)
            scores = layer.scores_of(context.to(wide), senses, vectors.to(wide))
        weights = torch.softmax(scores.masked_fill(missing, -torch.inf), dim=-1)
        result = (weights.to(vectors.dtype).unsqueeze(-1) * vectors).sum(-2)
        return result.masked_fill((words == self.padding_idx).unsqueeze(-1), 0.0)
