"""examples/: each script with a small budget, and the notebook's code."""

import json
import math
import os
import re
import subprocess
from collections import Counter
from pydoc_data.topics import topics

import pytest
import torch
from fairseq_commands import USER_DIR
from forked_python import forked_python

ROOT = USER_DIR.parent


def python(*arguments):
    """What a script prints; it must succeed. No network: nothing may be downloaded."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    command = [forked_python(), *map(str, arguments)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("options", [["--accumulate", 1], ["--amp", "--kernels", "rbf"]])
def test_pytorch_loop(options):
    out = python("examples/pytorch_loop.py", "--updates", 10, "--dim", 16, *options)
    assert float(re.findall(r"valid perplexity ([\d.]+)", out)[-1]) < 500  # of 5,001 words


def test_own_kernel():
    out = python("examples/own_kernel.py")
    losses = [float(loss) for loss in re.findall(r"update \d+: loss ([\d.]+)", out)]
    assert "their gradients agree" in out and losses[-1] < losses[0] / 4


def test_huggingface_head():
    pytest.importorskip("transformers", reason="the extra 'examples' has 20 packages more")
    out = python("examples/huggingface_head.py", "--updates", 20)
    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    unigram = -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())
    assert float(re.findall(r"([\d.]+) bits a byte", out)[-1]) < unigram
    assert "The statement " in out and "saved, loaded again: the same distribution" in out


def test_mnist(tmp_path):
    """On images that show their class all losses learn; a second call runs nothing again."""
    torch.manual_seed(1)
    for name, images in ("train", 400), ("t10k", 50):
        labels = torch.randint(10, (images,))
        pixels = torch.randint(60, (images, 28, 28))
        for image, label in zip(pixels, labels):
            image[:, 2 * label : 2 * label + 4] = 250
        for values, kind in (pixels, "images-idx3"), (labels, "labels-idx1"):
            header = bytes([0, 0, 8, values.dim()]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
            (tmp_path / f"{name}-{kind}-ubyte").write_bytes(header + values.to(torch.uint8).numpy().tobytes())
    results = tmp_path / "mnist.json"
    options = "--results", results, "--seeds", 1, "--epochs", 6, "--losses", "taylor", "--splits", "random"
    out = python("examples/mnist.py", tmp_path, *options)
    records = json.loads(results.read_text())
    assert out.count("valid loss") == len(records) == 4 + 1
    for record in records[4:]:
        metrics = {metric["metric"]: metric["value"] for metric in record["metrics"] if metric["split"] == "test"}
        assert metrics["error"] <= 10 and metrics["nll"] < math.log(10) / 2
    assert python("examples/mnist.py", tmp_path, *options) == ""


def test_notebook(tmp_path):
    """Its code draws the figures that the documents show."""
    python("docs/notebook_figures.py", "examples/kernels.ipynb", tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {"kernel_curves.png", "kernel_regions.png", "scales.png"}
    assert all((ROOT / "docs" / "images" / name).is_file() for name in drawn)
