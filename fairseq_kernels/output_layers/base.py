"""An output layer: a word's log-probability and a target's loss."""

import sys
from numbers import Integral
from typing import Dict, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor, distributed, nn

from ..fused.matrix_products import HALF, bfloat16_is_faster, chunks
from .chunked_loss import ChunkedLoss, LossPass, Metrics, without_autocast
from .distillation import distill
from .layer_state import LayerState, traced

CPU_BYTES, CUDA_BYTES = 192 << 20, 512 << 20  # of a chunk, where a layer's memory_budget is None
CPU_ROWS = 384  # rows of scores on the CPU: fewer make poor matrix products, more fall out of the caches
CPU_TOKENS = 192  # tokens of a kernel on the CPU: with more, what is made of its scores leaves the caches
CPU_UNTIED_TOKENS = 128  # at least, with a matrix for each component, as fewer rows make its products slow
CPU_SENSE_TOKENS = 256  # tokens of KerBS on the CPU: more are no faster
WORDS_AT_A_TIME = 512  # whose terms are differentiated: the copies of their vectors stay in the cache
STATISTICS_TOKENS = 1024  # of the spherical family: beside the gradients their work space is small
FOLD_ROWS = 1 << 16  # rows of a factored matrix that are folded at a time


class WorkSpace(NamedTuple):
    """The memory that one token needs in a chunk, in numbers of the computation's precision."""

    numbers: int
    cpu_tokens: int = CPU_ROWS  # the most tokens on the CPU where nothing is said about memory


def check_integer(name: str, value, least: int = 1) -> None:
    """Raises ValueError for what is no integer of at least ``least``."""
    if not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name}={value} is not allowed: it must be an integer >= {least}")


def several_processes() -> bool:
    """Whether this is one of the processes of a distributed training."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def finite(bias: Tensor) -> Tensor:
    """A bias of -inf, which bars a word, as half of the least number: the gradient of logaddexp(-inf, -inf) is NaN."""
    return bias.clamp_min(torch.finfo(bias.dtype).min / 2)


class Tokens(NamedTuple):
    """The tokens that count, in the precision of the computation."""

    features: Tensor  # (N, d)
    target: Tensor  # (N,)
    weight: Optional[Tensor]  # (N,)
    counted: Optional[Tensor]  # a mask over all tokens, of those that these are; None: all
    product_dtype: Optional[torch.dtype]  # looked up before autocast is turned off
    z_loss: float


def refuse_computed(module: nn.Module, parametrized: bool) -> None:
    """Raises ValueError for a tensor that hooks compute from others (``torch.nn.utils.spectral_norm``), or, if
    ``parametrized``, that parametrizations do."""
    for part in module.modules():
        names = list(getattr(part, "parametrizations", ())) if parametrized else []
        for name, value in vars(part).items():
            if isinstance(value, Tensor) and (value.requires_grad or f"{name}_orig" in part._parameters):
                names.append(name)
        for name in names:
            raise ValueError(
                f"{name} is computed from other tensors (by weight norm, DataParallel, FSDP1 ...), to which nll would "
                f"give no gradient: compute the loss from forward's log-probabilities, or make {name} a parameter; use "
                "DDP or FSDP2 instead of DataParallel or FSDP1"
            )


class OutputLayer(LayerState):
    """The layer from context vectors h (d) to a distribution over V words.

    - ``layer(features)``: normalised log-probabilities. It stands in for fairseq's ``output_projection``, because a
      softmax or log-softmax after it leaves the distribution as it is.
    - ``layer.nll(features, target)``: the loss alone, without a tensor of N x V.

    A subclass gives :meth:`log_probabilities`, either :meth:`loss_pass` (see ``chunked_loss.LossPass``) or
    :meth:`losses`, and :meth:`prior_bias` where it is no softmax.

    Layer and ``nll`` compute in float32, or in float64 for float64 features, also under autocast and ``.half()``. In
    these two modes the ``nll`` of kernels multiplies by the word vectors in half precision on CUDA (torch >= 2.8), and
    adds up in float32. Under autocast to bfloat16, CPUs that multiply bfloat16 do so in the backward pass.

    Args:
        embed_dim: d, dimension of context and word vectors.
        num_embeddings: V, number of words.
        kind: what a checkpoint's layer must agree with; it is written into checkpoints.
        settings: as ``kind``, but a difference only warns. They change the distribution, not the parameters.
        memory_budget: bytes of work space for :meth:`nll` (the spherical family's ``nll`` needs none) and evaluation,
            which may take four times as much; default at most 192 MiB on the CPU, 512 MiB on CUDA, where compiled code
            takes about as much again.

    Attributes:
        weight: projection matrix W (V, d).
        bias: beta (V,) or None.
        name: its name in ``--output-layer``.
        loss_is_nll: whether the loss is -log p(y): perplexity follows from it.
        has_partition: whether the loss is of a softmax, so that label smoothing and z-loss can be added.
    """

    name: str
    loss_is_nll = has_partition = True
    weight: nn.Parameter
    bias: Optional[nn.Parameter]

    def __init__(
        self, embed_dim: int, num_embeddings: int, kind: str, settings: str, memory_budget: Optional[int] = None
    ):
        super().__init__(kind, settings)
        check_integer("embed_dim", embed_dim)
        check_integer("num_embeddings", num_embeddings)
        if memory_budget is not None:
            check_integer("memory_budget", memory_budget)
        self.embed_dim, self.vocab_size = int(embed_dim), int(num_embeddings)
        self.memory_budget = memory_budget

    @property
    def num_embeddings(self) -> int:
        """V, under the name that ``nn.Embedding`` has for it."""
        return self.vocab_size

    def log_probabilities(self, features: Tensor) -> Tensor:
        """(N, d) to (N, V), in the features' precision, differentiable."""
        raise NotImplementedError

    def prior_bias(self, prior: Tensor) -> Tensor:
        """The biases (V,) with which a context vector of 0 has the distribution ``prior`` (V,), if it gives all words
        the same score: a softmax's."""
        return prior.log()

    def loss_pass(self, dtype: torch.dtype, product_dtype: Optional[torch.dtype], with_gradients: bool) -> LossPass:
        """A new pass over this layer; ``product_dtype``: of the products with the words' vectors, if not ``dtype``."""
        raise NotImplementedError

    def losses(self, tokens: Tokens, smoothing: float, summed: bool) -> Tuple[Tensor, Metrics]:
        """The loss of the tokens: a scalar, or (N,), times their weights; and metrics (N, ...)."""
        refuse_computed(self, parametrized=True)
        features, target, weight, _, product_dtype, z_loss = tokens
        parameters = list(self.parameters())
        learning = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (features, *parameters))
        metrics: Metrics = {}
        options = ((smoothing, z_loss), product_dtype), summed, learning, metrics
        return ChunkedLoss.apply(self, *options, features, target, weight, *parameters), metrics

    def work_space(self) -> WorkSpace:
        """The memory that one token needs in a chunk."""
        return WorkSpace(2 * self.vocab_size)

    def set_prior(self, prior: Union[Tensor, Sequence[float]]) -> None:
        """Starts the bias from the words' probabilities (V,), as :func:`fairseq_kernels.word_prior` counts them.

        A context vector of 0 then has this distribution, exactly where such a vector gives all words the same score
        (kernels of the inner product, KerBS, the spherical family), else approximately. A word of probability 0 gets
        that of the rarest other word, so that its bias is finite.

        Raises:
            ValueError: no bias, another number of words, or a probability that is negative or not finite.
        """
        if self.bias is None:
            raise ValueError("the layer has no bias for a prior: give it one (bias=True), or do this before factored()")
        prior = torch.as_tensor(prior, dtype=torch.float64)
        if prior.shape != (self.vocab_size,) or not 0 < prior.sum() < torch.inf or prior.min() < 0:
            has = f"prior of shape {tuple(prior.shape)} and sum {prior.sum():g}"
            raise ValueError(f"{has} is not the {self.vocab_size} words' probabilities, none below 0")
        prior = torch.where(prior > 0, prior, prior[prior > 0].min())
        with torch.no_grad():
            self.bias.copy_(self.prior_bias(prior / prior.sum()))

    def product_dtype(self, features: Tensor) -> Optional[torch.dtype]:
        """The precision of the products with the words' vectors, if not that of the computation: on CUDA, where these
        accumulate in float32, autocast's or that of half-precision weights; on a CPU with products of bfloat16, that of
        autocast."""
        if features.is_cuda and hasattr(torch.ops.aten.mm, "dtype"):
            dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else self.weight.dtype
            return dtype if dtype in HALF else None
        by_autocast = features.device.type == "cpu" and torch.is_autocast_enabled("cpu") and bfloat16_is_faster()
        return torch.bfloat16 if by_autocast and torch.get_autocast_dtype("cpu") == torch.bfloat16 else None

    def chunk_size(self, features: Tensor) -> int:
        """The number of tokens of a chunk that fit into the memory budget, 1 or more."""
        space, dtype = self.work_space(), torch.promote_types(features.dtype, torch.float32)
        budget = self.memory_budget or (CUDA_BYTES if features.is_cuda else CPU_BYTES)
        tokens = budget // (space.numbers * dtype.itemsize)
        if self.memory_budget is None and not features.is_cuda:
            tokens = min(tokens, space.cpu_tokens)
        return max(1, tokens)

    def extra_repr(self) -> str:
        sizes = f"embed_dim={self.embed_dim}, num_embeddings={self.vocab_size}, bias={self.bias is not None}"
        return ", ".join(filter(None, [sizes, self.settings]))

    def forward(self, features: Tensor) -> Tensor:
        """Normalised log-probabilities.

        Args:
            features: context vectors, (..., d).

        Returns:
            (..., V), in float32, or float64 for float64 features.
        """
        if torch.jit.is_tracing():
            self.__prepare_scriptable__()
        flat = self._flatten(features)
        with without_autocast(features):
            if torch.is_grad_enabled() or traced():
                result = self.log_probabilities(flat)
            else:
                result = flat.new_empty(flat.size(0), self.vocab_size)
                for rows in chunks(flat.size(0), self.chunk_size(flat)):
                    result[rows] = self.log_probabilities(flat[rows])
        return result.view(*features.shape[:-1], self.vocab_size)

    def __prepare_scriptable__(self):
        raise RuntimeError("torch.jit can't convert output layers; use torch.export")

    def nll(
        self,
        features: Tensor,
        target: Tensor,
        ignore_index: Optional[int] = None,
        label_smoothing: float = 0.0,
        reduction: str = "sum",
        token_weight: Optional[Tensor] = None,
        return_metrics: Union[bool, str] = False,
        class_weight: Optional[Tensor] = None,
        z_loss: float = 0.0,
    ) -> Union[Tensor, Tuple[Tensor, Metrics]]:
        """The loss of the target words: -log p in nats, unless :attr:`loss_is_nll` is False. No N x V tensor is made.

        Under ``torch.compile`` it is a break in the graph. With ``create_graph`` backward makes tensors of N x V.

        Args:
            features: context vectors, (..., d).
            target: word indices, (...).
            ignore_index: targets of this value (padding) have no loss and no gradient.
            label_smoothing: epsilon; fairseq's: 1 - epsilon on the target and epsilon / (V - 1) on each other word.
            reduction: ``"sum"`` or ``"mean"`` over the tokens that count (with weights, over their sum, as torch's
                ``cross_entropy``): a scalar; ``"none"``: the shape of ``target``, 0 where ignored.
            token_weight: a factor of each token's loss, of the shape of ``target``; it may have a gradient.
            return_metrics: True also returns what the pass has computed anyway; ``"entropy"`` adds the distributions'
                entropy, which takes the products with the words once more.
            class_weight: a factor (V,) of the loss for each target word.
            z_loss: this many times (log Z)^2 is added to each token's loss, Z being the softmax's partition: it keeps
                log Z near 0 (PaLM, Chowdhery et al. 2022). In a mixture it is the sum over components, weighted by pi.

        Returns:
            The loss in float32, or float64 for float64 features. With ``return_metrics`` also a dict of tensors
            without gradient, 0 where ignored: ``nll`` (...), unsmoothed and unweighted, if the loss is -log p(y);
            ``log_partition`` (..., K), log Z of each component, for kernels; ``mixture_weights`` (..., K) for
            mixtures; ``correct`` (...), whether the target is the most probable word, for a single kernel;
            ``entropy`` (...) in nats, if asked for.

        Raises:
            ValueError: wrong shapes, a target that is no integer or no word (on CUDA the latter ends in the device's
                own error), label_smoothing outside [0, 1), a negative z_loss, either above 0 for a spherical loss,
                another reduction.
        """
        given = features, target, ignore_index, label_smoothing, reduction, token_weight, return_metrics, class_weight
        if torch.compiler.is_compiling():
            return torch.compiler.disable(self.nll)(*given, z_loss)
        if self.becomes_forward_methods():
            return self.nll(*given, z_loss)
        self.check_terms(label_smoothing, z_loss)
        if reduction not in ("sum", "mean", "none"):
            raise ValueError(f"reduction={reduction!r} is not allowed: it must be 'sum', 'mean' or 'none'")
        if return_metrics not in (False, True, "entropy"):
            raise ValueError(f"return_metrics={return_metrics!r} is not allowed: it must be False, True or 'entropy'")
        if torch._C._are_functorch_transforms_active():
            raise RuntimeError("torch.func can't transform nll; use the log-probabilities, layer(features)")
        refuse_computed(self, parametrized=False)
        tokens = self._tokens(features, target, ignore_index, token_weight, class_weight, z_loss)
        with without_autocast(features):
            loss, metrics = self.losses(tokens, label_smoothing, reduction != "none")
        if return_metrics == "entropy":
            metrics = {**metrics, "entropy": self.entropy(tokens.features)}

        def spread(values: Tensor) -> Tensor:
            """Values of the tokens that count, (N, ...), put where these are among all: (..., ...), 0 elsewhere."""
            if tokens.counted is not None:
                everywhere = values.new_zeros(target.numel(), *values.shape[1:])
                counted = tokens.counted.view(-1, *[1] * (values.dim() - 1)).expand_as(everywhere)
                values = everywhere.masked_scatter(counted, values)
            return values.view((*target.shape, *values.shape[1:]))

        metrics = {name: spread(values) for name, values in metrics.items()} if return_metrics else {}
        if reduction == "mean":
            total = len(tokens.target) if tokens.weight is None else tokens.weight.sum()
            loss = loss / total if len(tokens.target) else loss + torch.nan  # and gradients of 0, as torch's
        elif reduction == "none":
            loss = spread(loss)
        return (loss, metrics) if return_metrics else loss

    def becomes_forward_methods(self) -> bool:
        """Has FSDP2 (``fully_shard``) gather the parameters for ``nll`` and ``distill`` as for ``forward``. True if
        they are sharded now: the caller calls its method again."""
        if not hasattr(getattr(self, "weight", None), "placements"):  # no DTensor
            return False
        fsdp = sys.modules["torch.distributed.fsdp"]
        if not isinstance(self, fsdp.FSDPModule):
            raise ValueError("the layer's weight is sharded: call this in the model's forward, or fully_shard(layer)")
        for method in ("nll", "distill"):
            fsdp.register_fsdp_forward_method(self, method)
        return True

    @classmethod
    def check_terms(cls, label_smoothing: float, z_loss: float) -> None:
        """Raises ValueError for terms of the loss out of their range, or that this kind of layer can't have."""
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing={label_smoothing} is not allowed: it must be at least 0 and below 1")
        if not 0 <= z_loss < torch.inf:
            raise ValueError(f"z_loss={z_loss} is not allowed: it must be 0 or more")
        for name, value in (("label_smoothing", label_smoothing), ("z_loss", z_loss)):
            if value and not cls.has_partition:
                raise ValueError(
                    f"{name}={value:g} is not allowed: it is of a softmax, and a spherical loss has no log-probability "
                    "of every word and no partition; set it to 0, or choose another output layer"
                )

    def _tokens(self, features, target, ignore_index=None, token_weight=None, class_weight=None, z_loss=0.0) -> Tokens:
        """Checks and flattens the arguments of a loss, and leaves out what is ignored."""
        for name, tensor in (("target", target), ("token_weight", token_weight)):
            if tensor is not None and tensor.shape != features.shape[:-1]:
                fits = f"doesn't fit features of shape {tuple(features.shape)}"
                raise ValueError(f"{name} of shape {tuple(tensor.shape)} {fits}")
        if target.is_floating_point() or target.dtype == torch.bool:
            raise ValueError(f"target of {target.dtype} is not allowed: give the words' indices, as torch.long")
        flat, words = self._flatten(features), target.reshape(-1).long()
        weight = None if token_weight is None else token_weight.reshape(-1).to(flat.dtype)
        counted = None
        if ignore_index is not None:
            counted = words != ignore_index
            flat, words = flat[counted], words[counted]
            weight = None if weight is None else weight[counted]
        # only where looking is free: on CUDA it would wait for the device, and indexing fails there anyway
        if words.device.type == "cpu":
            for word in words[(words < 0) | (words >= self.vocab_size)][:1].tolist():
                raise ValueError(f"target {word} is not one of the {self.vocab_size} words, nor the ignore_index")
        if class_weight is not None:
            if class_weight.shape != (self.vocab_size,):
                raise ValueError(f"class_weight of shape {tuple(class_weight.shape)} is not ({self.vocab_size},)")
            of_target = class_weight.to(flat)[words]
            weight = of_target if weight is None else weight * of_target
        return Tokens(flat, words, weight, counted, self.product_dtype(flat), z_loss)

    def observe(self, features: Tensor) -> Dict[str, Tensor]:
        """What criterions log the mean of, by name: (..., d) to (...) or () each. Only mixture weights have
        gradients."""
        return {}

    @torch.no_grad()
    def evaluate(self, features: Tensor, target: Tensor) -> Tuple[Tensor, Tensor]:
        """Each target's log p, also where the loss is another one, and its rank, 0 for the most probable word:
        (..., d), (...) to (...) each.
        """
        tokens = self._tokens(features, target)
        flat, words = tokens.features, tokens.target.unsqueeze(1)
        log_probability, rank = flat.new_empty(words.shape), torch.empty_like(words)
        with without_autocast(features):
            for rows in chunks(flat.size(0), self.chunk_size(flat)):
                scores = self.log_probabilities(flat[rows])
                log_probability[rows] = own = scores.gather(1, words[rows])
                # not scores > own, by which a broken model's NaN would have the best rank
                rank[rows] = self.vocab_size - (scores <= own).sum(1, keepdim=True)
        return log_probability.view(target.shape), rank.view(target.shape)

    distill = distill

    @torch.no_grad()
    def entropy(self, features: Tensor) -> Tensor:
        """The entropy of each token's distribution in nats, (..., d) to (...)."""
        flat = self._flatten(features)
        result = flat.new_empty(len(flat))
        with without_autocast(features):
            for rows in chunks(len(flat), self.chunk_size(flat)):
                result[rows] = torch.special.entr(self.log_probabilities(flat[rows]).exp_()).sum(1)
        return result.view(features.shape[:-1])

    @torch.no_grad()
    def extend_vocabulary(self, words: int, vectors: Optional[Tensor] = None) -> None:
        """Appends words to a trained layer: V becomes V + ``words``.

        Their vectors are ``vectors`` (words, d), or the mean of the others, their biases the mean bias. The parameters
        of V rows are new ones: share them again with embeddings that had them, and build the optimizer after this. A
        negative number takes the last words away.
        """
        if not hasattr(self, "weight") or self.weight_shape() != (self.vocab_size, self.embed_dim):
            raise ValueError("the vocabulary of a factored layer, or with several vectors a word, can't be extended")
        if vectors is not None and vectors.shape != (words, self.embed_dim):
            raise ValueError(f"vectors of shape {tuple(vectors.shape)} are not ({words}, {self.embed_dim})")
        for name, parameter in list(self.named_parameters()):
            owner, _, own = name.rpartition(".")
            if name not in ("weight", "bias") and owner != "untied_weights":
                continue
            of = parameter if parameter.dim() == 2 else parameter[parameter.isfinite()]  # -inf bars a word
            new = of.mean(0, keepdim=True).expand(max(words, 0), *parameter.shape[1:])
            if vectors is not None and parameter.dim() == 2:
                new = vectors.to(parameter)
            rows = torch.cat([parameter[: self.vocab_size + words], new])
            setattr(self.get_submodule(owner), own, nn.Parameter(rows, parameter.requires_grad))
        self.vocab_size += words

    def weight_shape(self) -> Tuple[int, int]:
        """The shape that the projection matrix must have; it may be another module's."""
        return self.vocab_size, self.embed_dim

    def _flatten(self, features: Tensor) -> Tensor:
        weight = getattr(self, "weight", None)
        if weight is not None and tuple(weight.shape) != self.weight_shape():
            raise ValueError(
                f"weight of shape {tuple(weight.shape)} doesn't fit the layer's num_embeddings={self.vocab_size} and "
                f"embed_dim={self.embed_dim}"
            )
        if features.dim() < 1 or features.size(-1) != self.embed_dim:
            raise ValueError(f"features of shape {tuple(features.shape)} don't fit embed_dim={self.embed_dim}")
        return features.reshape(-1, self.embed_dim).to(torch.promote_types(features.dtype, torch.float32))
