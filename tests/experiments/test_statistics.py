"""Differences, intervals and tests against scipy, sums worked out by hand, sacreBLEU, and simulated tables."""

import math

import numpy
import pandas
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest
from scipy import stats

from fairseq_kernels.analysis.bleu import lines_of, sentence_counts
from fairseq_kernels.experiments import statistics
from fairseq_kernels.experiments.statistics import TEXTS, Spread, anova, compare, equivalence, holm, pooled, spread


def measured(parts=None, **rows):
    """A line a training: values by row, of seeds from 1, or by seed; ``parts`` by row and seed."""
    lines = []
    for name, values in rows.items():
        by_seed = values if isinstance(values, dict) else dict(enumerate(values, 1))
        lines += [(name, seed, value, parts and parts[name, seed]) for seed, value in by_seed.items()]
    frame = pandas.DataFrame(lines, columns=["name", "seed", "value", "parts"])
    return frame.assign(configuration=frame.name, block=frame.seed.astype(str))


def against(rows, base="lin", **further):
    return compare(rows, base, spread(rows), **further)


def test_rows_with_other_seeds_are_compared_as_by_scipy():
    lin, pol = (62.5, 61.9, 62.0), (59.2, 59.0)
    row, expected = against(measured(lin=lin, pol=pol)).loc["pol"], stats.ttest_ind(pol, lin)
    ends = expected.confidence_interval()
    assert [row.p, row.freedom, row.low, row.high] == pytest.approx([expected.pvalue, expected.df, *ends])
    assert row.difference == pytest.approx(59.1 - 62.13333, abs=1e-4)


def test_seeds_are_blocks_where_rows_have_the_same():
    """With two rows that is scipy's paired test: what seeds have in common goes."""
    lin, pol = numpy.array([60.0, 64.0, 62.0, 69.0]), numpy.array([59.1, 62.8, 61.1, 68.2])
    row, expected = against(measured(lin=lin, pol=pol)).loc["pol"], stats.ttest_rel(pol, lin)
    assert [row.p, row.freedom] == pytest.approx([expected.pvalue, 3])
    assert [row.low, row.high] == pytest.approx([*expected.confidence_interval()])
    assert row.p < 0.01 < 0.5 < stats.ttest_ind(pol, lin).pvalue


def test_the_deviation_is_pooled_over_all_replicated_rows():
    """As scipy's Dunnett test has it; rows of one seed have it, too."""
    many = {"lin": (62.5, 61.9, 62.0), "pol": (59.2, 59.0), "log": (99.0, 98.1, 98.2, 99.5), "mog": (64.0,)}
    rows, known = against(measured(**many)), spread(measured(**many))
    expected = stats.dunnett(many["pol"], many["log"], control=many["lin"]).statistic
    assert rows.p[["pol", "log"]].tolist() == pytest.approx(2 * stats.t.sf(numpy.abs(expected), 6))
    squares = sum((len(values) - 1) * numpy.var(values, ddof=1) for values in many.values() if len(values) > 1)
    assert known.deviation == pytest.approx(math.sqrt(squares / 6)) and known.freedom == 6
    half = stats.t.ppf(0.975, 6) * known.deviation * math.sqrt(1 + 1 / 3)
    assert rows.high["mog"] - rows.low["mog"] == pytest.approx(2 * half)


def test_a_size_with_few_trainings_takes_the_deviation_of_all():
    random = numpy.random.default_rng(0)
    sizes = {"small": 5, "large": 2}  # configurations of three seeds
    lines = [(f"{size}{row}", f"{size} {seed}", size, value) for size, rows in sizes.items() for row in range(rows)
             for seed, value in enumerate(random.normal(60, 1, 3))]  # fmt: skip
    values = pandas.DataFrame(lines, columns=["configuration", "block", "size", "value"])
    actual = pooled(values)
    small = values[values["size"] == "small"]
    assert actual["small"].deviation == pytest.approx(math.sqrt(small.groupby("configuration").value.var().mean()))
    assert actual["large"].deviation == pytest.approx(math.sqrt(values.groupby("configuration").value.var().mean()))
    assert (actual["small"].freedom, actual["large"].freedom) == (10, 14)


def test_equivalence():
    """The larger p of two one-sided t tests, as scipy has them."""
    lin, same, other = (60.0, 60.3, 59.8), (60.1, 60.2), (61.2, 61.4)
    p = equivalence(against(measured(lin=lin, same=same)), margin=1)
    upper = stats.ttest_ind(numpy.array(same) - 1, lin, alternative="less").pvalue
    lower = stats.ttest_ind(numpy.array(same) + 1, lin, alternative="greater").pvalue
    assert p["same"] == pytest.approx(max(upper, lower)) and p["same"] < 0.05
    assert equivalence(against(measured(lin=lin, other=other)), margin=1)["other"] > 0.5


def test_holm():
    adjusted = holm(pandas.Series([0.01, 0.04, math.nan, 0.03, 0.9], index=list("abcde")))
    assert adjusted.drop("c").tolist() == pytest.approx([0.04, 0.09, 0.09, 0.9]) and math.isnan(adjusted["c"])
    assert holm(pandas.Series([0.5, 0.6])).tolist() == [1, 1]


def test_analysis_of_variance():
    """Against the sums of squares of a balanced design, from the cells' means."""
    random, levels, seeds = numpy.random.default_rng(3), ((1, 4), (1, 2, 8)), 3
    values = {(start, rate): 60 - 0.1 * start + rate * (0.2 if start == 1 else 0.5) + random.normal(0, 0.3, seeds)
              for start in levels[0] for rate in levels[1]}  # fmt: skip
    lines = [(*cell, value) for cell, several in values.items() for value in several]
    actual = anova(pandas.DataFrame(lines, columns=["start", "rate", "value"]), "start", "rate")
    cells = numpy.array([[values[start, rate].mean() for rate in levels[1]] for start in levels[0]])
    rows, columns, grand = cells.mean(1), cells.mean(0), cells.mean()
    within = sum(((several - several.mean()) ** 2).sum() for several in values.values())
    squares = [seeds * 3 * ((rows - grand) ** 2).sum(), seeds * 2 * ((columns - grand) ** 2).sum()]
    squares += [seeds * ((cells - rows[:, None] - columns + grand) ** 2).sum(), within]
    assert actual.index.tolist() == ["start", "rate", "start × rate", "seeds"]
    assert actual.squares.tolist() == pytest.approx(squares) and actual.freedom.tolist() == [1, 2, 2, 12]
    expected = [squares[k] / freedom / (within / 12) for k, freedom in enumerate((1, 2, 2))]
    assert actual.F[:3].tolist() == pytest.approx(expected)
    assert actual.p[:3].tolist() == pytest.approx([stats.f.sf(f, k, 12) for f, k in zip(expected, (1, 2, 2))])


def parts_of(log_perplexities, tokens=50):
    return [[tokens, tokens * value] for value in log_perplexities]


def test_the_text_s_error_is_that_of_the_parts_mean():
    random = numpy.random.default_rng(0)
    lin = random.normal(4.0, 0.5, 200)
    gain = random.normal(0.05, 0.1, 200)  # what conversations have in common goes, as they are paired
    parts = {("lin", 1): parts_of(lin), ("pol", 1): parts_of(lin - gain)}
    rows = measured(parts, lin=[lin.mean()], pol=[(lin - gain).mean()])
    row = compare(rows, "lin", Spread(), TEXTS["ppl"]).loc["pol"]
    assert row.error == pytest.approx(gain.std(ddof=1) / math.sqrt(200), rel=0.08) and row.text
    assert row.difference == pytest.approx(-gain.mean()) and row.freedom == pytest.approx(199)
    both = compare(rows, "lin", Spread(0.01, 30), TEXTS["ppl"]).loc["pol"]
    assert both.error == pytest.approx(math.hypot(row.error, 0.01 * math.sqrt(2)))
    assert both.freedom == pytest.approx(both.error**4 / (0.0002**2 / 30 + row.error**4 / 199))  # Satterthwaite's
    other = measured({**parts, ("pol", 1): parts_of(lin[:100])}, lin=[4.0], pol=[4.1])
    assert not compare(other, "lin", Spread(0.01, 30), TEXTS["ppl"]).loc["pol"].text
    ten = measured({name: own[:10] for name, own in parts.items()}, lin=[4.0], pol=[4.1])
    assert compare(ten, "lin", Spread(), TEXTS["ppl"]).loc["pol"].text
    few = measured({name: own[:9] for name, own in parts.items()}, lin=[4.0], pol=[4.1])  # too few for a bootstrap
    assert math.isnan(compare(few, "lin", Spread(), TEXTS["ppl"]).loc["pol"].p)


def test_bleu(tmp_path):
    """BLEU is sacreBLEU's, and so is the bootstrap's p, but for counting both directions."""
    generated = tmp_path / "test.gen"
    generated.write_text("S-10\tx\nT-10\tthe last one\nH-10\t-0.1\tthe last one\nH-2\t-1\tfirst\nT-2\tthe first one\n")
    assert lines_of(generated, "T") == ["the first one", "the last one"]
    truth = [f"sentence number {number} of this small test set" for number in range(40)]
    worse = [line.replace("small", "tiny") if number % 2 else line for number, line in enumerate(truth)]
    one_less = [line.replace("small", "tiny") if number == 7 else line for number, line in enumerate(truth)]
    systems, parts = {"lin": truth, "worse": worse, "one_less": one_less}, {}
    for name, lines in systems.items():
        pairs = enumerate(zip(lines, truth))
        generated.write_text("".join(f"H-{number}\t-1\t{line}\nT-{number}\t{true}\n" for number, (line, true) in pairs))
        parts[name, 1] = sentence_counts(generated)
    metric = sacrebleu.BLEU(tokenize="none", force=True)
    _, scores = PairedTest(list(systems.items()), {"BLEU": metric}, [truth], "bs", n_samples=1000)()
    expected = dict(zip(systems, scores["BLEU"]))
    counts = {name: statistics.bleu_counts(numpy.array(parts[name, 1])) for name in systems}
    whole = {name: float(statistics.bleu(each.sum(0))) for name, each in counts.items()}
    assert whole == pytest.approx({name: expected[name].score for name in systems})
    rows = compare(measured(parts, **{name: [value] for name, value in whole.items()}), "lin", Spread(), TEXTS["bleu"])
    assert rows.p["worse"] < 0.001 and expected["one_less"].p_value <= rows.p["one_less"] and rows.high["worse"] < -5
