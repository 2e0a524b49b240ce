"""Figure 1: values and gradients against the plain formulas, and the files."""

import json
import math

import pytest
import torch
from fairseq_commands import script

from fairseq_kernels.analysis.kernel_graphs import graph, graphs
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
    """By the distance and by its square (dr^2 = 2 r dr), in any dimension."""
    kernel_params, value, slope = FORMULAS[name]
    [row] = graphs(name, kernel_params, 3.0)
    [squared] = graphs(name, kernel_params, 3.0, over="square")
    assert row["kernel"] == name and row["hyperparameters"]["scale"] == 1
    assert row["distance"][-1] == 3 and 0 < row["distance"][0] < 0.1
    distances = row["distance"]
    assert squared["distance"] == pytest.approx(distances)
    assert row["value"] == pytest.approx([value(r) for r in distances], rel=1e-12)
    assert squared["value"] == pytest.approx(row["value"], rel=1e-12)
    assert row["gradient"] == pytest.approx([slope(r) for r in distances], rel=1e-12)
    assert squared["gradient"] == pytest.approx([slope(r) / (2 * r) for r in distances], rel=1e-10)
    [kernel] = build_kernels(name, 5, kernel_params)
    assert graph(kernel, torch.tensor(distances))["value"] == pytest.approx(row["value"], rel=1e-5)


def test_what_the_paper_says_of_them():
    """Section 4.3, whose gradients are by ||W_v - h||^p: far away constant for pow, vanishing for the others; near 0
    that of log increases."""
    rows = {row["kernel"]: row["gradient"] for row in graphs("rbf,wav,log,pow", "log.p=2,pow.p=2", 5.0, over="square")}
    assert rows["pow"] == pytest.approx([-1] * len(rows["pow"]))
    assert all(abs(rows[name][-1]) < 0.05 for name in ("rbf", "wav", "log"))
    assert rows["log"] == sorted(rows["log"])


def test_the_command(tmp_path):
    out = tmp_path / "new" / "figure.png"
    given = ("--kernels", "rbf,log", "--kernel-params", "rbf.gamma=0.1", "--max-distance", 2)
    code, _, err = script("figure1", "--out", out, *given)
    assert code == 0 and out.stat().st_size > 0, err
    record = json.loads(out.with_suffix(".json").read_text())
    assert record["command"].startswith("bash scripts/figure1.sh --out ") and record["provenance"]["versions"]["torch"]
    assert record["gradient_by"] == "distance" and record["graphs"] == graphs("rbf,log", "rbf.gamma=0.1", 2.0)
