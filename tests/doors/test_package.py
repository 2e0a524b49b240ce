"""The package as a guest: what importing it loads, in whatever order; kernels of users' own; the lists it prints."""

import subprocess
import sys
from pathlib import Path

from fairseq_commands import fairseq, lm_training, logged, readme_s_kernel

ROOT = Path(__file__).resolve().parents[2]


def python(program, *arguments):
    """A program's output, run in the repository's folder; it must succeed."""
    command = [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


REGISTERED = """
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
print("kernel_lstm_lm_swb" in ARCH_MODEL_REGISTRY, "log_taylor_softmax" in CRITERION_REGISTRY)
print("fused_adamw" in OPTIMIZER_REGISTRY)
"""


def test_importing_loads_nothing():
    """Then torch, where a name is used; fairseq with the plugin, which registers its own whether fairseq's models are
    there or not. numpy and Python's excepthook stay as they are."""
    program = """
import sys
hook = sys.excepthook
import fairseq_kernels
assert not {"torch", "numpy", "fairseq"} & set(sys.modules), "loaded"
assert "GeneralizedSoftmax" in dir(fairseq_kernels)
from fairseq_kernels import GeneralizedSoftmax, KERNELS
assert "torch" in sys.modules and not [name for name in sys.modules if name.split(".")[0] in ("fairseq", "omegaconf")]
import numpy
assert sys.excepthook is hook and "SimpleNamespace" not in repr(getattr(numpy, "compat", None))
try:
    fairseq_kernels.nothing
except AttributeError as error:
    print(error)
import fairseq.models, fairseq_kernels.fairseq_plugin
"""
    words = python(program + REGISTERED)
    assert "'nothing'" in words and words[-3:] == ["True"] * 3


def test_registered_where_the_plugin_comes_first():
    assert python("import fairseq_kernels.fairseq_plugin, fairseq.models" + REGISTERED)[-3:] == ["True"] * 3


def test_own_kernel(lm_data, tmp_path):
    """README's, in a --user-dir of the user's own: listed, and trained in a mixture."""
    folder = readme_s_kernel(tmp_path / "my_kernels")
    assert len((folder / "__init__.py").read_text().splitlines()) < 16
    listed = fairseq("kernels", "--list", "--user-dir", folder)
    assert "  laplace" in listed.out and "laplace.gamma" in listed.out
    options = ("--user-dir", folder, "--kernels", "2xlin,laplace", "--kernel-params", "laplace.gamma=learned")
    trained = fairseq(*lm_training(lm_data, tmp_path / "model", *options))
    valid = logged(trained, "valid")[-1]
    assert valid["ppl"] < 24 and 0 < valid["pi_laplace"] < 1
