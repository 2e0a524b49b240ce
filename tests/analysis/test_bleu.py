"""sacreBLEU of what fairseq-generate wrote."""

import sys

import pytest

from fairseq_kernels.analysis import bleu

SENTENCES = ["a man sleeps on a bench .", "two dogs run over the\x85green grass .", "a child plays with a red ball ."]


def run(monkeypatch, folder, reference):
    # fairseq writes them by batches, each with its score
    lines = [f"H-{number}\t-0.5\t{text}\nD-{number}\t-0.5\tother\n" for number, text in enumerate(SENTENCES)]
    (folder / "test.gen").write_text("".join(reversed(lines)), encoding="utf-8")
    (folder / "test.ref.en").write_text("".join(f"{line}\n" for line in reference), encoding="utf-8")
    files = [folder / "test.gen", "--reference", folder / "test.ref.en", "--language", "en"]
    monkeypatch.setattr(sys, "argv", ["bleu", *map(str, files)])
    bleu.main()


def test_translations_and_references_are_paired_by_lines(monkeypatch, tmp_path, capsys):
    """Lines end where the file's do: not at U+0085, which str.splitlines parts at."""
    run(monkeypatch, tmp_path, [sentence.replace(" .", ".") for sentence in SENTENCES])
    assert capsys.readouterr().out.startswith("detokenised (sacreBLEU): 100.00  nrefs:1|case:lc|")
    run(monkeypatch, tmp_path, ["something else entirely here."] * 3)
    assert float(capsys.readouterr().out.split()[2]) < 5


def test_a_reference_of_another_length_is_one_line(monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match="3 translations in .*test.gen, 2 lines in .*test.ref.en"):
        run(monkeypatch, tmp_path, SENTENCES[:2])
