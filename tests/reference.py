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
    if not len(context_mean):  # torch's fails without tokens
        return word_mean.new_zeros(0, len(word_mean))
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
    "cap": lambda w, h, c, alpha: c * torch.tanh(alpha * inner_products(w, h) / c),
    "cos": lambda w, h: torch.nn.functional.cosine_similarity(w.unsqueeze(0), h.unsqueeze(1), dim=-1, eps=1e-300),
}


def scores(kernel, weight, contexts):
    """S of one of the package's kernels, (N, V), with its present hyper-parameters."""
    values = {hyper.name: kernel.value(hyper.name) for hyper in kernel.all_hyperparameters()}
    scale = values.pop("scale")
    return scale * FORMULAS[kernel.name](weight * kernel.step, contexts, **values)


def components(layer, features):
    """pi (N, K) and S_k + beta (N, V) of each component: h_k = tanh(C_k^T h), pi = softmax(M^T h) (Eq. 1-3)."""
    matrices = [layer.weight, *layer.untied_weights]
    weights, contexts = torch.ones(len(features), 1, dtype=features.dtype), [features]
    if layer.prior_projection is not None:
        weights = torch.softmax(features @ layer.prior_projection, -1)
    if layer.latent_projection is not None:
        contexts = [layer.latent_activation(features @ projection) for projection in layer.latent_projection]
    bias = 0.0 if layer.bias is None else layer.bias
    return weights, [
        scores(kernel, matrices[k] if layer.untied else layer.weight, contexts[k]) + bias
        for k, kernel in enumerate(layer.kernels)
    ]


def kerbs_scores(layer, features):
    """K_theta(h, w_s) of every sense as printed (Miao et al. 2019, Eq. 9), with the word's bias, (N, S)."""
    length = features.norm(dim=1, keepdim=True) * layer.weight.norm(dim=1)
    score = features @ layer.weight.T
    if layer.theta is not None:
        theta = layer.theta
        alpha = -theta / (2 * (torch.exp(-theta) + theta - 1))
        curved = length * (alpha * torch.exp(-theta * score / length) - alpha)
        score = torch.where(score > 0, curved, score) if layer.positive_only else curved
    return score if layer.bias is None else score + layer.bias[layer.sense_word]


NUMERATORS = {
    "taylor": lambda layer, o: 1 + o + o**2 / 2,
    "spherical": lambda layer, o: o**2 + layer.epsilon,
    "squared-error": lambda layer, o: o.clamp_min(1e-8),
    "softmax-bound": lambda layer, o: o.exp(),
}


def log_probabilities(layer, features):
    """log p(v | h) of any layer, (N, d) to (N, V)."""
    if layer.name == "kernels":
        weights, parts = components(layer, features)
        joint = [weights[:, k : k + 1].log() + torch.log_softmax(part, -1) for k, part in enumerate(parts)]
        return torch.logsumexp(torch.stack(joint), 0)
    if layer.name == "kerbs":
        senses = torch.softmax(kerbs_scores(layer, features), dim=1)
        return torch.stack([senses[:, layer.sense_word == word].sum(1) for word in range(layer.vocab_size)], 1).log()
    numerators = NUMERATORS[layer.name](layer, outputs(layer, features))
    return (numerators / numerators.sum(1, keepdim=True)).log()


def outputs(layer, features):
    """o = W h + beta of the spherical family, (N, V)."""
    result = torch.einsum("nd,vd->nv", features, layer.weight)
    return result if layer.bias is None else result + layer.bias


def bouchard(o, xi):
    """Bouchard's (2007) bound of log sum_v exp(o_v), its alpha at the minimum: (N, V) and (X,) to (X, N)."""
    xi = xi.view(-1, 1, 1)
    slope = (1 / (1 + torch.exp(-xi)) - 0.5) / (2 * xi)

    def at(alpha):
        shifted = o - alpha
        parts = (shifted - xi) / 2 + slope * (shifted**2 - xi**2) + torch.nn.functional.softplus(xi)
        return alpha + parts.sum(2)

    low, middle, high = at(-1), at(0), at(1)  # a parabola in alpha
    return middle - (high - low) ** 2 / (8 * (high + low - 2 * middle))


def z_loss(layer, features):
    """sum_k pi_k (log Z_k)^2 of each token, (N,); KerBS has one partition."""
    if layer.name == "kerbs":
        return kerbs_scores(layer, features).logsumexp(1).square()
    weights, parts = components(layer, features)
    return sum(weights[:, k] * part.logsumexp(1).square() for k, part in enumerate(parts))


def losses(layer, features, target, smoothing=0.0):
    """The loss of each token, (N,): -sum_v t_v log p(v | h), t being 1 - epsilon on the target and epsilon / (V - 1)
    elsewhere; ||o - e_y||^2; Bouchard's bound minus o_y."""
    words = layer.vocab_size
    one_hot = torch.nn.functional.one_hot(target, words).to(features.dtype)
    if layer.name == "squared-error":
        return (outputs(layer, features) - one_hot).square().sum(1)
    if layer.name == "softmax-bound":
        o = outputs(layer, features)
        return bouchard(o, torch.tensor([layer.xi], dtype=o.dtype))[0] - (o * one_hot).sum(1)
    wanted = one_hot
    if smoothing and words > 1:  # a single word has no other to give a share to
        wanted = smoothing / (words - 1) * (1 - one_hot) + (1 - smoothing) * one_hot
    return -(wanted * log_probabilities(layer, features)).sum(-1)
