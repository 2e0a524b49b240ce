"""A kernel of one's own, from its formula to a trained mixture: the cosine of word and context vector.

    python examples/own_kernel.py

First the formula, then a faster form of it; both give the same loss and gradients. Then ``2xlin,cosine`` learns which
of a few hundred words belongs to a noisy vector.
"""

import torch

from fairseq_kernels import GeneralizedSoftmax, Hyperparameter, Kernel, register_kernel


@register_kernel("cosine")
class Cosine(Kernel):
    """kappa W_v . h / (|W_v| |h|): scores in [-kappa, kappa], whatever the vectors' lengths."""

    hyperparameters = (Hyperparameter("kappa", 10.0, "positive"),)

    def word_terms(self, weight):  # (V, d) -> (V,) each
        return (weight.square().sum(1).clamp_min(1e-12).rsqrt(),)

    def context_terms(self, contexts):  # (n, d) -> (n, 1) each
        return (contexts.square().sum(1, keepdim=True).clamp_min(1e-12).rsqrt(),)

    def similarity(self, products, words, contexts):  # products: W_v . h, (n, V)
        return self.value("kappa") * products[0] * words[0] * contexts[0]


class InPlace(torch.autograd.Function):
    """The same with one (n, V) tensor in the place of autograd's several.

    It is given the hyper-parameters, the products, the words' and the contexts' terms. It may overwrite the products
    and the gradient that comes in: docs/design.md has the rule.
    """

    buffers = 2  # (n, V) tensors that it needs: nll chooses the size of its chunks by it

    @staticmethod
    def forward(ctx, kappa, product, word, context):
        ctx.save_for_backward(word, context)
        ctx.kappa, ctx.product = kappa, product.detach()
        return ctx.product * word * (kappa * context)

    @staticmethod
    def backward(ctx, grad):  # dL/dS (n, V)
        word, context = ctx.saved_tensors
        grad_product = grad * ctx.product  # times each factor but its own: the terms' gradients
        grad_word = (grad_product * (ctx.kappa * context)).sum(0)
        grad_context = ctx.kappa * (grad_product @ word.unsqueeze(1))
        grad_kappa = (grad_product * word * context).sum() if ctx.needs_input_grad[0] else None
        return grad_kappa, grad.mul_(word).mul_(ctx.kappa * context), grad_word, grad_context


@register_kernel("fast_cosine")
class FastCosine(Cosine):
    """:class:`Cosine` with its Function."""

    fused = InPlace


def compare() -> None:
    """Both forms have the same loss and gradients."""
    features, target = torch.randn(8, 16), torch.randint(100, (8,))
    layers = [GeneralizedSoftmax(16, 100, f"lin,{name}", kernel_params=f"{name}.kappa=learned")
              for name in ("cosine", "fast_cosine")]  # fmt: skip
    for parameter, other in zip(*(layer.parameters() for layer in layers)):
        other.data.copy_(parameter.data)
    losses = [layer.nll(features, target) for layer in layers]
    gradients = [torch.autograd.grad(loss, list(layer.parameters())) for loss, layer in zip(losses, layers)]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*gradients)
    print(f"loss of the formula {losses[0]:.4f}, of the Function {losses[1]:.4f}; their gradients agree")


def train(updates: int = 200) -> None:
    """Noisy copies of 300 vectors: which one is it?"""
    vectors = torch.randn(300, 32)
    layer = GeneralizedSoftmax(32, 300, "2xlin,fast_cosine", kernel_params="fast_cosine.kappa=learned")
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.02)
    for update in range(updates + 1):
        target = torch.randint(300, (64,))
        loss = layer.nll(vectors[target] + 0.5 * torch.randn(64, 32), target, reduction="mean")
        if update % 50 == 0:
            weights = layer.mixture_weights(vectors).mean(0)
            shown = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(layer.component_names(), weights))
            kappa = layer.kernels[2].value("kappa")
            print(f"update {update}: loss {loss:.3f}; mean weights {shown}; kappa {kappa:.1f}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    torch.manual_seed(1)
    compare()
    train()
