"""An output layer: a word's log-probability and a target's loss."""

from typing import Optional, Tuple

import torch
from torch import Tensor, nn

from .chunked_loss import chunked_loss, chunks

# Rows of scores in a chunk on the CPU: fewer make poor matrix products, more fall out of the caches.
CPU_ROWS = 224


class OutputLayer(nn.Module):
    """The layer from context vectors h (d) to a distribution over V words.

    - ``layer(features)``: normalised log-probabilities, so that it stands in for fairseq's ``output_projection``:
      the softmax of log-probabilities is the probabilities, whatever is done with them afterwards.
    - ``layer.nll(features, target)``: the loss alone, without a tensor of N x V.

    A subclass gives :meth:`log_probabilities` and :meth:`loss_pass` (see ``chunked_loss.LossPass``).

    Both compute in float32, or in float64 where the features have it, under autocast and ``.half()`` too.
    """

    def __init__(self, embed_dim: int, num_embeddings: int, memory_budget: Optional[int] = None):
        super().__init__()
        for name, value in (("embed_dim", embed_dim), ("num_embeddings", num_embeddings)):
            if int(value) != value or value < 1:
                raise ValueError(f"{name}={value} is not allowed: it must be an integer >= 1")
        if memory_budget is not None and memory_budget < 1:
            raise ValueError(f"memory_budget={memory_budget} is not allowed: give a number of bytes >= 1, or None")
        self.embed_dim, self.num_embeddings = int(embed_dim), int(num_embeddings)
        self.memory_budget = memory_budget

    def log_probabilities(self, features: Tensor) -> Tensor:
        """(N, d) to (N, V), in the features' precision, differentiable."""
        raise NotImplementedError

    def loss_pass(self, dtype: torch.dtype, with_gradients: bool):
        """A new ``LossPass`` over this layer."""
        raise NotImplementedError

    rows_per_token = 1  # rows of scores that one token has

    def row_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of work space that one token needs in a chunk."""
        raise NotImplementedError

    def chunk_size(self, features: Tensor) -> int:
        """Tokens a chunk, from the memory budget."""
        budget = self.memory_budget or (512 << 20 if features.is_cuda else 32 << 20)
        tokens = budget // self.row_bytes(features.dtype)
        if self.memory_budget is None and not features.is_cuda:
            tokens = min(tokens, CPU_ROWS // self.rows_per_token)
        return max(1, tokens)

    def forward(self, features: Tensor) -> Tensor:
        """Normalised log-probabilities.

        Args:
            features: context vectors, (..., d).

        Returns:
            (..., V), in float32, or float64 for float64 features.
        """
        flat = self._flatten(features)
        with torch.autocast(features.device.type, enabled=False):
            if torch.is_grad_enabled():
                result = self.log_probabilities(flat)
            else:
                result = flat.new_empty(flat.size(0), self.num_embeddings)
                for rows in chunks(flat.size(0), self.chunk_size(flat)):
                    result[rows] = self.log_probabilities(flat[rows])
        return result.view(*features.shape[:-1], self.num_embeddings)

    def nll(
        self,
        features: Tensor,
        target: Tensor,
        ignore_index: Optional[int] = None,
        label_smoothing: float = 0.0,
        reduction: str = "sum",
    ) -> Tensor:
        """Negative log-likelihood of the target words, in nats, without an N x V tensor.

        Args:
            features: context vectors, (..., d).
            target: word indices, (...).
            ignore_index: targets of this value (padding) have no loss and no gradient.
            label_smoothing: epsilon; fairseq's: 1 - epsilon on the target and epsilon / (V - 1) on each other word.
            reduction: ``"sum"``: a scalar; ``"none"``: the shape of ``target``, 0 where ignored.

        Returns:
            The loss in float32, or float64 for float64 features.

        Raises:
            ValueError: shapes that don't fit, a target that is no word, epsilon outside [0, 1), another reduction.
        """
        return self.smoothed_nll(features, target, ignore_index, label_smoothing, reduction)[0]

    def smoothed_nll(
        self,
        features: Tensor,
        target: Tensor,
        ignore_index: Optional[int] = None,
        label_smoothing: float = 0.0,
        reduction: str = "sum",
    ) -> Tuple[Tensor, Tensor]:
        """As :meth:`nll`, and with it from the same pass the loss without smoothing, which has no gradient."""
        if target.shape != features.shape[:-1]:
            shapes = tuple(target.shape), tuple(features.shape)
            raise ValueError("target of shape {} doesn't fit features of shape {}".format(*shapes))
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing={label_smoothing} is not allowed: it must be at least 0 and below 1")
        if reduction not in ("sum", "none"):
            raise ValueError(f"reduction={reduction!r} is not allowed: it must be 'sum' or 'none'")
        flat, words = self._flatten(features), target.reshape(-1)
        if ignore_index is not None:
            kept = words != ignore_index
            flat, words = flat[kept], words[kept]
        # only where looking is free: on CUDA it would wait for the device, and indexing fails there anyway
        if words.device.type == "cpu":
            for word in words[(words < 0) | (words >= self.num_embeddings)][:1].tolist():
                raise ValueError(f"target {word} is not one of the {self.num_embeddings} words, nor the ignore_index")
        with torch.autocast(features.device.type, enabled=False):
            losses = chunked_loss(self, flat, words, label_smoothing, reduction)
        if reduction == "none" and ignore_index is not None:
            losses = tuple(loss.new_zeros(target.numel()).masked_scatter(kept, loss) for loss in losses)
        return tuple(loss.view(target.shape) for loss in losses) if reduction == "none" else losses

    def _flatten(self, features: Tensor) -> Tensor:
        if features.dim() < 1 or features.size(-1) != self.embed_dim:
            raise ValueError(f"features of shape {tuple(features.shape)} don't fit embed_dim={self.embed_dim}")
        return features.reshape(-1, self.embed_dim).to(torch.promote_types(features.dtype, torch.float32))
