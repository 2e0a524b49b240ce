"""KerBS' kernel (Miao et al. 2019, Eq. 9) in a form that keeps its digits for every theta."""

from typing import Tuple

import torch
from torch import Tensor

LIMIT = 30.0  # |theta| beyond which the kernel stays as it is: e^|theta| must fit a float32
LEAST = 1e-12  # stands for theta = 0, where the kernel is the inner product to 12 digits


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
    """K_theta(h, w) / (||h|| ||w||) = (alpha e^(-theta cos) - alpha), alpha = -theta / 2(e^-theta + theta - 1).

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
