"""The decorator of a backward that has no second derivative, and may be called under autocast."""

import functools

import torch
from torch.autograd import Function


def first_order(backward):
    """Runs a Function's backward without a graph and without autocast; what it returns says, where it is
    differentiated once more, what to do instead."""

    @functools.wraps(backward)
    def call(ctx, *grads):
        with torch.no_grad(), torch.autocast(grads[0].device.type, enabled=False):
            results = backward(ctx, *grads)
        if not torch.is_grad_enabled():
            return results
        anchor = torch.zeros((), requires_grad=True)  # so that autograd calls NoSecondDerivative.backward
        return tuple(None if result is None else NoSecondDerivative.apply(result, anchor) for result in results)

    return call


class NoSecondDerivative(Function):
    """A gradient as it is; differentiating it raises."""

    @staticmethod
    def forward(ctx, gradient, anchor):
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(
            "nll has no second derivative; differentiate the log-probabilities, layer(features), instead"
        )
