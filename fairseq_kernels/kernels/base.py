"""What a kernel S(W_v, h) is, and how its hyper-parameters are declared, checked, fixed or learned."""

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor, nn

Number = Union[int, float]


class Gradients(NamedTuple):
    """Of a kernel's inputs, given dL/dS.

    Args:
        products: one each, but for ``factor``.
        words: one of each word term.
        contexts: one of each context term.
        factor: of ``products``: there it would cost a pass over N x V numbers.
        values: of hyper-parameters' values, by name; of the learned ones at least that :meth:`Kernel.similarity` uses.
        parameters: of the kernel's parameters, None where there is none.
    """

    products: Tuple[Tensor, ...]
    words: Tuple[Tensor, ...] = ()
    contexts: Tuple[Tensor, ...] = ()
    factor: float = 1.0
    values: Mapping[str, Tensor] = MappingProxyType({})
    parameters: Tuple[Optional[Tensor], ...] = ()


Pullback = Callable[[Tensor], Gradients]


@dataclass(frozen=True)
class Hyperparameter:
    """One hyper-parameter of a kernel.

    Args:
        name: as written in ``--kernel-params "KERNEL.NAME=VALUE"``.
        default: value when nothing is said (the paper-like setting).
        domain: a key of :data:`DOMAINS`; ``"count"`` (integers from 1) can't be learned.
        learn_from: start of training for ``NAME=learned``; a number or a function of ``embed_dim``.
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
    """Where a hyper-parameter lives, and the bijection with R in which it is learned."""

    allowed: str
    contains: Callable[[Number], bool]
    to_real: Callable[[float], float] = None
    from_real: Callable[[Tensor], Tensor] = None


DOMAINS: Dict[str, Domain] = {
    "real": Domain("a finite number", math.isfinite, lambda x: x, lambda t: t * 1.0),
    # learned as logarithm and logit, so that a step of the optimiser is relative and never leaves the domain
    "positive": Domain("a number > 0", lambda x: 0 < x < math.inf, math.log, torch.exp),
    "unit": Domain("a number between 0 and 1", lambda x: 0 < x < 1, lambda x: math.log(x / (1 - x)), torch.sigmoid),
    "count": Domain("an integer >= 1", lambda x: float(x).is_integer() and x >= 1),
}


@dataclass(frozen=True)
class Learned:
    """Value of a hyper-parameter that is trained: from ``start``, or from its documented default start."""

    start: Union[None, float] = None


SCALE = Hyperparameter("scale", 1.0, "positive")


class Kernel(nn.Module):
    """A kernel function S(W_v, h) in the place of the softmax layer's inner product (Gao et al. 2019, Eq. 4-12).

    Every kernel of the paper is an element-wise function of inner products of W_v and h (or of blocks of their
    coordinates) and of a few numbers that depend on one of the two alone. A kernel therefore says

    - :meth:`queries`: which inner products it needs;
    - :meth:`word_terms` and :meth:`context_terms`: the numbers of each word and of each context vector;
    - :meth:`similarity`: how they combine to S,

    and the output layers do the matrix products, once for all kernels of a mixture that share W.
    A new kernel is a subclass with these methods (each has a default) and a name in ``KERNELS``.

    Args:
        embed_dim: d, the dimension of W_v and h.
        values: hyper-parameters by name: numbers, or :class:`Learned`.

    Raises:
        ValueError: a value outside its domain, or ``embed_dim`` too small for the kernel.
    """

    name: str
    hyperparameters: Tuple[Hyperparameter, ...] = ()
    closed_form_buffers: Optional[int] = None  # (N, V) tensors that the kernel's closed form holds, if it has one
    autograd_buffers = 8  # about as many for autograd

    def __init__(self, embed_dim: int, **values):
        super().__init__()
        self.embed_dim = embed_dim
        self._fixed: Dict[str, Number] = {}
        self._real = nn.ParameterDict()  # the learned ones, on their domain's real line
        for hyper in self.all_hyperparameters():
            self._set(hyper, values.get(hyper.name, hyper.default))

    @classmethod
    def all_hyperparameters(cls) -> Tuple[Hyperparameter, ...]:
        """The kernel's own hyper-parameters and ``scale``, which every kernel has."""
        return (*cls.hyperparameters, SCALE)

    def _set(self, hyper: Hyperparameter, value: Union[Number, Learned]) -> None:
        domain, name = DOMAINS[hyper.domain], f"{self.name}.{hyper.name}"
        learned = isinstance(value, Learned)
        if learned:
            if domain.to_real is None:
                raise ValueError(f"{name} is an integer and can't be learned; give {domain.allowed}")
            value = hyper.start(self.embed_dim) if value.start is None else value.start
        if not domain.contains(value):
            raise ValueError(f"{name}={value:g} is not allowed: it must be {domain.allowed}")
        if learned:
            self._real[hyper.name] = nn.Parameter(torch.tensor(domain.to_real(value)))
        else:
            self._fixed[hyper.name] = int(value) if hyper.domain == "count" else float(value)

    def value(self, name: str) -> Union[Number, Tensor]:
        """A hyper-parameter's present value: a number, or a scalar tensor with gradient if it is learned."""
        return self._fixed[name] if name in self._fixed else self._from_real(name, self._real[name])

    def _from_real(self, name: str, real: Tensor) -> Tensor:
        domain = next(h.domain for h in self.all_hyperparameters() if h.name == name)
        return DOMAINS[domain].from_real(real)

    def number(self, name: str) -> Number:
        """A hyper-parameter's present value as a number."""
        return self._fixed[name] if name in self._fixed else float(self.value(name).detach())

    def learned(self) -> Dict[str, float]:
        """Present values of the learned hyper-parameters, for logs."""
        return {name: self.number(name) for name in self._real}

    def queries(self, contexts: Tensor) -> List[Tuple[Tensor, slice]]:
        """The inner products needed: pairs of query vectors (N, m) and the words' coordinates they meet."""
        return [(contexts, slice(None))]

    def word_terms(self, weight: Tensor) -> Tuple[Tensor, ...]:
        """Numbers of each word: tensors (V,) from the projection matrix (V, d)."""
        return ()

    def context_terms(self, contexts: Tensor) -> Tuple[Tensor, ...]:
        """Numbers of each context vector: tensors (N, 1) from (N, d)."""
        return ()

    def similarity(self, products: Sequence[Tensor], words: Sequence[Tensor], contexts: Sequence[Tensor]) -> Tensor:
        """S before scaling, (N, V), from the products (N, V), word terms (V,) and context terms (N, 1)."""
        raise NotImplementedError

    def scores(self, products: Sequence[Tensor], words: Sequence[Tensor], contexts: Sequence[Tensor]) -> Tensor:
        """S(W_v, h) times the scale: (N, V), differentiable."""
        scale = self.value("scale")
        similarity = self.similarity(products, words, contexts)
        return similarity if isinstance(scale, float) and scale == 1.0 else similarity * scale

    def scores_and_pullback(
        self, products: Sequence[Tensor], words: Sequence[Tensor], contexts: Sequence[Tensor]
    ) -> Tuple[Tensor, Pullback]:
        """S as :meth:`scores`, without graph, and its pullback: dL/dS (N, V) to :class:`Gradients`. In the kernel's
        :attr:`closed_form`, if it has one, products and dL/dS may be overwritten, and S by others; else it is
        autograd's.
        """
        if not self.closed_form:
            return self.autograd_scores_and_pullback(products, words, contexts)
        similarity, pullback = self.closed_form_scores_and_pullback(products, words, contexts)
        scale, learned = self.number("scale"), "scale" in self._real
        if learned:
            scores = similarity * scale
        else:
            scores = similarity if scale == 1.0 else similarity.mul_(scale)

        def pullback_with_scale(gradient: Tensor) -> Gradients:
            of_scale = {"scale": dot(gradient, similarity)} if learned else {}
            found = pullback(gradient if scale == 1.0 else gradient.mul_(scale))
            return found._replace(parameters=self.of_parameters({**found.values, **of_scale}))

        return scores, pullback_with_scale

    def autograd_scores_and_pullback(self, products, words, contexts) -> Tuple[Tensor, Pullback]:
        # .data, not .detach(): other components overwrite their own parts of the same block of products
        inputs = [[t.data.requires_grad_() for t in group] for group in (products, words, contexts)]
        learned = tuple(self.parameters())
        with torch.enable_grad():
            scores = self.scores(*inputs)

        def pullback(gradient: Tensor) -> Gradients:
            found = iter(torch.autograd.grad(scores, [*sum(inputs, []), *learned], gradient, allow_unused=True))
            return Gradients(*(tuple(next(found) for _ in group) for group in inputs), parameters=tuple(found))

        return scores.detach(), pullback

    def of_parameters(self, of_values: Mapping[str, Tensor]) -> Tuple[Optional[Tensor], ...]:
        """The gradients of :meth:`parameters` from those of the hyper-parameters' values."""
        found = []
        for name, parameter in self._real.items():
            gradient = of_values.get(name)
            if gradient is not None:
                with torch.enable_grad():
                    real = parameter.detach().to(gradient.dtype).requires_grad_()
                    [gradient] = torch.autograd.grad(self._from_real(name, real), real, gradient)
            found.append(gradient)
        return tuple(found)

    @property
    def closed_form(self) -> bool:
        """Whether scores and pullback are written out."""
        return self.closed_form_buffers is not None

    @property
    def buffers(self) -> int:
        """(N, V) tensors alive in :meth:`scores_and_pullback`, for choosing the chunk."""
        return self.closed_form_buffers + len(self._real) if self.closed_form else self.autograd_buffers

    def closed_form_scores_and_pullback(self, products, words, contexts) -> Tuple[Tensor, Pullback]:
        """S before scaling and its pullback, as :meth:`scores_and_pullback` says, but without ``parameters``."""
        raise NotImplementedError

    def forward(self, weight: Tensor, contexts: Tensor) -> Tensor:
        """S for every word and context: weight (V, d), contexts (N, d) to (N, V)."""
        products = [query @ weight[:, columns].T for query, columns in self.queries(contexts)]
        return self.scores(products, self.word_terms(weight), self.context_terms(contexts))

    def extra_repr(self) -> str:
        fixed = [f"{name}={value:g}" for name, value in self._fixed.items()]
        return ", ".join([self.name, *fixed, *(f"{name}=learned" for name in self._real)])


def dot(one: Tensor, other: Tensor) -> Tensor:
    """Sum of the products of all elements, without a tensor of them."""
    return torch.dot(one.reshape(-1), other.reshape(-1))
