"""sacreBLEU of what fairseq-generate wrote."""

import numpy
import pytest
import torch
from fairseq.scoring.bleu import BleuConfig, Scorer

import fairseq_kernels.fairseq_plugin  # noqa: F401
from fairseq_kernels.analysis.bleu import sacrebleu_of, sentence_counts
from fairseq_kernels.experiments import statistics

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
    assert bleu == pytest.approx(100) and signature.startswith("nrefs:1|case:lc|") and "tok:13a" in signature
    assert score(tmp_path, ["something else entirely here."] * 3)[0] < 5
    assert "tok:zh" in score(tmp_path, SENTENCES, "zh")[1]  # cut into words as the language's are
    with pytest.raises(ValueError, match="3 translations in .*test.gen, 2 lines in .*test.ref.en"):
        score(tmp_path, SENTENCES[:2])


def test_no_words_at_all(capsys, tmp_path):
    """BLEU is 0, by sacreBLEU, by fairseq and from the sentences' counts, and it is said why."""
    (tmp_path / "test.gen").write_text("T-0\ta man .\nH-0\t-1\t\nT-1\tno\nH-1\t-1\t\n")
    (tmp_path / "test.ref.en").write_text("a man.\nno\n")
    assert sacrebleu_of(tmp_path / "test.gen", tmp_path / "test.ref.en", "en")[0] == 0
    assert f"every translation in {tmp_path}/test.gen is empty" in capsys.readouterr().out
    counts = numpy.array(sentence_counts(tmp_path / "test.gen"))
    assert counts[:, 0].sum() == 0 and statistics.bleu(statistics.bleu_counts(counts).sum(0)) == 0
    scorer = Scorer(BleuConfig(pad=1, eos=2, unk=3))
    scorer.add(torch.tensor([5, 6, 2], dtype=torch.int32), torch.tensor([2], dtype=torch.int32))
    assert scorer.score() == 0 and "BLEU4 = 0.00" in scorer.result_string()
