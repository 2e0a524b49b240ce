"""The base class of a kernel S(W_v, h), its hyper-parameters, fixed or learned, and the registry of kernels."""

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type, Union

import torch
from torch import Tensor, nn

from ..fused.inner_product import Product, Scale
from ..fused.matrix_products import HALF
from ..fused.mixture_nll import Scores

Number = Union[int, float]

KERNELS: Dict[str, Type["Kernel"]] = {}  # by name; register_kernel fills it


@dataclass(frozen=True)
class Hyperparameter:
    """One hyper-parameter of a kernel.

    Args:
        name: as written in ``--kernel-params "KERNEL.NAME=VALUE"``.
        default: value when nothing is said (the paper-like setting).
        domain: a key of :data:`DOMAINS`; ``"count"`` (integers, 1 to 1000) can't be learned.
        learn_from: start value of ``NAME=learned``; a number or a function of ``embed_dim``.
    """

    name: str
    default: Number
    domain: str
    learn_from: Union[None, Number, Callable[[int], float]] = None

    def start(self, embed_dim: int) -> float:
        start = self.default if self.learn_from is None else self.learn_from
        return float(start(embed_dim)) if callable(start) else float(start)


@dataclass(frozen=True)
class Domain:
    """The values a hyper-parameter may have, and the bijection with R in which it is learned."""

    allowed: str
    contains: Callable[[Number], bool]
    to_real: Callable[[float], float] = lambda x: x
    from_real: Callable[[Tensor], Tensor] = lambda t: t
    can_be_learned: bool = True

    def check(self, name: str, value: Number) -> None:
        """Raises ValueError for a value that isn't in the domain."""
        if not self.contains(value):
            raise ValueError(f"{name}={value:g} is not allowed: it must be {self.allowed}")


SMALLEST, LARGEST = 1e-12, 1e10  # beyond them float32 keeps no digit of some scores or gradients
MOST_OF_1 = 0.9999995  # no value learned of "unit" gets beyond it
DOMAINS: Dict[str, Domain] = {
    "real": Domain("a finite number, at most 1e10 in size", lambda x: abs(x) <= LARGEST, from_real=lambda t: t * 1.0),
    # learned as logarithm and logit, so that a step of the optimizer is relative and never leaves the domain
    "positive": Domain("a number from 1e-12 to 1e10", lambda x: SMALLEST <= x <= LARGEST, math.log, torch.exp),
    "unit": Domain(
        "a number between 0 and 1, at most 0.999999",  # of larger ones 1 - x has no digits in float32
        lambda x: 0 < x <= 0.999999,
        lambda x: math.log(x / (MOST_OF_1 - x)),
        lambda t: MOST_OF_1 * torch.sigmoid(t),
    ),
    "count": Domain(
        "an integer >= 1, at most 1000", lambda x: 1 <= x <= 1000 and float(x).is_integer(), can_be_learned=False
    ),
}


@dataclass(frozen=True)
class Learned:
    """Value of a hyper-parameter that is trained: from ``start``, or from its documented default start."""

    start: Union[None, float] = None


SCALE = Hyperparameter("scale", 1.0, "positive")
FORMULA_BUFFERS = 8  # (n, V) tensors, about, that autograd holds of a formula


def at_least_float32(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function for ``nn.Module._apply`` that does as ``function``, and changes no tensor to half precision."""

    def apply(tensor: Tensor) -> Tensor:
        result = function(tensor)
        return tensor.to(result.device) if result.dtype in HALF else result

    return apply


class Kernel(nn.Module):
    """A kernel function S(W_v, h), which replaces the softmax layer's inner product (Gao et al. 2019, Eq. 4-12).

    Every kernel of the paper is an element-wise function of inner products of W_v and h (or of blocks of their
    coordinates) and of a few numbers that depend on one of the two alone. In plain, differentiable torch a kernel says

    - :meth:`queries`: which inner products it needs;
    - :meth:`word_terms` and :meth:`context_terms`: the numbers of each word and of each context vector;
    - :meth:`similarity`: how they combine to S.

    The output layers compute the products, in one multiplication for all kernels of a mixture that share W; autograd
    does the rest. Only :meth:`similarity` has no default. A new kernel is a subclass with a name of its own, by
    :func:`register_kernel`: docs/extending.md and ``examples/own_kernel.py`` have one.

    Args:
        embed_dim: d, the dimension of W_v and h.
        values: hyper-parameters by name: numbers, or :class:`Learned`.

    Attributes:
        fused: the same formula as an ``autograd.Function`` that is faster (see ``fairseq_kernels.fused``), or None.
            A subclass does not inherit it: it would compute another formula.
        scaled_queries: whether S is linear in the queries, which the scale then multiplies: (N, d), not (N, V).
        takes_step: whether S(step W_v, h) is had by multiplying the queries, as for functions of W_v . h alone.
        step: the factor of the word vectors, which the layer sets.

    Raises:
        ValueError: a value outside its domain, a hyper-parameter that the kernel hasn't, or ``embed_dim`` too small
            for it.
    """

    name: str
    hyperparameters: Tuple[Hyperparameter, ...] = ()
    fused: Optional[Any] = None
    scaled_queries = takes_step = False
    step = 1.0
    scale = SCALE

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.fused = cls.__dict__.get("fused")

    def __init__(self, embed_dim: int, **values):
        super().__init__()
        self.embed_dim = embed_dim
        names = [hyper.name for hyper in self.all_hyperparameters()]
        for name in values.keys() - set(names):
            raise ValueError(f"kernel {self.name} has no hyper-parameter {name!r}; it has {', '.join(names)}")
        self._fixed: Dict[str, Number] = {}
        self._real = nn.ParameterDict()  # the learned ones, on their domain's real line
        self._starts: Dict[str, Tuple[str, float]] = {}  # their domains, and where they start on that line
        for hyper in self.all_hyperparameters():
            self._set(hyper, values.get(hyper.name, hyper.default))

    def _apply(self, function, recurse=True):
        """Learned values keep their precision under ``.half()``: their gradients are sums over all tokens."""
        return super()._apply(at_least_float32(function), recurse)

    @classmethod
    def all_hyperparameters(cls) -> Tuple[Hyperparameter, ...]:
        """The kernel's own hyper-parameters and ``scale``, which every kernel has."""
        return (*cls.hyperparameters, cls.scale)

    def _set(self, hyper: Hyperparameter, value: Union[Number, Learned]) -> None:
        domain, name = DOMAINS[hyper.domain], f"{self.name}.{hyper.name}"
        learned = isinstance(value, Learned)
        if isinstance(value, Learned):
            if not domain.can_be_learned:
                raise ValueError(f"{name} is an integer and can't be learned; give {domain.allowed}")
            value = hyper.start(self.embed_dim) if value.start is None else value.start
        domain.check(name, value)
        if learned:
            dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
            self._starts[hyper.name] = hyper.domain, domain.to_real(value)
            self._real[hyper.name] = nn.Parameter(torch.tensor(domain.to_real(value), dtype=dtype))
        else:
            self._fixed[hyper.name] = int(value) if hyper.domain == "count" else float(value)

    def value(self, name: str) -> Union[Number, Tensor]:
        """A hyper-parameter's present value: a number, or a scalar tensor with gradient if it is learned."""
        if name in self._fixed:
            return self._fixed[name]
        domain, _ = self._starts[name]
        return DOMAINS[domain].from_real(self._real[name])

    def reset_parameters(self) -> None:
        """Learned hyper-parameters as at the start."""
        for name, (_, start) in self._starts.items():
            nn.init.constant_(self._real[name], start)

    def learned(self) -> Dict[str, Tensor]:
        """Present values of the learned hyper-parameters, for logs: scalars without gradient."""
        return {name: torch.as_tensor(self.value(name)).detach() for name in self._real}

    def queries(self, contexts: Tensor) -> List[Tuple[Tensor, slice]]:
        """The inner products needed: pairs (query vectors (N, m), slice of m word coordinates)."""
        factor = self.step * (self.value("scale") if self.scaled_queries else 1.0)
        return [(contexts if isinstance(factor, float) and factor == 1 else contexts * factor, slice(None))]

    def word_terms(self, weight: Tensor) -> Tuple[Tensor, ...]:
        """Numbers of each word, by its own row alone: tensors (V,) from the projection matrix (V, d), or from a block
        of its rows."""
        return ()

    def context_terms(self, contexts: Tensor) -> Tuple[Tensor, ...]:
        """Numbers of each context vector: tensors (N, 1) from (N, d)."""
        return ()

    def similarity(self, products: Sequence[Tensor], words: Sequence[Tensor], contexts: Sequence[Tensor]) -> Tensor:
        """S before scaling, (N, V), from the products (N, V), word terms (V,) and context terms (N, 1)."""
        raise NotImplementedError(f"{type(self).__name__} has no similarity(products, words, contexts)")

    def scores(self, products: Sequence[Tensor], words: Sequence[Tensor], contexts: Sequence[Tensor]) -> Tensor:
        """S(W_v, h) times the scale: (N, V), differentiable, in the products' precision."""
        scale = 1.0 if self.scaled_queries else self.value("scale")
        similarity = self.similarity(products, words, contexts)
        if products:
            similarity = similarity.to(products[0].dtype)
        return similarity if isinstance(scale, float) and scale == 1.0 else similarity * scale

    def fused_scores(
        self, products: Sequence[Tensor], words: Sequence[Tensor], contexts: Sequence[Tensor], token_factor: List
    ) -> Scores:
        """:meth:`scores` by :attr:`fused`, if the kernel has it, with what the loss may do to them (the buffer rule).

        Args:
            token_factor: the list in which the loss may leave a factor where S is the product.
        """
        if self.fused is None:
            return Scores(self.scores(products, words, contexts), free=False)
        scale = 1.0 if self.scaled_queries else self.value("scale")
        similarity = self.fused.apply(*self.fused_values(), *products, *words, *contexts)
        if isinstance(scale, float) and scale == 1.0:
            return Scores(similarity, True, token_factor if self.fused is Product else None)
        return Scores(Scale.apply(similarity, scale), True)

    def score_buffers(self) -> int:
        """(n, V) tensors alive in a loss, for choosing the chunk."""
        return (FORMULA_BUFFERS if self.fused is None else self.fused.buffers) + len(self._real)

    def fused_values(self) -> Tuple[Union[Number, Tensor], ...]:
        """The first arguments of :attr:`fused`, before products, word and context terms."""
        return tuple(self.value(hyper.name) for hyper in self.hyperparameters)

    def forward(self, weight: Tensor, contexts: Tensor) -> Tensor:
        """S for every word and context: weight (V, d), contexts (N, d) to (N, V)."""
        products = [query.to(weight.dtype) @ weight[:, columns].T for query, columns in self.queries(contexts)]
        return self.scores(products, self.word_terms(weight), self.context_terms(contexts))

    def extra_repr(self) -> str:
        fixed = [f"{name}={value:g}" for name, value in self._fixed.items()]
        return ", ".join([self.name, *fixed, *(f"{name}=learned" for name in self._real)])


def check_interface(kernel: Kernel) -> None:
    """Calls a kernel's methods once, for two context vectors and three words. A TypeError names the one that returns
    something else than its docstring says, or a tensor without gradient."""
    dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
    weight, contexts = (torch.linspace(-1, 1, n * kernel.embed_dim, dtype=dtype).view(n, -1) for n in (3, 2))
    without_values = any(tensor.is_meta for tensor in (weight, *kernel.parameters()))
    if torch.is_inference_mode_enabled() or without_values:  # without gradients there is nothing to see, either
        return

    def expect(method: str, wanted: str, fits: bool) -> None:
        if not fits:
            raise TypeError(f"{type(kernel).__name__}.{method} must return {wanted}")

    with torch.enable_grad():
        weight.requires_grad_()
        contexts.requires_grad_()
        queries = kernel.queries(contexts)
        for vectors, columns in queries:
            start, stop, step = columns.indices(kernel.embed_dim)
            fits = step == 1 and vectors.shape == (2, stop - start) and vectors.requires_grad
            expect("queries", "pairs of vectors (N, m), made of the contexts, and a slice of m coordinates", fits)
        words, terms = kernel.word_terms(weight), kernel.context_terms(contexts)
        for method, given, shape in (("word_terms", words, (3,)), ("context_terms", terms, (2, 1))):
            fits = isinstance(given, (tuple, list)) and all(getattr(term, "shape", None) == shape for term in given)
            expect(method, "a tuple of tensors " + ("(V,)" if method == "word_terms" else "(N, 1)"), fits)
        products = [vectors.to(dtype) @ weight[:, columns].T for vectors, columns in queries]
        similarity = kernel.similarity(products, words, terms)
        fits = getattr(similarity, "shape", None) == (2, 3) and similarity.requires_grad
        expect("similarity", "a tensor (N, V) with a gradient: without detach, .data and no_grad", fits)


def register_kernel(name: str) -> Callable[[Type[Kernel]], Type[Kernel]]:
    """Decorator that makes a :class:`Kernel` known by a name (letters, digits and _, no digit first), to
    ``kernels="2xlin,NAME"`` and ``--kernels`` alike. The last one of a name counts."""

    def register(kernel: Type[Kernel]) -> Type[Kernel]:
        kernel.name = name
        KERNELS[name] = kernel
        return kernel

    return register
