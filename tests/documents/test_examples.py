"""examples/: each script with a small budget, and the notebook's code."""

import math
import os
import re
import subprocess
from collections import Counter
from pydoc_data.topics import topics

import pytest
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


def number(pattern, text):
    """The last number that stands there."""
    return float(re.findall(pattern, text)[-1])


@pytest.mark.parametrize("options", [["--accumulate", 1], ["--amp", "--kernels", "rbf"]])
def test_pytorch_loop(options):
    out = python("examples/pytorch_loop.py", "--updates", 10, "--dim", 16, *options)
    assert number(r"valid perplexity ([\d.]+)", out) < 500  # of 5,001 words


def test_own_kernel():
    out = python("examples/own_kernel.py")
    losses = [float(loss) for loss in re.findall(r"update \d+: loss ([\d.]+)", out)]
    assert "their gradients agree" in out and losses[-1] < losses[0] / 4


def test_huggingface_head():
    pytest.importorskip("transformers", reason="the extra 'examples' has 16 packages more")
    out = python("examples/huggingface_head.py", "--updates", 20)
    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    unigram = -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())
    assert number(r"([\d.]+) bits a byte", out) < unigram
    assert "The statement " in out and out.endswith("saved, loaded again: the same loss\n")


def test_notebook(tmp_path):
    """Its code draws the figures that the documents show."""
    python("scripts/notebook_figures.py", "examples/kernels.ipynb", tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {"kernel_curves.png", "kernel_regions.png", "scales.png"}
    assert all((ROOT / "docs" / "images" / name).is_file() for name in drawn)
