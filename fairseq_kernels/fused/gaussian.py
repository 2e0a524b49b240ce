"""Expected likelihoods of Gaussians: see ``fairseq_kernels.kernels.gaussian`` for the formula."""

import itertools
import math

import torch
from torch.autograd import Function


def factors_at_a_time(variances) -> int:
    """How many precisions can be multiplied in float32 before one logarithm, which costs more, is taken of them all."""
    # on CUDA the look would wait for the device
    if variances[0].device.type != "cpu":
        return 2
    if all(((s > 1e-8) & (s < 1e8)).all() for s in variances):
        return 4
    return 2 if all((s > 1e-16).all() for s in variances) else 1


class MixtureOfGaussians(Function):
    """Sum over pairs of components (i, j) of (m/2) log(r / 2 pi) - r D / 2, r = 1 / (s_W + s_h), D = ||mu_W - mu_h||^2.

    ``tensors``: the products of the pairs, ||mu_W||^2 and s_W of each component, ||mu_h||^2 and s_h of each.
    """

    @staticmethod
    def forward(ctx, components, mean_size, *tensors):
        n, m = components, mean_size
        products, words, contexts = tensors[: n * n], tensors[n * n : n * n + 2 * n], tensors[n * n + 2 * n :]
        ctx.pairs, ctx.components, ctx.mean_size = list(itertools.product(range(n), range(n))), n, m
        score, ctx.saved, together = None, [], factors_at_a_time([*words[n:], *contexts[n:]])
        for start in range(0, len(ctx.pairs), together):
            factors = None
            for place, (i, j) in enumerate(ctx.pairs[start : start + together], start):
                # no clamp at 0: a distance of a rounding error below it does no harm here
                product = products[place].detach()
                weighted = torch.sub(words[i], product, alpha=2).add_(contexts[j])
                precision = torch.add(words[n + i], contexts[n + j], out=product).reciprocal_()
                weighted.mul_(precision)
                score = weighted * -0.5 if score is None else score.sub_(weighted, alpha=0.5)
                factors = precision.clone() if factors is None else factors.mul_(precision)
                ctx.saved.append((weighted, precision))
            pairs = min(together, len(ctx.pairs) - start)
            score.add_(factors.log_().sub_(pairs * math.log(2 * math.pi)), alpha=m / 2)
        return score

    @staticmethod
    def backward(ctx, grad_score):
        n, m = ctx.components, ctx.mean_size
        grad_products, grad_words, grad_contexts = [], [0.0] * (2 * n), [0.0] * (2 * n)
        for (i, j), (weighted, precision) in zip(ctx.pairs, ctx.saved):
            # dS/dD = -r / 2, dS/ds = r (r D - m) / 2, dS/dg = r
            grad_product = precision.mul_(grad_score)
            spread = weighted.mul_(grad_product)
            for sums, dim, index in ((grad_words, 0, i), (grad_contexts, 1, j)):
                sum_product, sum_spread = (tensor.sum(dim, keepdim=bool(dim)) for tensor in (grad_product, spread))
                sums[index] = sums[index] - sum_product / 2
                sums[n + index] = sums[n + index] + (sum_spread - m * sum_product) / 2
            grad_products.append(grad_product)
        return None, None, *grad_products, *grad_words, *grad_contexts
