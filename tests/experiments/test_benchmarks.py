"""scripts/benchmark.py runs, on sizes that say nothing, and its record says what was measured."""

import json
import re
import runpy
import shlex
import subprocess
from functools import partial
from itertools import product

import pytest
import torch
from fairseq_commands import USER_DIR
from forked_python import forked_python

from fairseq_kernels import GeneralizedSoftmax
from fairseq_kernels.output_layers.table import LAYERS

SMALL = ("--rounds", "1", "--threads", "2")


def run(tmp_path, command, *options):
    """The record that is put after an earlier one."""
    out = tmp_path / "record.json"
    out.write_text('[{"command": "an earlier one"}]')
    call = [forked_python(), USER_DIR.parent / "scripts" / "benchmark.py", command, *SMALL, *options, "--out", out]
    result = subprocess.run(list(map(str, call)), capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    before, record = json.loads(out.read_text())
    assert before == {"command": "an earlier one"} and record["made"]["machine"]["threads"] == 2
    assert record["command"].startswith(f"python scripts/benchmark.py {command} ")
    return record


def test_layer(tmp_path):
    """A row each with its steps, and the ratio to the first one."""
    names = ["lin", "stock", "2xlin untied", "taylor", "taylor factored", "spherical autograd", "mos 2"]
    sizes = ("--tokens", 4096, "--words", 300, "--dim", 8, "--steps", 2, "--rounds", 2, "--device", "cpu")
    rows = run(tmp_path, "layer", "--only", *names, *sizes)["rows"]
    assert [row["name"] for row in rows] == names and all(len(row["steps"]) == 4 for row in rows)
    logits = 4096 * 300 * 4 / 2**20  # MiB; the unit is seen, not how many such tensors are kept
    assert logits < rows[1]["mebibytes"] < 50 * logits
    for row in rows:
        assert row["seconds"] == min(row["steps"])
        assert row["ratio"] == pytest.approx(row["seconds"] / rows[0]["seconds"], abs=1e-4)


def test_published_records_are_of_today_s_commands(monkeypatch):
    """The same rows and settings."""
    main, commands = runpy.run_path(str(USER_DIR.parent / "scripts" / "benchmark.py"))["main"], []
    monkeypatch.setitem(main.__globals__, "compare", lambda *planned: commands.append(planned))
    for name in ("limit", "output_layer", "training_speed", "decoding"):
        for record in json.loads((USER_DIR.parent / "results" / f"{name}.json").read_text()):
            monkeypatch.setattr("sys.argv", shlex.split(record["command"])[1:])
            # the default of --device
            monkeypatch.setattr(torch.cuda, "is_available", partial(bool, record["made"]["machine"]["gpu"]))
            main()
            rows, settings = commands[-1][0], vars(commands[-1][1])
            assert {key: settings[key] for key in settings.keys() - {"measure", "out"}} == record["settings"]
            assert all(row.items() <= known.items() for (row, _), known in zip(rows, record["rows"], strict=True))


def test_what_layers_are_compared_with_computes_the_same():
    benchmark = runpy.run_path(str(USER_DIR.parent / "scripts" / "benchmark.py"))
    features, target, seen = torch.randn(9, 8), torch.randint(30, (9,)), []
    mos = benchmark["MixtureOfSoftmaxes"](3, 30, 8)
    mixture = GeneralizedSoftmax(8, 30, "3xlin", bias=False)
    others = mos.output.weight, mos.contexts.weight.view(3, 8, 8).mT, mos.weights.weight.T
    for own, other in zip(mixture.parameters(), others):
        own.data.copy_(other)
    torch.testing.assert_close(mos.nll(features, target), mixture.nll(features, target))
    steps = benchmark["layer_step"].__globals__["ON_A_PROJECTION"]
    absent = benchmark["NEED_TRITON"] + ["torch chunked"] * (not hasattr(torch.nn, "LinearCrossEntropyOptions"))
    for name, loss in [(name, loss) for name, loss in steps.items() if name not in absent]:
        steps[name] = lambda layer, features, target, loss=loss: seen.append(features) or loss(layer, features, target)
        benchmark["layer_step"](name, 9, 30, 8, "cpu")()
        assert (seen[-1].shape, seen[-1].dtype, seen[-1].requires_grad) == ((9, 8), torch.float32, True)
        layer = LAYERS.get(name.removesuffix(" autograd"), LAYERS["kernels"]).layer(8, 30, bias=False)
        layer.weight = (projection := benchmark["projection"](30, 8)).weight
        torch.testing.assert_close(loss(projection, features, target), layer.nll(features, target))


def test_gpu(tmp_path):
    """All rows but those that need Triton; their gradients are float64's, as far as the precision goes."""
    rows = run(tmp_path, "gpu", "--rehearse", "--steps", 2)["rows"]
    assert len(rows) == 2 * 10 + 3 + 6
    for row in rows:
        absent = re.search("LinearCrossEntropyOptions|No module named 'transformers'", row.get("error", ""))
        assert row.get("seconds", 0) > 0 or absent, row
        assert row.get("gradient_error", 0) < (0.02 if "bfloat16" in row["group"] else 1e-5), row


def test_training_and_scoring(tmp_path):
    options = ("--rows", "stock", "2xlin --lr 0.1", "--words", 100, "--batch-size", 2, "--length", 4, "--scoring")
    rows = run(tmp_path, "training", *options, "--steps", 1, "--device", "cpu")["rows"]
    groups = ["100 words", "100 words, scoring"]
    assert [(row["group"], row["name"]) for row in rows] == list(product(groups, ["stock", "2xlin --lr 0.1"]))
    assert all(row["tokens"] == 8 and row["ratio"] > 0 for row in rows)
    assert rows[0]["ratio"] == rows[2]["ratio"] == 1


def test_decoding(tmp_path, mt_data):
    options = ("--kernels", "lin", "2xlin", "--sentences", 3, "--batch-size", 2, "--length", 4, "--beam", 2)
    rows = run(tmp_path, "decoding", mt_data, *options, "--device", "cpu")["rows"]
    assert [row["name"] for row in rows] == ["lin", "2xlin"] and rows[0]["tokens"] == 12
