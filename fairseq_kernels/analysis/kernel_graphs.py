"""Graphs of kernels over the distance of word and context vector, and their gradients (Gao et al. 2019, section 4.3,
Figure 1). ``scripts/figure1.sh`` runs it."""

from pathlib import Path
from typing import Tuple

import torch
from torch import Tensor

from ..errors import CommandParser, one_line_errors
from ..kernels import KERNELS, Kernel
from ..kernels.distance import DistanceKernel
from ..kernels.spec import build_kernels, parse_kernels
from .curves import file_pyplot

DISTANCE_KERNELS = [name for name, kernel in KERNELS.items() if issubclass(kernel, DistanceKernel)]
POINTS = 100


def graph(kernel: Kernel, distance: Tensor) -> Tuple[Tensor, Tensor]:
    """S and dS/dr (N,) of a kernel at r = ||W_v - h||, in float64.

    Args:
        kernel: a function of the distance alone, with an ``embed_dim`` of 1.
        distance: (N,), positive: at 0 some kernels have no gradient.
    """
    distance = distance.detach().double().requires_grad_()
    values = kernel(distance.unsqueeze(1), distance.new_zeros(1, 1)).squeeze(0)
    [gradient] = torch.autograd.grad(values.sum(), distance)
    return values.detach(), gradient


def plot(kernels: str, kernel_params: str, max_distance: float, path: Path) -> None:
    """Values on the left, gradients on the right, at distances up to ``max_distance``."""
    names = parse_kernels(kernels)
    for name in set(names) - set(DISTANCE_KERNELS):
        raise ValueError(f"{name} is no function of the distance alone; choose from {', '.join(DISTANCE_KERNELS)}")
    x = torch.linspace(0, max_distance, POINTS + 1, dtype=torch.float64)[1:]
    label = r"$\|W_v - h\|$"
    pyplot = file_pyplot()
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name, kernel in zip(names, build_kernels(names, 1, kernel_params)):
        settings = ", ".join(f"{hyper.name} {kernel.value(hyper.name):g}" for hyper in kernel.all_hyperparameters())
        for axis, values in zip(axes, graph(kernel, x)):
            axis.plot(x, values, label=f"{name} ({settings.removesuffix(', scale 1')})")
    for axis, title in zip(axes, ("$S$", rf"$\partial S / \partial$ {label}")):
        axis.axhline(0, color="grey", linewidth=0.5)
        # pow falls without end: what the bounded kernels do near 0 must stay visible
        low, high = axis.get_ylim()
        axis.set(xlabel=label, ylabel=title, xlim=(0, None), ylim=(max(low, -4), min(high, 4)))
    axes[0].legend()
    figure.savefig(path)


def main() -> None:
    parser = CommandParser(prog="figure1.sh", description="Graphs of kernels and their gradients.")
    parser.add_argument("--kernels", default="rbf,wav,log,pow", help=f"of {', '.join(DISTANCE_KERNELS)}")
    parser.add_argument("--kernel-params", default="log.p=2,pow.p=2", help="hyper-parameters, as in training")
    parser.add_argument("--max-distance", type=float, default=4.0, help="where the graphs end")
    parser.add_argument("--out", type=Path, default=Path("checkpoints/results/figure1.svg"), help=".svg or .png")
    args = parser.parse_args()
    with one_line_errors():
        args.out.parent.mkdir(parents=True, exist_ok=True)
        plot(args.kernels, args.kernel_params, args.max_distance, args.out)
        print(args.out)


if __name__ == "__main__":
    main()
