"""The generalized softmax of Gao et al. (2019): any kernel, or a mixture of kernels, in the place of W_v . h."""

from typing import List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..kernels.base import Pullback
from ..kernels.spec import KernelSpec, ParameterSpec, build_kernels
from .base import OutputLayer
from .chunked_loss import LossPass, chunks
from .mixture_loss import weigh
from .products import ProductBatch

CPU_TOKENS = 192  # a chunk on the CPU: with more, what is made of the scores leaves the caches
CPU_UNTIED_TOKENS = 128  # tokens a chunk on the CPU with a matrix a component
WORDS_AT_A_TIME = 4096  # whose terms are differentiated: their graph has several copies of the word vectors


class GeneralizedSoftmax(OutputLayer):
    """p(w_v | h) = sum_k pi_k softmax_v(S_k(W_v, h_k) + beta_v)   (Gao et al. 2019, Eq. 1-3)

    with pi = softmax(M^T h) and h_k = tanh(C_k^T h). A single kernel (K = 1) uses h itself and has no C and no M:
    "the exact same number of parameters" as the linear one (section 4.2); ``latent_projection`` gives it C.

    Args:
        embed_dim: d, dimension of context and word vectors.
        num_embeddings: V, number of words.
        kernels: a mixture such as ``"3xlin,log"``, or a list of names; see ``fairseq_kernels.kernels.KERNELS``.
        bias: whether every score has the word's bias beta_v added. Bounded kernels need it: without, rbf and wav
            can't give any word more than e^2 / V.
        untied: give each component its own projection matrix (the paper ties them).
        kernel_params: hyper-parameters, as ``"log.p=2,rbf.gamma=learned"`` or a mapping.
        memory_budget: bytes of work space for :meth:`nll`; default at most 192 MiB on the CPU, 512 MiB on CUDA.
        latent_projection: give a single kernel tanh(C^T h) too: a mixture's control.

    Attributes:
        weight: projection matrix W (V, d), of the first component if untied.
        untied_weights: those of the other components.
        bias: beta (V,) or None.
        context_maps: C (K, d, d), applied as h @ C_k; None for K = 1 without ``latent_projection``.
        mixture_map: M (d, K); None for K = 1.

    Raises:
        ValueError: an unknown kernel or hyper-parameter, a value outside its domain, a dimension below 1.
    """

    def __init__(
        self,
        embed_dim: int,
        num_embeddings: int,
        kernels: KernelSpec = "lin",
        bias: bool = True,
        untied: bool = False,
        kernel_params: ParameterSpec = None,
        memory_budget: Optional[int] = None,
        latent_projection: bool = False,
    ):
        found = build_kernels(kernels, embed_dim, kernel_params)
        kind = ",".join(kernel.name for kernel in found)
        settings = " ".join(sorted({kernel.extra_repr() for kernel in found}))
        super().__init__(embed_dim, num_embeddings, kind, settings, memory_budget)
        self.kernels = nn.ModuleList(found)
        components = len(self.kernels)
        self.untied = untied and components > 1
        self.weight = nn.Parameter(torch.empty(num_embeddings, embed_dim))
        self.untied_weights = nn.ParameterList(
            nn.Parameter(torch.empty(num_embeddings, embed_dim)) for _ in range(components - 1 if self.untied else 0)
        )
        self.bias = nn.Parameter(torch.empty(num_embeddings)) if bias else None
        mixed = components > 1
        mapped = mixed or latent_projection
        self.context_maps = nn.Parameter(torch.empty(components, embed_dim, embed_dim)) if mapped else None
        self.mixture_map = nn.Parameter(torch.empty(embed_dim, components)) if mixed else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As fairseq's ``output_projection``: normal with deviation d^-1/2; biases 0."""
        for weight in self.matrices():
            nn.init.normal_(weight, std=self.embed_dim**-0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if self.context_maps is not None:
            for context_map in self.context_maps:
                nn.init.xavier_uniform_(context_map)
        if self.mixture_map is not None:
            nn.init.xavier_uniform_(self.mixture_map)

    def prior_bias(self, prior):
        return prior.log()

    def matrices(self) -> List[nn.Parameter]:
        """The distinct projection matrices: one if tied, else one a component."""
        return [self.weight, *self.untied_weights]

    def component_names(self) -> List[str]:
        """The components' kernels, numbered where one occurs more than once: lin1, lin2, log."""
        names = [kernel.name for kernel in self.kernels]
        return [f"{n}{names[: i + 1].count(n)}" if names.count(n) > 1 else n for i, n in enumerate(names)]

    def mixture_weights(self, features: Tensor) -> Tensor:
        """pi (Eq. 2): (..., d) to (..., K), at least float32, differentiable; ones for K = 1."""
        if self.mixture_map is None:
            return features.new_ones(*features.shape[:-1], 1, dtype=torch.promote_types(features.dtype, torch.float32))
        flat = self._flatten(features)
        with torch.autocast(features.device.type, enabled=False):
            weights = log_mixture_weights(flat, self.mixture_map).exp()
        return weights.view(*features.shape[:-1], len(self.kernels))

    def log_probabilities(self, features: Tensor) -> Tensor:
        mixing = self.mixture_map is not None
        context_maps = None if self.context_maps is None else self.context_maps.to(features.dtype)
        contexts = component_contexts(features, context_maps)
        matrices, terms = self.kept(features.dtype, lambda: self._words(features.dtype))
        bias = None if self.bias is None else self.bias.to(features.dtype)
        products = ProductBatch(list(self.kernels), contexts, len(matrices)).multiply(matrices)
        result = None
        log_pi = log_mixture_weights(features, self.mixture_map).unbind(-1) if mixing else None
        for k, kernel in enumerate(self.kernels):
            scores = kernel.scores(products[k], terms[k], kernel.context_terms(contexts[k]))
            scores = F.log_softmax(scores if bias is None else scores + bias, dim=-1)
            if not mixing:
                return scores
            scores = scores + log_pi[k].unsqueeze(-1)
            result = scores if result is None else torch.logaddexp(result, scores)
        return result

    def _words(self, dtype: torch.dtype) -> Tuple[List[Tensor], List[Tuple[Tensor, ...]]]:
        """The projection matrices in ``dtype`` and each kernel's word terms."""
        matrices = [weight.to(dtype) for weight in self.matrices()]
        return matrices, word_terms(self.kernels, matrices)

    def loss_pass(self, dtype: torch.dtype, with_gradients: bool) -> "GeneralizedSoftmaxPass":
        return GeneralizedSoftmaxPass(self, dtype, with_gradients)

    def cpu_tokens(self) -> int:
        # untied, each component has a product of its own, which fewer rows make slow
        tokens = min(super().cpu_tokens() // len(self.kernels), CPU_TOKENS)
        return max(tokens, CPU_UNTIED_TOKENS if self.untied else 1)

    def row_bytes(self, dtype: torch.dtype) -> int:
        return self.num_embeddings * dtype.itemsize * sum(kernel.buffers for kernel in self.kernels)

    def extra_repr(self) -> str:
        tied = "untied" if self.untied else "tied"
        return f"embed_dim={self.embed_dim}, num_embeddings={self.num_embeddings}, {tied}, bias={self.bias is not None}"


def log_mixture_weights(features: Tensor, mixture_map: Tensor) -> Tensor:
    """log pi = log softmax(M^T h) (Eq. 2): (N, d) to (N, K)."""
    return F.log_softmax(features @ mixture_map.to(features.dtype), dim=-1)


def component_contexts(features: Tensor, context_maps: Optional[Tensor]) -> Tensor:
    """h_k = tanh(C_k^T h) (Eq. 3), (K, N, d); h itself, (1, N, d), for a single kernel."""
    return features.unsqueeze(0) if context_maps is None else torch.tanh(features @ context_maps)


def word_terms(kernels: Sequence, matrices: Sequence[Tensor]) -> List[Tuple[Tensor, ...]]:
    """Each kernel's word terms, of the shared matrix or of its own."""
    return [kernel.word_terms(matrices[k % len(matrices)]) for k, kernel in enumerate(kernels)]


class GeneralizedSoftmaxPass(LossPass):
    """``chunked_loss.LossPass`` of a :class:`GeneralizedSoftmax`.

    The V-sized part is written out: matrix products, kernels' pullbacks, :mod:`mixture_loss`, and h_k. What else has
    d columns or fewer (queries, pi, context terms) is autograd's, a small graph for each chunk.
    """

    def __init__(self, layer: GeneralizedSoftmax, dtype: torch.dtype, with_gradients: bool):
        self.layer, self.kernels, self.with_gradients = layer, list(layer.kernels), with_gradients
        self.bias, self.context_maps, self.mixture_map = (
            None if parameter is None else parameter.detach().to(dtype)
            for parameter in (layer.bias, layer.context_maps, layer.mixture_map)
        )
        if self.mixture_map is not None:
            self.mixture_map.requires_grad_(with_gradients)
        self.matrices = [matrix.detach().to(dtype) for matrix in layer.matrices()]
        self.products = {}
        with torch.no_grad():
            self.word_terms = word_terms(self.kernels, self.matrices)
        self.learned = [p for kernel in self.kernels for p in kernel.parameters()]
        if with_gradients:
            self.of_matrices = [torch.zeros_like(matrix) for matrix in self.matrices]
            self.of_word_terms = [tuple(torch.zeros_like(term) for term in terms) for terms in self.word_terms]
            self.of_bias = None if self.bias is None else torch.zeros_like(self.bias)
            self.of_context_maps, self.of_mixture_map = (
                None if leaf is None else torch.zeros_like(leaf) for leaf in (self.context_maps, self.mixture_map)
            )
            self.of_learned = {p: torch.zeros_like(p, dtype=dtype) for p in self.learned}

    def chunk(self, features, target, smoothing, token_weight):
        features = features.detach().requires_grad_(self.with_gradients)
        if self.context_maps is not None:
            contexts = component_contexts(features.detach(), self.context_maps)
            contexts.requires_grad_(self.with_gradients)
        with torch.set_grad_enabled(self.with_gradients):
            contexts = features.unsqueeze(0) if self.context_maps is None else contexts
            log_pi = None if self.mixture_map is None else log_mixture_weights(features, self.mixture_map)
            batch = ProductBatch(self.kernels, contexts, len(self.matrices), self.products)
            context_terms = [kernel.context_terms(contexts[k]) for k, kernel in enumerate(self.kernels)]
        with torch.no_grad():
            scores, pullbacks = self.scores(batch.multiply(self.matrices), context_terms)
            weighed = weigh(scores, log_pi, target, smoothing, self.with_gradients)
            if not self.with_gradients:
                return weighed.loss, weighed.nll, None
            factors, of_log_pi = list(weighed.factors), weighed.log_pi
            if token_weight is not None:
                token_weight = token_weight.unsqueeze(1)
                factors = [token_weight if factor is None else factor * token_weight for factor in factors]
                of_log_pi = None if of_log_pi is None else of_log_pi * token_weight
            of_products, of_context_terms = [], []
            for k, kernel in enumerate(self.kernels):
                gradient = weighed.scores[k]
                if self.of_bias is not None:
                    self.of_bias.addmv_(gradient.T, ones(gradient) if factors[k] is None else factors[k].squeeze(1))
                if factors[k] is not None and (context_terms[k] or kernel.learned()):
                    gradient *= factors[k]  # these sum over tokens, or are not the products'
                    factors[k] = None
                found = pullbacks[k](gradient)
                of_products.append(found.products)
                if found.factor != 1.0:
                    factor = ones(gradient).unsqueeze(1) if factors[k] is None else factors[k]
                    factors[k] = factor * found.factor
                of_context_terms.append(found.contexts)
                add_to(self.of_word_terms[k], found.words)
                add_to([self.of_learned[p] for p in kernel.parameters()], found.parameters)
            of_queries = batch.pull_back(of_products, factors, self.matrices, self.of_matrices)
        outputs = [query.vectors for query in batch.queries] + [t for terms in context_terms for t in terms] + [log_pi]
        gradients = [*of_queries, *(g for group in of_context_terms for g in group), of_log_pi]
        if self.context_maps is None:
            [of_features, *rest] = pull_back(outputs, [features, *self.learned], gradients)
        else:
            mixing = [] if self.mixture_map is None else [self.mixture_map]
            leaves = [features, contexts, *mixing, *self.learned]
            [of_features, of_contexts, *rest] = pull_back(outputs, leaves, gradients)
            if mixing:
                self.of_mixture_map += rest.pop(0)
            mapped = self.pull_back_contexts(features, contexts, of_contexts)
            of_features = mapped if of_features is None else of_features + mapped
        add_to(self.of_learned.values(), rest)
        return weighed.loss, weighed.nll, of_features

    @torch.no_grad()
    def pull_back_contexts(self, features: Tensor, contexts: Tensor, gradient: Tensor) -> Tensor:
        """h_k = tanh(h C_k): adds to the gradient of C in place, as K d x d are too many to add up copies of."""
        gradient = gradient.addcmul(gradient * contexts, contexts, value=-1)
        self.of_context_maps.baddbmm_(features.T.expand(len(contexts), -1, -1), gradient)
        return torch.bmm(gradient, self.context_maps.mT).sum(0)

    def scores(self, products, context_terms) -> Tuple[List[Tuple[Tensor, bool]], List[Optional[Pullback]]]:
        """Each component's scores with bias, whether they may be overwritten, and the kernels' pullbacks."""
        scores, pullbacks = [], []
        for k, kernel in enumerate(self.kernels):
            terms = products[k], self.word_terms[k], context_terms[k]
            if self.with_gradients:
                score, pullback = kernel.scores_and_pullback(*terms)
            else:
                score, pullback = kernel.scores(*terms), None
            free = kernel.closed_form or pullback is None
            if self.bias is not None:
                score, free = (score.add_(self.bias) if free else score + self.bias), True
            scores.append((score, free))
            pullbacks.append(pullback)
        return scores, pullbacks

    def gradients(self) -> List[Optional[Tensor]]:
        self.products.clear()
        if any(self.word_terms):
            for words in chunks(self.layer.num_embeddings, WORDS_AT_A_TIME):
                self.pull_back_word_terms(words)
        layer = self.layer
        found = dict(zip(layer.matrices(), self.of_matrices))
        found.update(self.of_learned)
        found[layer.bias] = self.of_bias
        found.update({layer.context_maps: self.of_context_maps, layer.mixture_map: self.of_mixture_map})
        return [found[parameter] for parameter in layer.parameters()]

    def pull_back_word_terms(self, words: slice) -> None:
        """Adds the gradients that the word matrices, and learned hyper-parameters, have through these words' terms."""
        leaves = [matrix[words].requires_grad_() for matrix in self.matrices]
        with torch.enable_grad():
            terms = [term for terms in word_terms(self.kernels, leaves) for term in terms]
        of_terms = [gradient[words] for group in self.of_word_terms for gradient in group]
        rest = pull_back(terms, [*leaves, *self.learned], of_terms)
        add_to([gradient[words] for gradient in self.of_matrices], rest)
        add_to(self.of_learned.values(), rest[len(leaves) :])


def pull_back(outputs, inputs, gradients) -> List[Optional[Tensor]]:
    """Autograd's gradients of ``inputs`` (None where there is none) from those outputs that have one."""
    pairs = [(o, g) for o, g in zip(outputs, gradients) if o is not None and g is not None and o.requires_grad]
    if not pairs:
        return [None] * len(inputs)
    outputs, gradients = zip(*pairs)
    return list(torch.autograd.grad(outputs, inputs, gradients, allow_unused=True))


def add_to(sums, gradients) -> None:
    """Adds each gradient that there is to its sum."""
    for total, gradient in zip(sums, gradients):
        if gradient is not None:
            total += gradient


def ones(gradient: Tensor) -> Tensor:
    return gradient.new_ones(len(gradient))
