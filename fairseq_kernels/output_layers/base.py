"""An output layer: a word's log-probability and a target's loss."""

import logging
from typing import Any, Callable, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from .chunked_loss import chunked_loss, chunks

logger = logging.getLogger(__name__)

# Rows of scores in a chunk on the CPU: fewer make poor matrix products, more fall out of the caches.
CPU_ROWS = 384


class OutputLayer(nn.Module):
    """The layer from context vectors h (d) to a distribution over V words.

    - ``layer(features)``: normalised log-probabilities, so that it stands in for fairseq's ``output_projection``:
      the softmax of log-probabilities is the probabilities, whatever is done with them afterwards.
    - ``layer.nll(features, target)``: the loss alone, without a tensor of N x V.

    A subclass gives :meth:`log_probabilities`, :meth:`prior_bias` and either :meth:`loss_pass` (see
    ``chunked_loss.LossPass``) or :meth:`losses`.

    Both compute in float32, or in float64 where the features have it, under autocast and ``.half()`` too.

    Args:
        embed_dim: d, dimension of context and word vectors.
        num_embeddings: V, number of words.
        kind: what a checkpoint's layer must agree with; it is written into checkpoints.
        settings: what it should agree with: another value belongs to another distribution, not to other parameters.
        memory_budget: bytes of work space for :meth:`nll`; default at most 192 MiB on the CPU, 512 MiB on CUDA.

    Attributes:
        weight: projection matrix W (V, d).
        bias: beta (V,) or None.
    """

    def __init__(
        self, embed_dim: int, num_embeddings: int, kind: str, settings: str, memory_budget: Optional[int] = None
    ):
        super().__init__()
        for name, value in (("embed_dim", embed_dim), ("num_embeddings", num_embeddings)):
            if int(value) != value or value < 1:
                raise ValueError(f"{name}={value} is not allowed: it must be an integer >= 1")
        if memory_budget is not None and memory_budget < 1:
            raise ValueError(f"memory_budget={memory_budget} is not allowed: give a number of bytes >= 1, or None")
        self.embed_dim, self.num_embeddings = int(embed_dim), int(num_embeddings)
        self.memory_budget = memory_budget
        # fairseq's moving average of parameters leaves alone what has "version" in its name
        self.register_buffer("kind_version", torch.tensor(list(f"{kind}; {settings}".encode()), dtype=torch.uint8))
        self._kept: Optional[Tuple] = None

    def check_kind(self, kind_version: Tensor) -> None:
        """Compares a checkpoint's buffer ``kind_version`` with this layer's: warns of other settings.

        Raises:
            ValueError: the checkpoint is of another kind of layer.
        """
        (kind, _, settings), (own, _, own_settings) = (
            bytes(buffer.tolist()).decode().partition("; ") for buffer in (kind_version, self.kind_version)
        )
        if kind != own:
            raise ValueError(f"the checkpoint has the output layer {kind!r}, the model {own!r}")
        if settings != own_settings:
            logger.warning("the checkpoint was trained with %s, the model has %s", settings, own_settings)

    def _load_from_state_dict(self, state_dict, prefix, *args):
        key = f"{prefix}kind_version"
        if key in state_dict:
            self.check_kind(state_dict[key])
            state_dict[key] = self.kind_version
        super()._load_from_state_dict(state_dict, prefix, *args)

    def log_probabilities(self, features: Tensor) -> Tensor:
        """(N, d) to (N, V), in the features' precision, differentiable."""
        raise NotImplementedError

    def prior_bias(self, prior: Tensor) -> Tensor:
        """The biases (V,) with which a context vector of 0 has the distribution ``prior`` (V,)."""
        raise NotImplementedError

    def loss_pass(self, dtype: torch.dtype, with_gradients: bool):
        """A new ``LossPass`` over this layer."""
        raise NotImplementedError

    def losses(self, features: Tensor, target: Tensor, smoothing: float, reduction: str) -> Tuple[Tensor, Tensor]:
        """Loss and unsmoothed loss of features (N, d) against words (N,): scalars, or (N,) for "none"."""
        return chunked_loss(self, features, target, smoothing, reduction)

    def cpu_tokens(self) -> int:
        """The most tokens a chunk on the CPU, where nothing is said about memory."""
        return CPU_ROWS

    def row_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of work space that one token needs in a chunk."""
        return 2 * self.num_embeddings * dtype.itemsize

    def set_log_prior(self, counts: Sequence[float]) -> None:
        """Start the bias so that the words have their prior probabilities, given their counts (V,); one is added to
        each.

        Raises:
            ValueError: the layer has no bias, or there aren't V counts.
        """
        if self.bias is None:
            raise ValueError("the layer has no bias to hold the words' prior; build it with bias=True")
        counts = torch.as_tensor(counts, dtype=torch.float64) + 1
        if counts.numel() and counts.min() < 1:
            raise ValueError(f"the count {float(counts.min()) - 1:g} is not allowed: counts are 0 or more")
        if counts.shape != self.bias.shape:
            raise ValueError(f"{counts.numel()} counts don't fit {self.num_embeddings} words")
        with torch.no_grad():
            self.bias.copy_(self.prior_bias(counts / counts.sum()))

    def train(self, mode: bool = True):
        """As ``nn.Module.train``; drops what decoding has kept, as ``.data`` may have been written (fp16 training)."""
        self._kept = None
        return super().train(mode)

    def kept(self, dtype: torch.dtype, compute: Callable[[], Any]) -> Any:
        """``compute()``, which depends on the parameters alone; in decoding done once, not at every step."""
        if torch.is_grad_enabled():
            return compute()
        # some optimisers write through .data, which leaves _version as it is: hence a look at some values
        looks = [float(parameter.flatten()[:64].sum()) for parameter in self.parameters()]
        state = [(p.data_ptr(), p._version, p.dtype, p.device) for p in self.parameters()], looks, dtype
        if self._kept is None or self._kept[0] != state:
            result = compute()
            if self.training:
                return result
            self._kept = state, result
        return self._kept[1]

    def chunk_size(self, features: Tensor) -> int:
        """Tokens a chunk, from the memory budget."""
        budget = self.memory_budget or (512 << 20 if features.is_cuda else 192 << 20)
        tokens = budget // self.row_bytes(features.dtype)
        if self.memory_budget is None and not features.is_cuda:
            tokens = min(tokens, self.cpu_tokens())
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
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing={label_smoothing} is not allowed: it must be at least 0 and below 1")

        def compute(flat: Tensor, words: Tensor):
            return self.losses(flat, words, label_smoothing, reduction)

        return self.over_tokens(compute, features, target, ignore_index, reduction)

    def over_tokens(
        self,
        compute: Callable[[Tensor, Tensor], Tuple[Tensor, ...]],
        features: Tensor,
        target: Tensor,
        ignore_index: Optional[int],
        reduction: str,
    ) -> Tuple[Tensor, ...]:
        """Losses of the tokens that count: ``compute`` gets them as (N, d) and (N,) in float32 or float64, and gives
        scalars for ``reduction="sum"``, (N,) for "none"."""
        if target.shape != features.shape[:-1]:
            shapes = tuple(target.shape), tuple(features.shape)
            raise ValueError("target of shape {} doesn't fit features of shape {}".format(*shapes))
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
            losses = compute(flat, words)
        if reduction == "none" and ignore_index is not None:
            losses = tuple(loss.new_zeros(target.numel()).masked_scatter(kept, loss) for loss in losses)
        return tuple(loss.view(target.shape) for loss in losses) if reduction == "none" else losses

    @torch.no_grad()
    def rank(self, features: Tensor, target: Tensor) -> Tensor:
        """How many words are more probable than the target: (..., d), (...) to (...), 0 for the most probable."""
        flat, words = self._flatten(features), target.reshape(-1, 1)
        result = torch.empty_like(words)
        with torch.autocast(features.device.type, enabled=False):
            for rows in chunks(flat.size(0), self.chunk_size(flat)):
                scores = self.log_probabilities(flat[rows])
                result[rows] = (scores > scores.gather(1, words[rows])).sum(1, keepdim=True)
        return result.view(target.shape)

    def _flatten(self, features: Tensor) -> Tensor:
        if features.dim() < 1 or features.size(-1) != self.embed_dim:
            raise ValueError(f"features of shape {tuple(features.shape)} don't fit embed_dim={self.embed_dim}")
        return features.reshape(-1, self.embed_dim).to(torch.promote_types(features.dtype, torch.float32))
