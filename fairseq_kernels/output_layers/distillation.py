"""Soft targets: a layer learns another one's distribution (Hinton et al. 2015)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..fused.matrix_products import chunks
from ..kernels.base import DOMAINS
from .chunked_loss import without_autocast


def distill(layer, features: Tensor, teacher_features: Tensor, teacher: nn.Module, temperature: float = 1.0) -> Tensor:
    """T^2 KL(teacher || layer) of each token, in nats, softened by T: a method, ``layer.distill(features, ...)``.

    It is computed a chunk of tokens at a time, and once more in backward, so that no tensor of N x V exists.

    Args:
        features: context vectors, (..., d).
        teacher_features: those of the teacher, of the same tokens, (..., D).
        teacher: another output layer, or any module from its features to logits (..., V); it gets no gradient.
        temperature: T, above 0.

    Returns:
        (...), in float32, or float64 for float64 features.
    """
    if teacher_features.shape[:-1] != features.shape[:-1]:
        fits = f"don't fit features of shape {tuple(features.shape)}"
        raise ValueError(f"teacher_features of shape {tuple(teacher_features.shape)} {fits}")
    DOMAINS["positive"].check("temperature", temperature)
    if layer.becomes_forward_methods():
        return layer.distill(features, teacher_features, teacher, temperature)

    def divergence(own: Tensor, taught: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = F.softmax(teacher(taught).to(own.dtype) / temperature, dim=-1)
        with without_autocast(own):
            log_p = F.log_softmax(layer.log_probabilities(own) / temperature, dim=-1)
        log_p = log_p.masked_fill(wanted == 0, 0)  # a word that both bar
        return temperature**2 * F.kl_div(log_p, wanted, reduction="none").sum(-1)

    own, taught = layer._flatten(features), teacher_features.reshape(-1, teacher_features.size(-1))
    parts = chunks(len(own), layer.chunk_size(own))
    each = [checkpoint(divergence, own[rows], taught[rows], use_reentrant=False) for rows in parts]
    return torch.cat([own.new_empty(0), *each]).view(features.shape[:-1])
