"""The papers' formulas in plain torch, written independently of the package: no Eq. 13, no chunks."""

import math

import torch
from torch.distributions import MultivariateNormal


def distances(weight, contexts):
    """||W_v - h||, (N, V), from the differences themselves."""
    return (weight.unsqueeze(0) - contexts.unsqueeze(1)).square().sum(-1).sqrt()


def inner_products(weight, contexts):
    return (weight.unsqueeze(0) * contexts.unsqueeze(1)).sum(-1)


def expected_likelihood(word_mean, word_variance, context_mean, context_variance):
    """log int N(x; mu_w, s_w I) N(x; mu_h, s_h I) dx = log N(mu_w; mu_h, (s_w + s_h) I), (N, V)."""
    variance = word_variance.unsqueeze(0) + context_variance.unsqueeze(1)
    covariance = variance[..., None, None] * torch.eye(word_mean.size(1), dtype=word_mean.dtype)
    return MultivariateNormal(context_mean.unsqueeze(1), covariance).log_prob(word_mean.unsqueeze(0))


def gaussians(vectors, components, floor):
    """Means and variances that equal blocks of coordinates stand for: the last one of each is its variance."""
    size = vectors.size(1) // components
    blocks = [vectors[:, i * size : (i + 1) * size] for i in range(components)]
    spread = math.sqrt(blocks[0].size(1) - 1)
    return [(block[:, :-1], (1 + (block[:, -1] / spread).exp()).log() + floor) for block in blocks]


def on_ball(vectors, cap):
    """x -> tanh(||x||) x / ||x||, the radius at most ``cap``."""
    norm = vectors.square().sum(-1, keepdim=True).sqrt()
    return torch.tanh(norm).clamp(max=cap) * vectors / norm


def mixture_of_gaussians(weight, contexts, components, floor):
    total = 0.0
    for word in gaussians(weight, components, floor):
        for context in gaussians(contexts, components, floor):
            total = total + expected_likelihood(*word, *context)
    return total


def hyperbolic(weight, contexts, gamma, cap):
    words, points = on_ball(weight, cap), on_ball(contexts, cap)
    gaps = (1 - words.square().sum(-1)).unsqueeze(0) * (1 - points.square().sum(-1)).unsqueeze(1)
    return -torch.acosh(1 + 2 * gamma * distances(words, points).square() / gaps)


# S(W, h) by name and hyper-parameters, Gao et al. 2019, Eq. 4-12; gamma D stands for D where a kernel has a width
FORMULAS = {
    "lin": lambda w, h: inner_products(w, h),
    "log": lambda w, h, p, gamma: -torch.log(gamma ** (p / 2) * distances(w, h) ** p + 1),
    "pow": lambda w, h, p, gamma: -(gamma ** (p / 2)) * distances(w, h) ** p,
    "pol": lambda w, h, alpha, c, p: (alpha * inner_products(w, h) + c) ** p,
    "rbf": lambda w, h, gamma: torch.exp(-gamma * distances(w, h) ** 2),
    "ssg": lambda w, h, floor: mixture_of_gaussians(w, h, 1, floor),
    "mog": lambda w, h, components, floor: mixture_of_gaussians(w, h, components, floor),
    "hpb": hyperbolic,
    "wav": lambda w, h, a, b: torch.cos(distances(w, h) ** 2 / a) * torch.exp(-(distances(w, h) ** 2) / b),
    "sig": lambda w, h: inner_products(w, h) + torch.log(1 / (1 + torch.exp(-inner_products(w, h)))),
    "abs": lambda w, h: inner_products(w, h).abs(),
}


def scores(kernel, weight, contexts):
    """S of one of the package's kernels, (N, V), with its present hyper-parameters."""
    values = {hyper.name: kernel.value(hyper.name) for hyper in kernel.all_hyperparameters()}
    scale = values.pop("scale")
    return scale * FORMULAS[kernel.name](weight, contexts, **values)


def log_probabilities(layer, features):
    """log p(v | h), p = sum_k pi_k softmax_v(S_k(W_v, h_k) + beta_v), h_k = tanh(C_k^T h), pi = softmax(M^T h)
    (Eq. 1-3): (N, d) to (N, V)."""
    matrices = [layer.weight, *layer.untied_weights]
    weights, contexts = torch.ones(len(features), 1, dtype=features.dtype), [features]
    if layer.prior_projection is not None:
        weights = torch.softmax(features @ layer.prior_projection, -1)
    if layer.latent_projection is not None:
        contexts = [layer.latent_activation(features @ projection) for projection in layer.latent_projection]
    parts = []
    for k, kernel in enumerate(layer.kernels):
        score = scores(kernel, matrices[k] if layer.untied else layer.weight, contexts[k])
        if layer.bias is not None:
            score = score + layer.bias
        parts.append(weights[:, k : k + 1].log() + torch.log_softmax(score, -1))
    return torch.logsumexp(torch.stack(parts), 0)


def nll(layer, features, target, ignore_index=None, label_smoothing=0.0):
    """-sum_v t_v log p(v | h) of each token, (N,): t is 1 - epsilon on the target, epsilon / (V - 1) elsewhere."""
    log_p = log_probabilities(layer, features)
    words = log_p.size(1)
    real = torch.ones_like(target, dtype=torch.bool) if ignore_index is None else target != ignore_index
    one_hot = torch.nn.functional.one_hot(target.where(real, torch.zeros_like(target)), words).to(log_p.dtype)
    if label_smoothing and words > 1:  # a single word has no other to give a share to
        wanted = label_smoothing / (words - 1) * (1 - one_hot) + (1 - label_smoothing) * one_hot
    else:
        wanted = one_hot
    return -(wanted * log_p).sum(-1) * real


def log_normal_integral(mean_a, variance_a, mean_b, variance_b, points=20001):
    """log int N(x; a) N(x; b) dx over R^m by the trapezoid rule, a coordinate at a time (the densities factorise)."""
    total = 0.0
    for a, b in zip(mean_a, mean_b):
        reach = 12 * math.sqrt(max(variance_a, variance_b))
        x = torch.linspace(float(min(a, b)) - reach, float(max(a, b)) + reach, points, dtype=torch.float64)
        density = torch.exp(-((x - a) ** 2) / (2 * variance_a) - (x - b) ** 2 / (2 * variance_b))
        total += math.log(float(torch.trapezoid(density, x)) / (2 * math.pi * math.sqrt(variance_a * variance_b)))
    return total
