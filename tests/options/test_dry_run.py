"""The command of fairseq-train for each profile, layer and kind of text, as in dry_run.txt beside this file.

After a wanted change:  PYTHONPATH=. python tests/options/test_dry_run.py >tests/options/dry_run.txt
"""

import contextlib
import io
import sys
import tempfile
from pathlib import Path
from unittest import mock

import pytest
import torch
from fairseq_commands import script

from fairseq_kernels.experiments import training
from fairseq_kernels.experiments.commands import USER_DIR
from fairseq_kernels.experiments.profiles import profiles
from fairseq_kernels.output_layers.table import LAYERS

EXPECTED = Path(__file__).with_name("dry_run.txt")
OPTIONS = [["--stock"], *(["--output-layer", name] for name in LAYERS)]
OPTIONS += [["--kernels", "3xlin,log", "--kernel-params", "log.p=learned", "--lr", "0.1"]]
DICTIONARIES = {"lm": ["dict.txt"], "mt": ["dict.de.txt", "dict.en.txt"]}


def shown(kind, *options) -> str:
    """What ``scripts/train_KIND.sh DATA --save-dir DIR --dry-run OPTIONS`` prints on a machine without a GPU."""
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        for name in DICTIONARIES[kind]:
            Path(folder, name).touch()
        argv = ["training", kind, folder, "--save-dir", "DIR", "--dry-run", *options]
        with mock.patch.object(sys, "argv", argv), mock.patch.object(torch.cuda, "is_available", lambda: False):
            with contextlib.redirect_stdout(printed):
                training.main()
    return printed.getvalue().replace(folder, "DATA").replace(USER_DIR, "USER_DIR")


def everything() -> str:
    blocks = [(kind, ["--profile", name, *own]) for kind in DICTIONARIES for name in profiles(kind) for own in OPTIONS]
    blocks += [(kind, ["--kernels=lin"]) for kind in DICTIONARIES]  # the default profile
    return "\n".join(f"{kind} {' '.join(options)}\n  {shown(kind, *options)}" for kind, options in blocks)


def test_dry_run():
    assert everything() == EXPECTED.read_text()


@pytest.mark.parametrize("kind", DICTIONARIES)
def test_scripts(kind, tmp_path):
    """scripts/train_lm.sh and train_mt.sh print the same."""
    for name in DICTIONARIES[kind]:
        (tmp_path / name).touch()
    options = ["--save-dir", "DIR", "--dry-run", "--profile", "cpu", "--stock"]
    code, printed, err = script(f"train_{kind}", tmp_path, *options)
    assert code == 0, err
    assert printed.replace(str(tmp_path), "DATA").replace(USER_DIR, "USER_DIR").strip() in EXPECTED.read_text()


if __name__ == "__main__":
    print(everything(), end="")
