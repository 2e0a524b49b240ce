"""sacreBLEU of what fairseq-generate wrote."""

import pytest

from fairseq_kernels.analysis.bleu import sacrebleu_of

SENTENCES = ["a man sleeps on a bench .", "two dogs run over the\x85green grass .", "a child plays with a red ball ."]


def score(folder, reference, language="en"):
    # fairseq writes them by batches, each with its score
    lines = [f"H-{number}\t-0.5\t{text}\nD-{number}\t-0.5\tother\nH-{number}\t-0.9\tthe second of an n-best list\n"
             for number, text in enumerate(SENTENCES)]  # fmt: skip
    (folder / "test.gen").write_text("".join(reversed(lines)), encoding="utf-8")
    (folder / "test.ref.en").write_text("".join(f"{line}\n" for line in reference), encoding="utf-8")
    return sacrebleu_of(folder / "test.gen", folder / "test.ref.en", language)


def test_translations_and_references_are_paired_by_lines(tmp_path):
    """Lines end where the file's do: not at U+0085, which str.splitlines parts at."""
    bleu, signature = score(tmp_path, [sentence.replace(" .", ".") for sentence in SENTENCES])
    assert bleu == pytest.approx(100) and signature.startswith("nrefs:1|case:lc|")
    assert score(tmp_path, ["something else entirely here."] * 3)[0] < 5


def test_the_language_s_own_words(tmp_path):
    assert "tok:13a" in score(tmp_path, SENTENCES)[1] and "tok:zh" in score(tmp_path, SENTENCES, "zh")[1]


def test_a_reference_of_another_length(tmp_path):
    with pytest.raises(ValueError, match="3 translations in .*test.gen, 2 lines in .*test.ref.en"):
        score(tmp_path, SENTENCES[:2])
