"""Figure 1: the picture of the published one, of four kernels' values and gradients, and others."""

import pytest
from fairseq_commands import USER_DIR
from pictures import drawn

from fairseq_kernels.analysis.kernel_graphs import main


def test_the_picture(tmp_path, monkeypatch):
    """By default the published one."""
    published = USER_DIR.parent / "results" / "figure1.svg"
    for given in (["--kernels=rbf,log", "--kernel-params=rbf.gamma=0.1", "--max-distance=2"], []):
        monkeypatch.setattr("sys.argv", ["figure1", *given, "--out", str(tmp_path / "new" / f"{len(given)}.svg")])
        main()
    labels, curves = zip(*map(drawn, (published, tmp_path / "new" / "0.svg", tmp_path / "new" / "3.svg")))
    assert labels[1] == labels[0] and curves[1] == pytest.approx(curves[0], abs=1.5)  # points
    assert {"rbf (gamma 0.1)", "log (p 2, gamma 1)", "2.00"} <= set(labels[2])
