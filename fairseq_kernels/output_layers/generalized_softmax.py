"""The generalized softmax of Gao et al. (2019): any kernel, or a mixture of kernels, instead of W_v . h."""

import functools
import itertools
import math
import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..fused.mixture_nll import MixtureNLL, Scores
from ..fused.word_product import WordMatrices, all_products
from ..kernels import KERNELS, Kernel
from ..kernels.base import DOMAINS, check_interface
from ..kernels.spec import KernelSpec, ParameterSpec, build_kernels, component_names
from .base import CPU_ROWS, CPU_TOKENS, CPU_UNTIED_TOKENS, WORDS_AT_A_TIME, OutputLayer, WorkSpace, finite
from .chunked_loss import LossPass, add_up, without_autocast
from .layer_state import logger, traced


class Shared(NamedTuple):
    """The tensors that all tokens share, in the precision of the computation."""

    matrices: List[Tensor]  # (V, d): one if tied, else one a component
    terms: List[Tuple[Tensor, ...]]  # each kernel's word terms, (V,) each
    latent_projection: Optional[Tensor]  # C (K, d, d)
    prior_projection: Optional[Tensor]  # M (d, K)


class GeneralizedSoftmax(OutputLayer):
    """p(w_v | h) = sum_k pi_k softmax_v(S_k(W_v, h_k) + beta_v)   (Gao et al. 2019, Eq. 1-3)

    with pi = softmax(M^T h) and h_k = tanh(C_k^T h). A single kernel (K = 1) uses h itself, without C and M:
    "the exact same number of parameters" as the linear one (section 4.2).

    Args:
        embed_dim: d, dimension of context and word vectors.
        num_embeddings: V, number of words.
        kernels: a mixture such as ``"3xlin,log"``, or a list of names; see ``fairseq_kernels.kernels.KERNELS``.
        bias: whether scores include the word's bias beta_v. Bounded kernels need it: without it, rbf and wav of
            scale 1 give no word more than e^2 / V.
        untied: give each component its own projection matrix (the paper ties them).
        kernel_params: hyper-parameters, as ``"log.p=2,rbf.gamma=learned"`` or a mapping; ``"rbf2.gamma=10"`` of a
            component alone, by its name in :meth:`component_names`.
        memory_budget: as in :class:`OutputLayer`.
        latent_projection: None: as above. ``"tanh"``: a single kernel takes tanh(C^T h), too. ``"linear"``: a single
            kernel or each component takes C^T h.
        start, step: with a step the layer computes with ``step`` W, and W starts ``start / step`` times as large as
            usual. So the matrix that scores are made of starts ``start`` times as large, and an update of Adam moves it
            ``step`` times as far. For kernels that are functions of W_v . h, and for pow. A W that is shared with an
            embedding stays as it is: the matrix then starts ``step`` times as large as the embedding. AdamW's decay
            acts on W as it is stored, so that in effect it is the same share of the matrix in each update.
        device, dtype: of the parameters, as in ``nn.Linear``; learned hyper-parameters are at least float32.

    Attributes:
        weight: projection matrix W (V, d), of the first component if untied.
        untied_weights: those of the other components.
        bias: beta (V,) or None.
        latent_projection: C (K, d, d), applied as h @ C_k; None for K = 1 unless asked for.
        prior_projection: M (d, K); None for K = 1.

    Raises:
        ValueError: an unknown kernel or hyper-parameter, a value outside its domain, a dimension below 1; a start or
            step for a kernel that has none.
    """

    name = "kernels"

    def __init__(
        self,
        embed_dim: int,
        num_embeddings: int,
        kernels: KernelSpec = "lin",
        bias: bool = True,
        untied: bool = False,
        kernel_params: ParameterSpec = None,
        memory_budget: Optional[int] = None,
        latent_projection: Optional[str] = None,
        device=None,
        dtype: Optional[torch.dtype] = None,
        start: float = 1.0,
        step: float = 1.0,
    ):
        if latent_projection not in (None, "tanh", "linear"):
            raise ValueError(f"latent_projection={latent_projection!r} is not allowed: give 'tanh', 'linear' or None")
        modules = build_kernels(kernels, embed_dim, kernel_params)
        check_start_and_step(start, step, modules)
        kind = ",".join(kernel.name for kernel in modules)
        described = [kernel.extra_repr() for kernel in modules]
        own = len(set(described)) > len({kernel.name for kernel in modules})  # settings of components, not of kernels
        settings = " ".join(described if own else sorted(set(described)))
        if latent_projection == "linear":
            settings += " latent_projection=linear"
        if step != 1:
            settings += f" step={step:g}"
        super().__init__(embed_dim, num_embeddings, kind, settings, memory_budget)
        self.kernels = nn.ModuleList(modules)
        self.start, self.step = start, step
        for kernel in modules:
            kernel.step = step
            check_interface(kernel)
        self.latent_activation = nn.Identity() if latent_projection == "linear" else nn.Tanh()
        components = len(self.kernels)
        self.untied = untied and components > 1
        self.weight = nn.Parameter(torch.empty(num_embeddings, embed_dim))
        self.untied_weights = nn.ParameterList(
            nn.Parameter(torch.empty(num_embeddings, embed_dim)) for _ in range(components - 1 if self.untied else 0)
        )
        self.bias = nn.Parameter(torch.empty(num_embeddings)) if bias else None
        latent, mixed = components > 1 or latent_projection is not None, components > 1
        self.latent_projection = nn.Parameter(torch.empty(components, embed_dim, embed_dim)) if latent else None
        self.prior_projection = nn.Parameter(torch.empty(embed_dim, components)) if mixed else None
        self.to(device=device, dtype=dtype)
        self.reset_parameters()

    @classmethod
    def from_linear(cls, linear: nn.Linear, kernels: KernelSpec = "lin", **options) -> "GeneralizedSoftmax":
        """The layer that shares the weight of a linear layer (d to V), and its bias if it has one.

        Untied components start from copies of the weight. With a ``step`` W is a copy, too, divided by it, so that the
        layer computes what the linear layer did; with a ``start``, for a model still to be trained, its matrix is in
        effect as many times as large. ``options`` are those of the class; device and precision are the linear layer's.
        """
        weight, bias = cast(nn.Parameter, linear.weight), cast(Optional[nn.Parameter], linear.bias)
        options = {"bias": bias is not None, "device": weight.device, "dtype": weight.dtype, **options}
        layer = cls(weight.size(1), weight.size(0), kernels, **options)
        factor = getattr(linear, "step", 1.0) * layer.start / layer.step
        with torch.no_grad():
            for matrix in layer.matrices():
                matrix.copy_(weight * factor).requires_grad_(weight.requires_grad)
        if layer.start == factor == 1:
            layer.weight = weight
        if bias is not None and layer.bias is not None:
            layer.bias = bias
        return layer

    def reset_parameters(self) -> None:
        """W normal with deviation d^-1/2, as fairseq's; C and M Xavier uniform; biases 0; learned values restart."""
        super().reset_parameters()
        for kernel in self.components():
            kernel.reset_parameters()
        for weight in self.matrices():
            nn.init.normal_(weight, std=self.embed_dim**-0.5 * self.start / self.step)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if self.latent_projection is not None:
            bound = math.sqrt(3) * math.sqrt(1 / self.embed_dim)  # Xavier's of each C_k
            nn.init.uniform_(self.latent_projection, -bound, bound)
        if self.prior_projection is not None:
            nn.init.xavier_uniform_(self.prior_projection)

    def adapt_state(self, state_dict, prefix):
        """Of a layer with another step, or of none, such as ``nn.Linear``: W changes so that the scores stay."""
        given = re.search(r" step=(\S+)|$", self.saved_kind(state_dict, prefix))[1] or "1"
        if given != f"{self.step:g}":
            factor = float(given) / self.step
            said = "the checkpoint's output matrix is multiplied by %g, for step=%g; embeddings can't share it any more"
            logger.warning(said, factor, self.step)
            for key in [key for key in state_dict if key.startswith((f"{prefix}weight", f"{prefix}untied_weights."))]:
                state_dict[key] = state_dict[key] * factor

    def matrices(self) -> List[nn.Parameter]:
        """The distinct projection matrices: one if tied, else one a component."""
        return [self.weight, *self.untied_weights]

    def components(self) -> List[Kernel]:
        """The K components' kernels."""
        return cast(List[Kernel], list(self.kernels))

    def component_names(self) -> List[str]:
        """The components' kernels, numbered where one occurs more than once: lin1, lin2, log."""
        return component_names([kernel.name for kernel in self.components()])

    def mixture_weights(self, features: Tensor) -> Tensor:
        """pi (Eq. 2): (..., d) to (..., K), at least float32, differentiable; ones for K = 1."""
        flat = self._flatten(features)
        with without_autocast(features):
            log_pi = log_mixture_weights(flat, self.prior_projection)
        weights = flat.new_ones(len(flat), 1) if log_pi is None else log_pi.exp()
        return weights.view(*features.shape[:-1], len(self.kernels))

    def observe(self, features):
        """The weight of each component, ``pi_NAME``, and the variance over a token's weights, ``pi_variance``; learned
        hyper-parameters, ``NAME_gamma`` for instance."""
        observed = {
            f"{name}_{hyper}": value.float()
            for name, kernel in zip(self.component_names(), self.components())
            for hyper, value in kernel.learned().items()
        }
        if self.prior_projection is not None:
            weights = self.mixture_weights(features)
            names = [f"pi_{name}" for name in self.component_names()]
            observed.update(zip(names, weights.unbind(-1)), pi_variance=weights.var(dim=-1, unbiased=False))
        return observed

    def shared(self, dtype: torch.dtype) -> Shared:
        """The tensors of the parameters alone that scores are computed from."""
        matrices = [weight.to(dtype) for weight in self.matrices()]
        latent, prior = (None if p is None else p.to(dtype) for p in (self.latent_projection, self.prior_projection))
        return Shared(matrices, word_terms(self.components(), matrices), latent, prior)

    def plain_scores(self, features: Tensor) -> Tuple[List[Tensor], Optional[Tensor]]:
        """S_k (n, V) of each component, without bias, and log pi (n, K), for features (n, d): by the formulas."""
        contexts, dtype = features.unsqueeze(0), features.dtype
        if self.latent_projection is not None:
            contexts = self.latent_activation(features @ self.latent_projection.to(dtype))
        matrices = [weight.to(dtype) for weight in self.matrices()] * len(self.kernels)
        scores = [kernel(*given) for kernel, *given in zip(self.components(), matrices, contexts)]
        return scores, log_mixture_weights(features, self.prior_projection)

    def fused_scores(
        self, features: Tensor, shared: Shared, words: WordMatrices
    ) -> Tuple[List[Scores], Optional[Tensor]]:
        """:meth:`plain_scores` by the Functions of :mod:`fairseq_kernels.fused`, for the loss and for decoding."""
        contexts = features.unsqueeze(0)
        if shared.latent_projection is not None:
            contexts = self.latent_activation(words.project(features, shared.latent_projection))
        kernels, token_factors = self.components(), cast(List[List[Tensor]], [[] for _ in self.kernels])
        products = all_products(kernels, contexts, words, token_factors)
        terms = [kernel.context_terms(own) for kernel, own in zip(kernels, contexts)]
        groups = zip(kernels, products, shared.terms, terms, token_factors)
        scores = [kernel.fused_scores(*given) for kernel, *given in groups]  # type: ignore[arg-type]
        return scores, log_mixture_weights(features, shared.prior_projection)

    def log_probabilities(self, features: Tensor) -> Tensor:
        if torch.is_grad_enabled() or traced():
            values, log_pi = self.plain_scores(features)
        else:
            shared = self.cached(features.dtype, lambda: self.shared(features.dtype))
            scores, log_pi = self.fused_scores(features, shared, WordMatrices(shared.matrices))
            values = [score.values for score in scores]
        bias = None if self.bias is None else self.bias.to(features.dtype)
        if bias is not None and len(values) > 1:
            bias = finite(bias)

        def log_joint(k: int) -> Tensor:
            """log pi_k p_k(v)"""
            log_p = F.log_softmax(values[k] if bias is None else values[k] + bias, dim=-1)
            return log_p if log_pi is None else log_p + log_pi[:, k : k + 1]

        return functools.reduce(torch.logaddexp, map(log_joint, range(len(values))))

    def squared_log_partition(self, features: Tensor) -> Tensor:
        """sum_k pi_k (log Z_k)^2, (n, d) to (n,), by the formulas."""
        scores, log_pi = self.plain_scores(features)
        bias = 0.0 if self.bias is None else self.bias.to(features.dtype)
        squares = torch.stack([(score + bias).logsumexp(1).square() for score in scores], dim=1)
        return (squares if log_pi is None else squares * log_pi.exp()).sum(1)

    def product_dtype(self, features):
        # of distances: beside a word's own vector, rounded ones leave no digit of the gradient
        exact = features.device.type == "cpu" and not all(kernel.takes_step for kernel in self.components())
        return None if exact else super().product_dtype(features)

    def loss_pass(self, dtype, product_dtype, with_gradients):
        return GeneralizedSoftmaxPass(self, dtype, product_dtype, with_gradients)

    def work_space(self):
        buffers = sum(kernel.score_buffers() for kernel in self.components())
        tokens = min(CPU_ROWS // len(self.kernels), CPU_ROWS if buffers == 1 else CPU_TOKENS)
        return WorkSpace(self.vocab_size * buffers, max(tokens, CPU_UNTIED_TOKENS if self.untied else 1))


def check_start_and_step(start: float, step: float, kernels: Sequence[Kernel]) -> None:
    """Raises ValueError for a number out of bounds, or a kernel that has no start and step."""
    for name, value in (("start", start), ("step", step)):
        DOMAINS["positive"].check(name, value)
        for kernel in kernels:
            if value != 1 and not kernel.takes_step:
                takes = ", ".join(name for name, kernel in KERNELS.items() if kernel.takes_step)
                raise ValueError(f"{name}={value:g} doesn't fit the kernel {kernel.name}: it is for {takes}")


def log_mixture_weights(features: Tensor, prior_projection: Optional[Tensor]) -> Optional[Tensor]:
    """log pi = log softmax(M^T h) (Eq. 2): (N, d) to (N, K); None for K = 1."""
    if prior_projection is None:
        return None
    return F.log_softmax(features @ prior_projection.to(features.dtype), dim=-1)


def word_terms(kernels: Sequence, matrices: Sequence[Tensor]) -> List[Tuple[Tensor, ...]]:
    """Each kernel's word terms, of the shared matrix or of its own."""

    def terms_of(blocks: Sequence[Tensor]) -> List[Tuple[Tensor, ...]]:
        return [tuple(kernel.word_terms(block)) for kernel, block in zip(kernels, itertools.cycle(blocks))]

    if torch.is_grad_enabled():
        return terms_of(matrices)
    # some words at a time, as kernels may make copies of their vectors
    parts = [terms_of(blocks) for blocks in zip(*(matrix.split(WORDS_AT_A_TIME) for matrix in matrices))]
    return [tuple(map(torch.cat, zip(*terms))) for terms in zip(*parts)]


class GeneralizedSoftmaxPass(LossPass):
    """The loss of a :class:`GeneralizedSoftmax`: its :meth:`~GeneralizedSoftmax.fused_scores`, then ``MixtureNLL``.

    The gradients of W, C and the biases are added up in place by the Functions; the leaves are the word terms, M and
    the learned hyper-parameters. The word terms' gradients go on to W at the end, some words at a time.
    """

    def __init__(self, layer: GeneralizedSoftmax, dtype, product_dtype, with_gradients: bool):
        self.layer = layer
        with torch.no_grad():
            self.shared = shared = layer.shared(dtype)
            self.bias = None if layer.bias is None else layer.bias.detach().to(dtype)
            if self.bias is not None and len(layer.kernels) > 1:
                self.bias = finite(self.bias)
        rounded = product_dtype if with_gradients or layer.weight.is_cuda else None
        low = rounded and [w.detach().to(rounded) for w in layer.matrices()]
        # the CPU's products of half precision are rounded to it, which only gradients can bear
        self.words = WordMatrices(low if low and layer.weight.is_cuda else shared.matrices, low)
        self.grad_bias = torch.zeros_like(self.bias) if with_gradients and self.bias is not None else None
        if not with_gradients:
            return
        self.words.gradients = self.grad_matrices = [torch.zeros_like(matrix) for matrix in shared.matrices]
        latent, prior = shared.latent_projection, shared.prior_projection
        self.words.grad_latent = None if latent is None else torch.zeros_like(latent)
        self.shared = shared._replace(
            # those of integers, a count or an index, have no gradient
            terms=[tuple(t.detach().requires_grad_(t.is_floating_point()) for t in terms) for terms in shared.terms],
            prior_projection=None if prior is None else prior.detach().requires_grad_(),
        )
        self.learned = [parameter for parameter in layer.kernels.parameters() if parameter.requires_grad]
        priors = [] if self.shared.prior_projection is None else [self.shared.prior_projection]
        terms = (term for terms in self.shared.terms for term in terms if term.requires_grad)
        self.leaves = [*terms, *self.learned, *priors]
        self.sums = [torch.zeros_like(leaf) for leaf in self.leaves]

    def losses(self, features, target, epsilon):
        scores, log_pi = self.layer.fused_scores(features, self.shared, self.words)
        metrics = {} if log_pi is None else {"mixture_weights": log_pi.detach().exp()}
        loss = MixtureNLL.apply(
            log_pi, self.bias, self.grad_bias, target, (epsilon, self.z_loss), metrics, scores,
            *(s.values for s in scores)
        )  # fmt: skip
        return loss, metrics

    def gradients(self):
        self.words.workspace.buffers.clear()
        layer, sums = self.layer, iter(self.sums)
        grad_terms = [next(sums) if t.requires_grad else None for terms in self.shared.terms for t in terms]
        grad_learned = [next(sums) for _ in self.learned]
        if grad_terms:
            for start in range(0, layer.vocab_size, WORDS_AT_A_TIME):
                self.backward_word_terms(slice(start, start + WORDS_AT_A_TIME), grad_terms, grad_learned)
        by_parameter: Dict[Optional[Tensor], Optional[Tensor]] = dict(zip(self.learned, grad_learned))
        for matrix, gradient in zip(layer.matrices(), self.grad_matrices):  # a user may have tied some of them
            by_parameter[matrix] = by_parameter[matrix] + gradient if matrix in by_parameter else gradient
        by_parameter.update({layer.bias: self.grad_bias, layer.latent_projection: self.words.grad_latent})
        if layer.prior_projection is not None:
            by_parameter[layer.prior_projection] = next(sums)
        return [by_parameter.get(parameter) for parameter in layer.parameters()]

    def backward_word_terms(self, words: slice, grad_terms: List[Optional[Tensor]], grad_learned: List[Tensor]) -> None:
        """Adds the gradients that the word matrices, and learned hyper-parameters, have through these words' terms."""
        leaves = [matrix[words].detach().requires_grad_() for matrix in self.shared.matrices]
        with torch.enable_grad():
            terms = [term for of_kernel in word_terms(self.layer.components(), leaves) for term in of_kernel]
        pairs = [(t, grad[words]) for t, grad in zip(terms, grad_terms) if t.requires_grad and grad is not None]
        if not pairs:
            return
        outputs, grad_outputs = zip(*pairs)
        inputs = [*leaves, *self.learned]
        gradients = torch.autograd.grad(outputs, inputs, grad_outputs, allow_unused=True)
        grad_words = [total[words] for total in self.grad_matrices]
        add_up([*grad_words, *grad_learned], gradients)
