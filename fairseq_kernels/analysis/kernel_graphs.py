"""Graphs of kernels over the distance of word and context vector, and their gradients (Gao et al. 2019, section 4.3,
Figure 1). ``scripts/figure1.sh`` runs it."""

import json
import shlex
import sys
from pathlib import Path
from typing import Dict, List

import torch
from torch import Tensor

from ..errors import CommandParser, one_line_errors
from ..kernels import KERNELS, Kernel
from ..kernels.distance import DistanceKernel
from ..kernels.spec import build_kernels, parse_kernels
from .measurement import provenance
from .plotting import file_pyplot

DISTANCE_KERNELS = [name for name, kernel in KERNELS.items() if issubclass(kernel, DistanceKernel)]
POINTS = 100
PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "figure1.svg"
EXPONENTS = {"distance": 1, "square": 2}  # x = ||W_v - h||^exponent


def graph(kernel: Kernel, x: Tensor, exponent: int = 1) -> Dict:
    """S and dS/dx of a kernel at x = ||W_v - h||^exponent, in float64.

    Args:
        kernel: a function of the distance alone, of any ``embed_dim``.
        x: (N,), positive: at 0 some kernels have no gradient.

    Returns:
        the kernel's name and hyper-parameters, and lists of N: ``distance``, ``value``, ``gradient``.
    """
    x = x.detach().double().requires_grad_()
    distance = x ** (1 / exponent)
    context = distance.new_zeros(1, kernel.embed_dim)
    direction = torch.eye(1, kernel.embed_dim, dtype=x.dtype)
    values = kernel(context + distance.unsqueeze(1) * direction, context).squeeze(0)
    [gradient] = torch.autograd.grad(values.sum(), x)
    settings = {hyper.name: kernel.value(hyper.name) for hyper in kernel.all_hyperparameters()}
    return {
        "kernel": kernel.name,
        "hyperparameters": {**settings, **{name: float(value) for name, value in kernel.learned().items()}},
        "distance": distance.tolist(),
        "value": values.tolist(),
        "gradient": gradient.tolist(),
    }


def graphs(kernels: str, kernel_params: str, max_distance: float, over: str = "distance") -> List[Dict]:
    """:func:`graph` of each kernel at distances up to ``max_distance``, equally spaced.

    Raises:
        ValueError: an unknown kernel or hyper-parameter, or a kernel that isn't a function of the distance alone.
    """
    names = parse_kernels(kernels)
    for name in names:
        if name not in DISTANCE_KERNELS:
            raise ValueError(f"{name} is no function of the distance alone; choose from {', '.join(DISTANCE_KERNELS)}")
    modules = build_kernels(names, 1, kernel_params)
    distances = max_distance / POINTS * torch.arange(1, POINTS + 1, dtype=torch.float64)
    return [graph(kernel, distances ** EXPONENTS[over], EXPONENTS[over]) for kernel in modules]


def plot(rows: List[Dict], path: Path, over: str = "distance") -> None:
    """Values on the left, gradients on the right."""
    pyplot = file_pyplot()
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    x_label = r"$\|W_v - h\|$" if over == "distance" else r"$\|W_v - h\|^2$"
    for axis, key, label in zip(axes, ("value", "gradient"), ("$S$", rf"$\partial S / \partial$ {x_label}")):
        for row in rows:
            x = [distance ** EXPONENTS[over] for distance in row["distance"]]
            settings = ", ".join(f"{name} {value:g}" for name, value in row["hyperparameters"].items())
            axis.plot(x, row[key], label=f"{row['kernel']} ({settings.removesuffix(', scale 1')})")
        axis.axhline(0, color="grey", linewidth=0.5)
        # pow falls without end: what the bounded kernels do near 0 must stay visible
        low, high = axis.get_ylim()
        axis.set(xlabel=x_label, ylabel=label, xlim=(0, None), ylim=(max(low, -4), min(high, 4)))
    axes[0].legend()
    figure.savefig(path)
    pyplot.close(figure)


def main() -> None:
    parser = CommandParser(prog="figure1.sh", description="Graphs of kernels and their gradients.")
    parser.add_argument("--kernels", default="rbf,wav,log,pow", help=f"of {', '.join(DISTANCE_KERNELS)}")
    parser.add_argument("--kernel-params", default="log.p=2,pow.p=2", help="hyper-parameters, as in training")
    parser.add_argument("--max-distance", type=float, default=4.0, help="where the graphs end")
    parser.add_argument(
        "--over", choices=EXPONENTS, default="distance", help="graphs over and gradients by the distance or its square"
    )
    default = Path("checkpoints/results/figure1.svg")
    parser.add_argument("--out", type=Path, default=default, help=".svg or .png; a .json beside it")
    parser.add_argument("--publish", action="store_const", dest="out", const=PUBLISHED, help="as the one in results/")
    args = parser.parse_args()
    with one_line_errors():
        rows = graphs(args.kernels, args.kernel_params, args.max_distance, args.over)
    record = {
        "source": "Gao et al. 2019, Figure 1",
        "command": shlex.join(["bash", "scripts/figure1.sh", *sys.argv[1:]]),
        "provenance": provenance(),
        "gradient_by": args.over,
        "graphs": rows,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    plot(rows, args.out, args.over)
    args.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"{args.out}\n{args.out.with_suffix('.json')}")


if __name__ == "__main__":
    main()
