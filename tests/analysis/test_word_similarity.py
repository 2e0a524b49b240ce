"""The SimLex-999 score against Spearman's formula, for our models and fairseq's own."""

import pytest
from scipy import stats
from trained_models import parameters

from fairseq_kernels.analysis.kerbs_senses import dictionary
from fairseq_kernels.analysis.word_similarity import main, read_pairs, simlex

HEADER = "word1\tword2\tPOS\tSimLex999\tconc(w1)\tconc(w2)\tconcQ\tAssoc(USF)\tSimAssoc333\tSD(SimLex)\n"
PAIRS = [("w1", "w2", 9.1), ("w3", "w9", 1.96), ("w4", "w5", 8.0), ("w7", "old", 1.58), ("w0", "w12", 1.96),
         ("w18", "w6", 0.3), ("new", "ancient", 5.0)]  # fmt: skip


@pytest.mark.parametrize("model", ["mixture_lm", "stock_lm"])
def test_score(model, request, lm_data, tmp_path, monkeypatch, capsys):
    trained = request.getfixturevalue(model)
    rows = (f"{first}\t{second}\tN\t{rating}\t2.72\t2.81\t2\t7.25\t1\t0.41\n" for first, second, rating in PAIRS)
    (tmp_path / "pairs.txt").write_text(HEADER + "".join(rows))
    actual = simlex(lm_data, trained.last, read_pairs(tmp_path / "pairs.txt"))
    weight = parameters(trained.folder)["decoder.embed_tokens.weight"].double()
    words = dictionary(trained.last, lm_data, 24).symbols
    cosines, ratings = [], []
    for first, second, rating in PAIRS:
        if first in words and second in words:
            one, other = weight[words.index(first)], weight[words.index(second)]
            cosines.append(float(one @ other / (one.norm() * other.norm())))
            ratings.append(rating)
    assert (actual["covered"], actual["pairs"]) == (5, 7)
    assert actual["correlation"] == pytest.approx(stats.spearmanr(cosines, ratings).statistic, abs=1e-12)
    monkeypatch.setattr("sys.argv", ["", *map(str, (lm_data, trained.last, "--simlex", tmp_path / "pairs.txt"))])
    main()
    said = f"{actual['correlation']:.3f} 5 of 7 {trained.last}"
    assert " ".join(capsys.readouterr().out.splitlines()[-1].split()) == said
