"""Intervals and comparisons against scipy, worked examples and simulated tables."""

import math

import numpy
import pandas
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest
from scipy import stats

from fairseq_kernels.analysis.bleu import lines_of, sentence_counts
from fairseq_kernels.experiments.statistics import bleu, holm, paired_bootstrap, summarise, summarise_logarithms


def measured(**rows):
    return pandas.DataFrame([(name, value) for name, values in rows.items() for value in values],
                            columns=["name", "value"])  # fmt: skip


def test_two_rows_are_compared_as_by_scipy():
    lin, pol = (62.5, 61.9, 62.0), (59.2, 59.0)
    rows = summarise(measured(lin=lin, pol=pol), "lin")
    expected = stats.ttest_ind(pol, lin)
    assert rows.p["pol"] == pytest.approx(expected.pvalue) and rows.freedom.tolist() == [expected.df, 3]
    interval = expected.confidence_interval()
    assert (rows.difference_low["pol"], rows.difference_high["pol"]) == pytest.approx((interval.low, interval.high))
    assert math.isnan(rows.p["lin"]) and math.isnan(rows.difference["lin"])


def test_spread_is_pooled_over_all_rows():
    """scipy's Dunnett test has the same statistics, from all samples' variance."""
    many = {"lin": (62.5, 61.9, 62.0), "pol": (59.2, 59.0), "log": (99.0, 98.1, 98.2, 99.5)}
    rows = summarise(measured(**many), "lin")
    expected = stats.dunnett(many["pol"], many["log"], control=many["lin"]).statistic
    assert rows.p[["pol", "log"]].tolist() == pytest.approx(2 * stats.t.sf(numpy.abs(expected), 6))
    half = stats.t.ppf(0.975, 6) * rows.deviation["lin"] / math.sqrt(3)
    assert (rows.low["lin"], rows.high["lin"]) == pytest.approx((62.13333 - half, 62.13333 + half))


def test_perplexities_are_compared_by_their_logarithms():
    """Ends and differences are ratios, so that rows far apart have a spread of their size."""
    values = {"lin": (62.5, 61.9, 62.0), "pol": (590.0, 592.0), "worse": (9000.0,), "diverged": (math.inf,)}
    rows = summarise_logarithms(measured(**values), "lin")
    logs = {name: numpy.log(each) for name, each in values.items()}
    expected = stats.ttest_ind(logs["pol"], logs["lin"])
    interval = expected.confidence_interval()
    assert rows.p["pol"] == pytest.approx(expected.pvalue)
    ends = rows.difference_low["pol"], rows.difference["pol"], rows.difference_high["pol"]
    middle = logs["pol"].mean() - logs["lin"].mean()
    assert ends == pytest.approx([100 * math.expm1(end) for end in (interval.low, middle, interval.high)])
    assert rows["mean"]["lin"] == pytest.approx(stats.gmean(values["lin"]))
    deviation = math.log1p(rows.deviation["lin"] / 100)
    assert deviation == pytest.approx(math.sqrt((2 * logs["lin"].var(ddof=1) + logs["pol"].var(ddof=1)) / 3))
    assert rows.high["worse"] == pytest.approx(9000 * math.exp(stats.t.ppf(0.975, 3) * deviation))
    assert math.isnan(rows["mean"]["diverged"])


def test_a_row_that_scatters_more_is_left_out_of_the_pool():
    """As scipy's Welch test has it; what is said of the others doesn't change."""
    lin, stock = (62.0, 62.1, 61.95), (76.7, 87.0)
    rows = summarise(measured(lin=lin, stock=stock), "lin")
    expected = stats.ttest_ind(stock, lin, equal_var=False)
    interval = expected.confidence_interval()
    assert rows.outlying.tolist() == [False, True] and rows.p["stock"] == pytest.approx(expected.pvalue)
    assert (rows.difference_low["stock"], rows.difference_high["stock"]) == pytest.approx((interval.low, interval.high))
    assert rows.freedom.tolist() == [2, 1] and rows.high["stock"] > 140

    others = {"lin": lin, "pol": (59.0, 59.1), "log": (99.0,)}
    columns = ["low", "high", "p", "difference_low", "deviation", "freedom"]
    alone, beside = (summarise(measured(**rows_), "lin")[columns] for rows_ in (others, {"stock": stock, **others}))
    pandas.testing.assert_frame_equal(beside.drop("stock"), alone)
    both = summarise(measured(stock=stock, worse=(60.0, 90.0), **others), "lin")
    assert both.index[both.outlying].tolist() == ["stock", "worse"]
    against = summarise(measured(stock=stock, **others), "stock")
    assert against.p["lin"] == pytest.approx(beside.p["stock"], rel=0.5) and against.difference["lin"] < 0
    assert not summarise(measured(lin=lin, mog=(63.5, 64.0)), "lin").outlying.any()
    assert not summarise(measured(lin=(62.0, 62.0), pol=(59.0, 59.1)), "lin").outlying.any()


def test_one_seed_has_the_others_spread():
    rows = summarise(measured(lin=(60.0, 62.0), mog=(64.0,)), "lin")
    assert rows.deviation.tolist() == pytest.approx([math.sqrt(2)] * 2) and rows.freedom.tolist() == [1, 1]
    quantile = stats.t.ppf(0.975, 1)
    assert rows.seeds.tolist() == [2, 1] and rows.high["mog"] == pytest.approx(64 + quantile * math.sqrt(2))
    assert rows.difference_low["mog"] == pytest.approx(3 - quantile * math.sqrt(2 * 1.5))


@pytest.mark.parametrize("rows", [{"lin": (60.0,), "pol": (59.0,)}, {"lin": (60.0, math.inf), "pol": (59.0,)},
                                  {"lin": (60.0, 60.0), "pol": (59.0,)}])  # fmt: skip
def test_nothing_is_known_without_a_spread(rows):
    summary = summarise(measured(**rows), "lin")
    assert summary[["low", "high", "difference_low", "difference_high", "p"]].isna().all(axis=None)
    assert summary["mean"]["pol"] == 59.0


def test_a_row_that_diverged_leaves_the_others_alone():
    rows = summarise(measured(lin=(60.0, 62.0), bad=(math.inf, 3.0), pol=(59.0, math.nan)), "lin")
    assert rows.freedom["lin"] == 1 and rows.p[["bad", "pol"]].isna().all() and math.isfinite(rows.low["lin"])
    assert rows["mean"][["bad", "pol"]].isna().all()


def test_holm():
    adjusted = holm(pandas.Series([0.01, 0.04, math.nan, 0.03, 0.9], index=list("abcde")))
    assert adjusted.drop("c").tolist() == pytest.approx([0.04, 0.09, 0.09, 0.9]) and math.isnan(adjusted["c"])
    assert holm(pandas.Series([0.5, 0.6])).tolist() == [1, 1]


def test_intervals_cover_and_ties_are_rarely_called_differences():
    """In 200 tables of equal rows, of which two have one seed; 5 % has a standard error of 1.5 %."""
    random, covered, wrong = numpy.random.default_rng(1), [], 0
    for _ in range(200):
        table = {name: random.normal(60, 0.5, count) for name, count in (("lin", 3), ("a", 3), ("b", 1), ("c", 1))}
        rows = summarise(measured(**table), "lin")
        covered.append((rows.low < 60) & (rows.high > 60))
        wrong += bool((holm(rows.p) < 0.05).any())
    assert numpy.mean(covered, axis=0) == pytest.approx(0.95, abs=0.04)
    assert 0 < wrong / 200 < 0.09


def test_bleu(tmp_path):
    generated = tmp_path / "test.gen"
    generated.write_text("S-10\tx\nT-10\tthe last one\nH-10\t-0.1\tthe last one\nH-2\t-1\tfirst\nT-2\tthe first one\n")
    assert lines_of(generated, "T") == ["the first one", "the last one"]
    truth = [f"sentence number {number} of this small test set" for number in range(40)]
    worse = [line.replace("small", "tiny") if number % 2 else line for number, line in enumerate(truth)]
    one_less = [line.replace("small", "tiny") if number == 7 else line for number, line in enumerate(truth)]
    systems = {"lin": truth, "worse": worse, "one_less": one_less}
    counts = {}
    for name, lines in systems.items():
        pairs = enumerate(zip(lines, truth))
        generated.write_text("".join(f"H-{number}\t-1\t{line}\nT-{number}\t{true}\n" for number, (line, true) in pairs))
        counts[name] = numpy.array(sentence_counts(generated))
    actual = paired_bootstrap(counts)
    metric = sacrebleu.BLEU(tokenize="none", force=True)
    _, scores = PairedTest(list(systems.items()), {"BLEU": metric}, [truth], "bs", n_samples=1000)()
    expected = dict(zip(systems, scores["BLEU"]))
    # sacreBLEU's counts one direction
    assert all(expected[name].p_value <= actual.p[name] for name in ("worse", "one_less"))
    assert actual.p["worse"] < 0.01 < actual.p["one_less"] and actual.difference_high["worse"] < -5
    worse_score = expected["worse"].score
    assert bleu(counts["worse"]) == pytest.approx(worse_score) and bleu(counts["lin"]) == pytest.approx(100)
    assert actual.difference_low["worse"] < worse_score - 100 < actual.difference_high["worse"]
    with pytest.raises(ValueError, match="other and lin have translated different test sets"):
        paired_bootstrap({"lin": counts["lin"], "other": counts["lin"] + 1})


def test_the_bootstrap_of_equal_systems():
    """Whose sentences differ at random: p is below 0.05 as often as that says, and where the interval leaves 0 out."""
    random = numpy.random.default_rng(0)
    small, outside, count = 0, 0, 60
    for _ in range(count):
        right = random.random((2, 150, 12)) < 0.7
        ngrams = [right, right[..., 1:] & right[..., :-1]]
        ngrams += [ngrams[1][..., 1:] & right[..., :-2]]
        ngrams += [ngrams[2][..., 1:] & right[..., :-3]]
        length = numpy.full((2, 150, 2), 12)
        lin, other = numpy.concatenate([length, *(matches.sum(-1)[..., None] for matches in ngrams)], axis=-1)
        row = paired_bootstrap({"lin": lin, "other": other}).loc["other"]
        small += row.p < 0.05
        outside += not row.difference_low < 0 < row.difference_high
    assert small <= 0.1 * count and abs(small - outside) <= 0.03 * count
