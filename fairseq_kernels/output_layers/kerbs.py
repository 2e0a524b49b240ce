"""KerBS: several sense vectors a word, with a learned kernel shape each (Miao et al. 2019)."""

import math
from typing import Optional, Tuple

import torch
from torch import Tensor, nn
from torch.autograd import Function

from ..fused.distance import TINY  # keeps quotients by norms finite at the origin
from ..fused.matrix_products import backward_products, word_blocks, word_products
from ..fused.mixture_nll import Smoothing, log_sum_exp, softmax
from ..fused.word_product import Workspace
from .base import CPU_SENSE_TOKENS, OutputLayer, WorkSpace, finite
from .chunked_loss import LossPass, Metrics
from .sense_allocation import AllocationSettings, SenseAllocation, clear_moments_of

LIMIT = 30.0  # |theta| beyond which the kernel stays as it is: e^|theta| must fit a float32
LEAST = 1e-12  # stands for theta = 0, where the kernel is the inner product to 12 digits
USED = 0.01  # a sense with less than this part of its word counts as idle in logs


class KerBSoftmax(OutputLayer):
    """p(y = i | h) = sum_j p(s = <i,j>), p(s) = softmax of K_theta(h, w_s) over all senses, with

        K_theta(h, w) = ||h|| ||w|| alpha (e^(-theta cos(h, w)) - 1),  alpha = -theta / (2 (e^-theta + theta - 1))

    (Miao et al. 2019, Eq. 4, 5, 9): the inner product at theta = 0; the larger theta, the flatter near w.

    Args:
        embed_dim, num_embeddings, memory_budget: as in :class:`OutputLayer`.
        senses: S, number of sense vectors in all; default 3 V. They start out shared evenly, what is left over going
            to the first words (fairseq's dictionaries begin with the most frequent).
        bias: whether a word's bias beta_v is added to the scores of all its senses.
        kernel: whether scores are K_theta; False takes the inner product, without theta.
        positive_only: K_theta only where cos > 0, elsewhere the inner product, as the authors' released code.
        theta: its start.
        allocation: how senses move between words in training (section 4.2), in calls of :meth:`set_num_updates`; None:
            they stay.
        device, dtype: of the parameters, as in ``nn.Linear``.

    Attributes:
        weight: sense vectors (S, d).
        theta: (S,), or None.
        sense_word: the word of each sense (S,).
        bias: beta (V,) or None.

    Raises:
        ValueError: fewer senses than words, or more than the allocation allows.
    """

    name = "kerbs"
    sense_word: Tensor

    def __init__(
        self,
        embed_dim: int,
        num_embeddings: int,
        senses: Optional[int] = None,
        bias: bool = False,
        kernel: bool = True,
        positive_only: bool = False,
        theta: float = 0.0,
        allocation: Optional[AllocationSettings] = None,
        memory_budget: Optional[int] = None,
        device=None,
        dtype: Optional[torch.dtype] = None,
    ):
        kind = "kerbs" if kernel else "kerbs without kernel"
        super().__init__(embed_dim, num_embeddings, kind, "positive_only" if positive_only else "", memory_budget)
        senses = 3 * self.vocab_size if senses is None else senses
        if senses < self.vocab_size:
            raise ValueError(f"{senses} senses are too few for {self.vocab_size} words, which need one each")
        self.num_senses, self.positive_only, self.start_theta = int(senses), positive_only, float(theta)
        self.weight = nn.Parameter(torch.empty(self.num_senses, self.embed_dim))
        self.theta = nn.Parameter(torch.empty(self.num_senses)) if kernel else None
        self.bias = nn.Parameter(torch.empty(self.vocab_size)) if bias else None
        self.register_buffer("sense_word", torch.empty(self.num_senses, dtype=torch.long))
        self._table: Optional[Tuple[Tensor, Optional[int], Tensor]] = None
        self.allocation = None
        if allocation is not None:
            if allocation.maximum * self.vocab_size < self.num_senses:
                raise ValueError(f"{senses} senses are too many for words of at most {allocation.maximum} each")
            self.allocation = SenseAllocation(allocation, self.vocab_size, self.num_senses)
            clear_moments_of(self)
        self.to(device=device, dtype=dtype)
        self.reset_parameters()

    def __setstate__(self, state):
        super().__setstate__(state)  # of a copy, or from a file
        self._table = None  # may be of another version of the copied sense_word
        if self.allocation is not None:
            clear_moments_of(self)

    def adapt_state(self, state_dict, prefix):
        """A training whose senses move may go on as one whose senses stay, and the reverse."""
        averages = f"{prefix}allocation."
        if self.allocation is None:
            for name in [name for name in state_dict if name.startswith(averages)]:
                del state_dict[name]
        elif f"{prefix}sense_word" in state_dict:  # it is KerBS' state
            for name, start in self.allocation.state_dict(prefix=averages).items():
                state_dict.setdefault(name, start)

    def check_state(self, state_dict, prefix):
        super().check_state(state_dict, prefix)
        if not torch.bincount(state_dict[f"{prefix}sense_word"], minlength=self.vocab_size).all():
            raise ValueError(
                "the checkpoint has words without a sense: checkpoints with --output-layer kerbs can't be averaged, as "
                "senses move from word to word"
            )

    def reset_parameters(self) -> None:
        """Vectors as fairseq's ``output_projection``: normal with deviation d^-1/2; biases 0; no sense has moved."""
        super().reset_parameters()
        self.sense_word.copy_(torch.arange(self.num_senses) % self.vocab_size)
        for buffer in () if self.allocation is None else self.allocation.buffers():
            buffer.zero_()
        nn.init.normal_(self.weight, std=self.embed_dim**-0.5)
        if self.theta is not None:
            nn.init.constant_(self.theta, self.start_theta)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def weight_shape(self):
        return self.num_senses, self.embed_dim

    def prior_bias(self, prior):
        return (prior / torch.bincount(self.sense_word.to(prior.device), minlength=self.vocab_size)).log()

    def word_senses(self) -> Tensor:
        """The senses of each word, (V, most senses of a word), -1 where a word has fewer."""
        # a graph would have it for good, and inference mode counts no changes in place
        anew = torch.compiler.is_compiling() or self.sense_word.is_inference()
        version = None if anew else self.sense_word._version
        known = self._table
        if known is None or anew or known[0] is not self.sense_word or known[1] != version:
            with torch.inference_mode(False):  # autograd saves no tensors of inference mode
                order = torch.argsort(self.sense_word, stable=True)
                words = self.sense_word[order]
                counts = torch.bincount(words, minlength=self.vocab_size)
                table = order.new_full((self.vocab_size, int(counts.max())), -1)
                table[words, torch.arange(len(words), device=words.device) - (counts.cumsum(0) - counts)[words]] = order
            known = self._table = self.sense_word, version, table
        return known[2]

    def sense_scores(self, features: Tensor) -> Tensor:
        """K_theta(h, w_s), and the word's bias: (N, d) to (N, S), differentiable."""
        weight = self.weight.to(features.dtype)
        scores = self.kernel(features @ weight.T, norm(features), norm(weight).T, self.theta)
        return scores if self.bias is None else scores + finite(self.bias.to(features.dtype))[self.sense_word]

    def scores_of(self, features: Tensor, senses: Tensor, vectors: Tensor) -> Tensor:
        """K_theta of each context vector (..., d) and senses of its own (..., M), whose vectors are (..., M, d)."""
        products = (features.unsqueeze(-2) * vectors).sum(-1)
        theta = None if self.theta is None else self.theta[senses]
        return self.kernel(products, norm(features), norm(vectors).squeeze(-1), theta)

    def kernel(self, products: Tensor, context_norm: Tensor, sense_norm: Tensor, theta: Optional[Tensor]) -> Tensor:
        """K_theta from the inner products, whose shape the others' broadcast to; without theta these themselves."""
        if theta is None:
            return products
        scale = context_norm * sense_norm
        cosine = products / scale.clamp_min(TINY)
        return scale * bayesian_kernel(cosine, theta.to(products.dtype), self.positive_only)

    def log_probabilities(self, features):
        scores = self.sense_scores(features)
        return self.word_scores(scores) - scores.logsumexp(1, keepdim=True)

    def word_scores(self, scores: Tensor) -> Tensor:
        """The logsumexp over each word's senses: (N, S) to (N, V)."""
        [first, *others] = self.word_senses().T
        total = scores[:, first]  # every word has one
        for column in others:
            part = scores[:, column.clamp_min(0)].masked_fill(column < 0, -torch.inf)
            total = torch.logaddexp(total, part)
        return total

    def squared_log_partition(self, features):
        return self.sense_scores(features).logsumexp(1).square()

    def loss_pass(self, dtype, product_dtype, with_gradients):
        return KerBSPass(self, dtype, with_gradients)

    def work_space(self):
        return WorkSpace(2 * self.num_senses + 3 * self.vocab_size, CPU_SENSE_TOKENS)

    def losses(self, tokens, smoothing, summed):
        loss, metrics = super().losses(tokens, smoothing, summed)
        shares = metrics.pop("sense_shares")
        if self.training and self.allocation is not None and loss.requires_grad:
            senses = self.word_senses()[tokens.target].clamp_min(0)
            self.allocation.observe(loss, tokens.target, senses, metrics["nll"], shares)
        return loss, metrics

    def observe(self, features):
        """The mean theta, words of several senses, senses in use, senses moved so far: () each."""
        several = (torch.bincount(self.sense_word, minlength=self.vocab_size) > 1).sum().float()
        observed = {"words_of_several_senses": several}
        if self.theta is not None:
            observed["mean_theta"] = self.theta.detach().float().mean()
        if self.allocation is not None:
            used = self.allocation.usage > USED
            observed.update(senses_in_use=used.sum().float(), senses_moved=self.allocation.moves.float())
        return observed

    def set_num_updates(self, num_updates: int) -> None:
        """Tells the layer the number of updates. Senses may move in this call. fairseq calls it before every
        batch; your own training loop must, too. Under DDP with several batches an update, your loop needs
        ``no_sync()`` or ``broadcast_buffers=False``, else the first process's counts overwrite the others'."""
        if self.training and self.allocation is not None:
            self.allocation.update(self, num_updates)


def norm(vectors: Tensor) -> Tensor:
    """||x||, (..., d) to (..., 1)."""
    return torch.linalg.vector_norm(vectors, dim=-1, keepdim=True) + TINY


def clamped(theta: Tensor) -> Tensor:
    """theta within the limits and away from 0; its gradient is 0 outside of the limits."""
    theta = theta.clamp(-LIMIT, LIMIT)
    return torch.where(theta.abs() < LEAST, theta + LEAST, theta)


def divisor(theta: Tensor) -> Tuple[Tensor, Tensor]:
    """D = 2 (e^-theta + theta - 1) / theta^2, with which alpha = -1 / theta D, and dD/dtheta. Computed in float64, and
    near 0, where D is 1 and the closed forms lose all digits, by their series."""
    wide = theta.double()
    near = wide.abs() < 0.5
    safe = torch.where(near, torch.ones_like(wide), wide)
    value = 2 * (torch.expm1(-safe) + safe) / safe.square()
    slope = 2 * (-torch.expm1(-safe) * safe - 2 * (torch.expm1(-safe) + safe)) / safe**3
    series, derivative, term = torch.ones_like(wide), torch.zeros_like(wide), torch.ones_like(wide)
    for k in range(1, 16):  # D = 2 sum_k (-theta)^k / (k + 2)!
        derivative = derivative - term * k / (k + 2)
        term = term * -wide / (k + 2)
        series = series + term
    return torch.where(near, series, value).to(theta.dtype), torch.where(near, derivative, slope).to(theta.dtype)


def switch(dtype: torch.dtype) -> float:
    """|theta| below which the gradient of theta comes from a series: the closed form loses eps / theta there."""
    return torch.finfo(dtype).eps ** 0.25


def bayesian_kernel(cosine: Tensor, theta: Tensor, positive_only: bool = False) -> Tensor:
    """K_theta(h, w) / (||h|| ||w||) = alpha (e^(-theta cos) - 1), alpha = -theta / (2 (e^-theta + theta - 1)).

    Args:
        cosine: of context and sense vectors, (N, S).
        theta: (S,).
        positive_only: the plain cosine where it is negative, as the authors' released code.
    """
    theta = clamped(theta)
    near = theta.abs() < switch(theta.dtype)
    step = -theta * cosine
    series = cosine * (1 + step / 2 * (1 + step / 3 * (1 + step / 4 * (1 + step / 5))))
    value = torch.where(near, series, torch.expm1(step) / torch.where(near, -torch.ones_like(theta), -theta))
    value = value / divisor(theta)[0]
    return torch.where(cosine > 0, value, cosine) if positive_only else value


class SenseNLL(Function):
    """The loss of each token of a chunk, (n,), from its features (n, d); backward adds the gradients of the senses to
    the sums of the pass. ``metrics`` receives ``nll`` (n,) and ``sense_shares`` (n, M)."""

    @staticmethod
    def forward(ctx, features, work, target, epsilon, metrics):
        ctx.work = work
        loss, seen, ctx.saved = work.forward(features, target, epsilon)
        metrics.update(seen)
        return loss

    @staticmethod
    def backward(ctx, grad_loss):
        return ctx.work.backward(*ctx.saved, grad_loss.unsqueeze(1)), None, None, None, None


class KerBSPass(LossPass):
    """The loss of a :class:`KerBSoftmax`.

    With x = -theta cos and curved = exp(x) - 1, S = ||h|| outward_s curved; outward = -||w|| / theta D
    (:func:`divisor`). dL/dtheta, of which every token has a part, follows from sums of dL/dS curved and from dL/dW, so
    that beside the scores only curved is stored. All but the softmax is done a block of senses at a time, while it is
    in the caches.
    """

    def __init__(self, layer: KerBSoftmax, dtype: torch.dtype, with_gradients: bool):
        self.layer, self.with_gradients = layer, with_gradients
        self.weight = layer.weight.detach().to(dtype)
        self.bias = None if layer.bias is None else finite(layer.bias.detach().to(dtype))
        self.table = layer.word_senses()
        self.blocks = word_blocks(len(self.weight), CPU_SENSE_TOKENS, self.weight.device)
        self.workspace = Workspace()
        if layer.theta is not None:
            self.theta = clamped(layer.theta.detach().to(dtype))
            self.norms = norm(self.weight).squeeze(1)
            self.divisor, self.divisor_slope = divisor(self.theta)
            self.inward, self.outward = -self.theta / self.norms, -self.norms / (self.theta * self.divisor)
            self.near = self.theta.abs() < switch(dtype)
            self.has_near = [bool(self.near[senses].any()) for senses in self.blocks]
        if with_gradients:
            self.grad_weight = torch.zeros_like(self.weight)
            self.grad_bias = None if self.bias is None else torch.zeros_like(self.bias)
            if layer.theta is not None:
                self.grad_outward, self.grad_curved, self.grad_near = (torch.zeros_like(self.theta) for _ in range(3))

    def losses(self, features, target, epsilon):
        metrics: Metrics = {}
        return SenseNLL.apply(features, self, target, epsilon, metrics), metrics

    def forward(self, features: Tensor, target: Tensor, epsilon: float) -> Tuple[Tensor, Metrics, Tuple]:
        """Losses (n,), metrics, and the first arguments of :meth:`backward`."""
        length = norm(features) if self.layer.theta is not None else torch.ones_like(features[:, :1])
        queries = features / length
        scores = self.workspace.rows("scores", features, len(self.weight))
        curved = scores if self.layer.theta is None else self.workspace.rows("curved", features, len(self.weight))
        for senses in self.blocks:
            word_products(queries, self.weight[senses], out=curved[:, senses])
            if self.layer.theta is not None:
                self.kernel(curved[:, senses], senses, length, scores[:, senses])
        if self.bias is not None:
            scores.add_(self.bias[self.layer.sense_word])
        loss, nll, shares, grad_scores = self.sense_losses(scores, target, epsilon)
        return loss, {"nll": nll.detach(), "sense_shares": shares}, (grad_scores, curved, queries, length)

    def kernel(self, products: Tensor, senses: slice, length: Tensor, scores: Tensor) -> None:
        """Scores (n, block) of the senses; their products become ``curved``."""
        if self.layer.positive_only:
            positive, plain = products > 0, products / self.outward[senses]
        curved = products.mul_(self.inward[senses]).expm1_()
        if self.layer.positive_only:
            curved.copy_(torch.where(positive, curved, plain))
        torch.mul(curved, self.outward[senses], out=scores).mul_(length)

    def sense_losses(self, scores: Tensor, target: Tensor, epsilon: float):
        """Losses (n,), the same without label smoothing, p(s | y) of the target's senses (n, M), 0 where it has fewer,
        and dL/dscores, which takes the scores' place."""
        senses = self.table[target]
        missing, senses = senses < 0, senses.clamp_min(0)
        own = scores.gather(1, senses).masked_fill_(missing, -torch.inf)
        at_target = own.logsumexp(1)
        shares = (own - at_target.unsqueeze(1)).exp_()  # p(s | y)
        if epsilon:
            loss, nll, grad_scores = self.smoothed_losses(scores, target, epsilon, at_target)
        else:
            peak, grad_scores = scores.amax(1), None
            if self.with_gradients:
                grad_scores, log_sum = softmax(scores, True)
                if self.z_loss:
                    grad_scores.mul_((1 + 2 * self.z_loss * (peak + log_sum)).unsqueeze(1))
                grad_scores.scatter_add_(1, senses, -shares)
            else:
                log_sum = log_sum_exp(scores, True, peak)
            nll = log_sum + (peak - at_target)
            loss = nll + self.z_loss * (peak + log_sum).square()
        return loss, nll, shares, grad_scores

    def smoothed_losses(self, scores, target, epsilon, at_target):
        smoothing = Smoothing.over(self.layer.vocab_size, epsilon)
        words = self.layer.word_scores(scores)
        partition = scores.logsumexp(1)
        nll = partition - at_target
        loss = partition - smoothing.on_target * at_target - smoothing.everywhere * words.sum(1)
        loss, slope = loss + self.z_loss * partition.square(), 1 + 2 * self.z_loss * partition.unsqueeze(1)
        if not self.with_gradients:
            return loss, nll, None
        # dL/dS_s = p(s) - t_word p(s | word); log t_word - logsumexp of the word's senses takes the words' place
        if smoothing.everywhere:
            words.neg_().add_(math.log(smoothing.everywhere))
        words.scatter_(1, target.unsqueeze(1), math.log(sum(smoothing)) - at_target.unsqueeze(1))
        for senses in self.blocks:
            block = scores[:, senses]
            probability = (block - partition.unsqueeze(1)).exp_().mul_(slope)
            torch.sub(probability, block.add_(words[:, self.layer.sense_word[senses]]).exp_(), out=block)
        return loss, nll, scores

    def backward(self, grad_scores, curved, queries, length, weight) -> Tensor:
        """dL/dfeatures, given dL/dloss (n, 1); adds to the sums of the senses."""
        if self.grad_bias is not None:
            self.grad_bias.index_add_(0, self.layer.sense_word, (weight.T @ grad_scores).squeeze(0))
        factor = length * weight
        weighted, factors = queries * factor, factor.squeeze(1)
        grad_queries, grad_length = torch.zeros_like(queries), torch.zeros_like(factors)
        for index, senses in enumerate(self.blocks):
            grad_products = grad_scores[:, senses]
            if self.layer.theta is not None:
                grad_products = self.backward_kernel(index, grad_products, curved[:, senses], factors, grad_length)
            grad_queries += backward_products(grad_products, weighted, self.weight[senses], self.grad_weight[senses])
        if self.layer.theta is not None:
            radial = grad_length.unsqueeze(1) - (grad_queries * queries).sum(1, keepdim=True)
            grad_queries.addcmul_(queries, radial)
        return grad_queries.mul_(weight)

    def backward_kernel(self, index, grad_scores, curved, factors, grad_length) -> Tensor:
        """dL/dproducts (n, block), to be multiplied by the factors; adds to the sums of the block's senses and to
        dL/dlength."""
        senses = self.blocks[index]
        product = self.workspace.rows("products", grad_scores, grad_scores.size(1))
        torch.mul(grad_scores, curved, out=product)  # dL/dS curved
        self.grad_outward[senses].addmv_(product.T, factors)
        grad_length.addmv_(product, self.outward[senses])
        own = product
        if self.layer.positive_only:
            positive = curved * self.theta[senses] < 0  # elsewhere curved stands for the inner product
            own = product * positive
            self.grad_curved[senses].addmv_(own.T, factors)
        if self.has_near[index]:
            # ((1 + c) log(1 + c) - c) / c of c = curved, by its series
            series = curved.mul(1 / 12).sub_(1 / 6).mul_(curved).add_(1 / 2).mul_(curved)
            self.grad_near[senses].addmv_(series.mul_(own).T, factors)
        if self.layer.positive_only:
            own += grad_scores * positive
            return own.div_(self.divisor[senses]).add_(grad_scores * ~positive)
        return product.add_(grad_scores).div_(self.divisor[senses])

    def gradients(self):
        layer = self.layer
        by_parameter = {layer.weight: self.grad_weight, layer.bias: self.grad_bias}
        if layer.theta is not None:
            theta, divisor = self.theta, self.divisor
            along = (self.weight * self.grad_weight).sum(1)  # sum dL/dproduct product
            # S by ||w||, through outward and through cos = product / ||h|| ||w||
            radial = (self.grad_outward * self.outward - along) / self.norms
            self.grad_weight.addcmul_(self.weight, (radial / self.norms).unsqueeze(1))
            curved = self.grad_curved if layer.positive_only else self.grad_outward
            slope = (along * divisor / self.norms + self.grad_outward / theta) / theta
            slope = torch.where(self.near, -self.grad_near / theta.square(), slope)
            grad_theta = self.norms * (slope / divisor + curved / theta * self.divisor_slope / divisor.square())
            inside = layer.theta.detach().abs() <= clamped(torch.full_like(layer.theta, torch.inf))
            by_parameter[layer.theta] = grad_theta * inside
        return [by_parameter.get(parameter) for parameter in layer.parameters()]
