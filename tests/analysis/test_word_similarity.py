"""The SimLex-999 score against Spearman's formula, for our models and fairseq's own; mistakes."""

import sys

import pytest
import torch
from conftest import binarise
from fairseq_commands import awaited, later, lm_training
from trained_models import parameters

from fairseq_kernels.analysis import word_similarity
from fairseq_kernels.analysis.kerbs_senses import dictionary
from fairseq_kernels.analysis.word_similarity import read_pairs, simlex

HEADER = "word1\tword2\tPOS\tSimLex999\tconc(w1)\tconc(w2)\tconcQ\tAssoc(USF)\tSimAssoc333\tSD(SimLex)\n"
PAIRS = [("w1", "w2", 9.1), ("w3", "w9", 1.96), ("w4", "w5", 8.0), ("w7", "old", 1.58), ("w0", "w12", 1.96),
         ("w18", "w6", 0.3), ("new", "ancient", 5.0)]  # fmt: skip


def write(path, pairs=PAIRS):
    rows = (f"{first}\t{second}\tN\t{rating}\t2.72\t2.81\t2\t7.25\t1\t0.41\n" for first, second, rating in pairs)
    path.write_text(HEADER + "".join(rows))
    return path


@pytest.fixture(scope="module")
def kerbs_lm(lm_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kerbs")
    options = ("--output-layer", "kerbs", "--kerbs-input", "prior", "--max-update", 2)
    return awaited(folder, later(*lm_training(lm_data, folder, *options, criterion="kerbs_cross_entropy")))


def ranks(values):
    """From 1, equal values sharing the mean of their ranks."""
    return torch.tensor(
        [sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values],
        dtype=torch.float64,
    )


@pytest.mark.parametrize("of, matrix", [("input", "embed_tokens"), ("output", None)])
@pytest.mark.parametrize("model, output", [("mixture_lm", "output_projection"), ("stock_lm", "fc_out")])
def test_score(model, output, of, matrix, request, lm_data, tmp_path):
    trained = request.getfixturevalue(model)
    actual = simlex(lm_data, trained.last, read_pairs(write(tmp_path / "pairs.txt")), of)
    weight = parameters(trained.folder)[f"decoder.{matrix or output}.weight"].double()
    words = dictionary(trained.last, lm_data, 24).symbols
    cosines, ratings = [], []
    for first, second, rating in PAIRS:
        if first in words and second in words:
            one, other = weight[words.index(first)], weight[words.index(second)]
            cosines.append(float(one @ other / (one.norm() * other.norm())))
            ratings.append(rating)
    expected = torch.corrcoef(torch.stack([ranks(cosines), ranks(ratings)]))[0, 1]
    assert (actual["covered"], actual["pairs"], actual["of"]) == (5, 7, of)
    assert actual["correlation"] == pytest.approx(float(expected), abs=1e-12)


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["word_similarity", *map(str, arguments)])
    word_similarity.main()


def test_program(monkeypatch, capsys, tmp_path, lm_data, mixture_lm, stock_lm):
    pairs = write(tmp_path / "pairs.txt")
    run(monkeypatch, lm_data, mixture_lm.last, stock_lm.last, "--simlex", pairs)
    rows = capsys.readouterr().out.splitlines()[1:]
    for row, trained in zip(rows, (mixture_lm, stock_lm)):
        correlation = simlex(lm_data, trained.last, read_pairs(pairs))["correlation"]
        assert row.split() == [f"{correlation:.3f}", "5", "of", "7", str(trained.last)]


def test_mistakes(monkeypatch, tmp_path, lm_data, mixture_lm, kerbs_lm):
    text, folder = tmp_path / "text.pt", tmp_path / "other"
    text.write_text("no checkpoint")
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / split).write_text("a b\n" * 5)
    other = binarise(folder, "data-bin", "--only-source")
    weightless = tmp_path / "weightless.pt"
    torch.save({"model": {"decoder.embed_tokens.weight": torch.zeros(24, 4)}, "extra_state": {}}, weightless)
    good, simlex_format = write(tmp_path / "pairs.txt"), ["format", "word1", "SimLex999"]
    (tmp_path / "no-header.txt").write_text("w1\tw2\tN\t3.0\n")
    (tmp_path / "header.txt").write_text(HEADER)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00\x01")
    for data, checkpoint, pairs, options, said in (
        (lm_data, mixture_lm.last, tmp_path / "none.txt", (), ["none.txt", "No such file"]),
        (lm_data, mixture_lm.last, tmp_path, (), [str(tmp_path), "directory"]),
        *((lm_data, mixture_lm.last, tmp_path / f"{name}.txt", (), [f"{name}.txt", *simlex_format])
          for name in ("no-header", "header", "empty", "binary")),
        (lm_data, mixture_lm.last, write(tmp_path / "words.txt", [("w1", "w2", "high")]), (), simlex_format),
        (lm_data, mixture_lm.last, write(tmp_path / "one.txt", [PAIRS[0], PAIRS[-1]]), (), ["1 of 2 pairs"]),
        (lm_data, mixture_lm.last, write(tmp_path / "same.txt", PAIRS[:1] * 2), (), ["cosines", "all the same"]),
        (lm_data, mixture_lm.last, write(tmp_path / "flat.txt", [(*p[:2], 1) for p in PAIRS]), (), ["ratings"]),
        (lm_data, weightless, good, (), ["cosines", "weightless.pt"]),
        (lm_data, weightless, good, ("--of", "output"), ["weightless.pt", "no output matrix", "--of"]),
        (lm_data, kerbs_lm.last, good, (), ["no input matrix", "KerBS"]),
        (lm_data, kerbs_lm.last, good, ("--of", "output"), ["no output matrix", "KerBS"]),
        (lm_data, tmp_path / "none.pt", good, (), ["none.pt", "not found"]),
        (lm_data, text, good, (), ["text.pt", "no checkpoint"]),
        (other, mixture_lm.last, good, (), ["24 words", str(other)]),
        (tmp_path / "nowhere", mixture_lm.last, good, (), ["nowhere", "dict.txt"]),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            run(monkeypatch, data, checkpoint, "--simlex", pairs, *options)
        line = ended.value.code
        assert "error: " in line and "\n" not in line and all(part in line for part in said), line
