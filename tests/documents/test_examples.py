"""examples/: each script with a small budget, and the notebook's code."""

import json
import math
import os
import re
import runpy
import subprocess
from collections import Counter
from pydoc_data.topics import topics

import pytest
import torch
from fairseq_commands import USER_DIR
from forked_python import forked_python
from matplotlib import pyplot

import fairseq_kernels
from fairseq_kernels.experiments import report

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
    assert float(re.findall(r"valid perplexity ([\d.]+)", out)[-1]) < 260  # of 5,001 words


def test_the_text_of_pytorch_loop():
    """Each word but the last lines' comes once, with the next one as target; validation is on other paragraphs."""
    loop = runpy.run_path(str(ROOT / "examples" / "pytorch_loop.py"))
    pairs = list(loop["batches"](torch.arange(1000), 5))
    assert all(torch.equal(words + 1, target) for words, target in pairs)
    assert torch.cat([words.flatten() for words, _ in pairs]).sort().values.tolist() == list(range(28 * 35))
    nats = lambda words, target: words.numel() * torch.tensor(7.0).log()  # noqa: E731
    assert loop["perplexity"](nats, torch.arange(1000), "cpu") == pytest.approx(7)
    train, valid, counts = loop["read_text"]()
    assert counts.tolist() == torch.bincount(train).tolist() and 0.03 < len(valid) / len(train) < 0.07
    assert str(valid[:50].tolist())[1:-1] not in str(train.tolist())
    model = loop["LanguageModel"](500, 16, "lin")
    assert model.output.weight is model.embedding.weight and model.embedding.weight.std() < 0.5  # as an output layer


def test_own_kernel(monkeypatch):
    monkeypatch.setattr("fairseq_kernels.kernels.base.KERNELS", dict(fairseq_kernels.KERNELS))
    scores = runpy.run_path(str(ROOT / "examples" / "own_kernel.py"))["Cosine"](4, kappa=2.0)
    words, contexts = torch.randn(5, 4), torch.randn(3, 4)
    torch.testing.assert_close(scores(words, contexts), 2 * torch.cosine_similarity(contexts[:, None], words, dim=-1))
    out = python("examples/own_kernel.py")
    losses = [float(loss) for loss in re.findall(r"update \d+: loss ([\d.]+)", out)]
    assert "their gradients agree" in out and losses[-1] < losses[0] / 4


def test_huggingface_head():
    pytest.importorskip("transformers", reason="the extra 'examples' has 20 packages more")
    out = python("examples/huggingface_head.py", "--updates", 20)
    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    unigram = -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())
    assert 0.8 * unigram < float(re.findall(r"([\d.]+) bits a byte", out)[-1]) < unigram
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
    example = runpy.run_path(str(ROOT / "examples" / "mnist.py"))
    parts = example["splits"](tmp_path, "official", 0)
    assert torch.equal(parts[2][1], labels) and [len(part[1]) for part in parts] == [350, 50, 50]
    results = tmp_path / "mnist.json"
    options = "--results", results, "--seeds", 1, "--epochs", 6, "--losses", "taylor", "--splits", "random"
    out = python("examples/mnist.py", tmp_path, *options)
    records = json.loads(results.read_text())
    assert out.count("valid loss") == len(records) >= 4
    [record, *searched] = records
    metrics = {metric["metric"]: metric["value"] for metric in record["metrics"] if metric["split"] == "test"}
    assert metrics["error"] <= 10 and metrics["nll"] < math.log(10) / 2
    [least, *_], curve = record["metrics"], record["curves"]["valid"]
    assert least["value"] == pytest.approx(min(curve), abs=1e-5) == pytest.approx(curve[metrics["epochs"] - 1])
    losses = {float(each["run"]["settings"]["lr"]): each["metrics"][0]["value"] for each in searched}
    best, rates = min(losses, key=losses.get), example["LEARNING_RATES"]
    assert record["run"]["profile"] == "random" and float(record["run"]["settings"]["lr"]) == best
    assert losses.keys() >= set(rates[max(rates.index(best) - 1, 0) : rates.index(best) + 2])
    assert python("examples/mnist.py", tmp_path, *options) == ""
    [part] = [part for part in report.load_chapters(tmp_path)[0].parts if "random" in part.title]
    assert part.rows[0][0] == "taylor" and "negative log-likelihood" in part.heads


def test_large_vocabulary(tmp_path):
    """Every word of both texts has a number, frequent ones first; the second layer trains on as the first had time."""
    (tmp_path / "train.txt").write_text("the cat sat\nthe dog\n" * 500 + " ".join(map("w{}".format, range(61))))
    (tmp_path / "valid.txt").write_text("the cat sat\n" * 19 + "the cat ran\n")
    example = runpy.run_path(str(ROOT / "examples" / "large_vocabulary.py"))
    train, valid, counts = example["read_text"](tmp_path)
    assert counts.tolist() == [1000, 1000, 500, 500, 500] + [1] * 61 + [0] and len(valid) == 80
    for name in "lin", "adaptive", "taylor", "spherical":
        layer, _ = example["make_layer"](name, fairseq_kernels.word_prior(train, len(counts)))
        losses = layer.nll(torch.ones(len(counts), 128), torch.arange(len(counts)), reduction="none")
        assert losses.neg().exp().sum().item() == pytest.approx(1, abs=1e-4)
    out = python("examples/large_vocabulary.py", tmp_path, "--words", 20000, "--layers", "adaptive", "spherical")
    rows = re.findall(r"^(\w+) +\d+ +\d+ +([\d.]+) +([\d.]+) \(([\d,]+)\)", out, re.M)
    assert [row[0] for row in rows] == ["adaptive", "spherical"] and 2 < float(rows[0][1]) < 20


def test_notebook(tmp_path):
    """Its code draws the figures that the documents show."""
    python("docs/notebook_figures.py", "examples/kernels.ipynb", tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {"kernel_curves.png", "kernel_regions.png", "scales.png"}
    for name in drawn:
        here, published = (pyplot.imread(folder / name) for folder in (tmp_path, ROOT / "docs" / "images"))
        assert abs(here - published).mean() < 0.003
