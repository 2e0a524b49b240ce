"""Figure 1: values and gradients against the plain formulas, and the picture."""

import math

import pytest
import torch
from fairseq_commands import script

from fairseq_kernels.analysis.kernel_graphs import graph
from fairseq_kernels.kernels.spec import build_kernels

# S and dS/dr of r = ||W_v - h||, worked out on paper
FORMULAS = {
    "rbf": ("rbf.gamma=0.5", lambda r: math.exp(-0.5 * r**2), lambda r: -r * math.exp(-0.5 * r**2)),
    "wav": (
        "wav.a=2,wav.b=3",
        lambda r: math.cos(r**2 / 2) * math.exp(-(r**2) / 3),
        lambda r: math.exp(-(r**2) / 3) * (-r * math.sin(r**2 / 2) - 2 / 3 * r * math.cos(r**2 / 2)),
    ),
    "log": ("", lambda r: -math.log(r**2 + 1), lambda r: -2 * r / (r**2 + 1)),
    "pow": ("pow.p=3", lambda r: -(r**3), lambda r: -3 * r**2),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_values_and_gradients(name):
    """In any dimension."""
    kernel_params, value, slope = FORMULAS[name]
    distances = [0.05, 0.5, 1.0, 2.2, 3.0]
    for dim in (1, 5):
        [kernel] = build_kernels(name, dim, kernel_params)
        values, gradients = graph(kernel, torch.tensor(distances, dtype=torch.float64))
        assert values.tolist() == pytest.approx([value(r) for r in distances], rel=1e-12)
        assert gradients.tolist() == pytest.approx([slope(r) for r in distances], rel=1e-12)


def test_the_command(tmp_path):
    out = tmp_path / "new" / "figure.svg"
    given = ("--kernels", "rbf,log", "--kernel-params", "rbf.gamma=0.1", "--max-distance", 2)
    code, _, err = script("figure1", "--out", out, *given)
    assert code == 0, err
    assert "rbf (gamma 0.1)" in out.read_text() and "log (p 2, gamma 1)" in out.read_text()
