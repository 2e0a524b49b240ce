"""What seeds say of a table's rows: intervals and comparisons from one standard deviation pooled over the rows."""

import math
from typing import Dict

import numpy
import pandas
from sacrebleu import BLEU
from scipy import stats

CONFIDENCE = 0.95
OUTLYING = 0.001  # level of the test, over all rows, that a row's seeds differ more than others'


def summarise(measured: pandas.DataFrame, baseline: str = "") -> pandas.DataFrame:
    """Each row's mean over its seeds, and its difference from the baseline by the pooled t test; by Welch's, where one
    of the two is left out of the pool (:func:`outlying`).

    Args:
        measured: ``name`` and ``value``, a line a seed, of one table, corpus, profile and metric.
        baseline: the name of the row that the others are compared with.

    Returns:
        A line a row, in their order: ``mean``, ``seeds``, ``low`` and ``high`` of the mean's 95 % t interval,
        ``difference`` (mean - baseline's), ``difference_low``, ``difference_high`` and ``p``, not yet adjusted for the
        number of comparisons; ``deviation``, the standard deviation pooled over the rows with several seeds, or the
        row's own where ``outlying``, and its degrees of ``freedom``. NaN: unknown, as no row has two seeds, or a value
        isn't finite.
    """
    finite = measured.value.where(numpy.isfinite(measured.value))
    rows = finite.groupby(measured.name, sort=False).agg(mean="mean", seeds="size", variance="var", known="count")
    rows.loc[rows.known < rows.seeds, ["mean", "variance"]] = math.nan  # a run diverged
    rows["outlying"] = outlying(rows)
    pooled = rows[rows.variance.notna() & ~rows.outlying]
    freedom = int((pooled.seeds - 1).sum())
    squares = float(((pooled.seeds - 1) * pooled.variance).sum())
    rows["freedom"] = (rows.seeds - 1).where(rows.outlying, freedom)
    rows["variance"] = rows.variance.where(rows.outlying, squares / freedom if squares else math.nan)
    rows["deviation"] = rows.variance**0.5
    base = rows.loc[baseline] if baseline in rows.index else pandas.Series(math.nan, rows.columns)
    squared_error, base_squared_error = rows.variance / rows.seeds, base.variance / base.seeds
    error = (squared_error + base_squared_error) ** 0.5
    welch = error**4 / (squared_error**2 / rows.freedom + base_squared_error**2 / base.freedom)
    apart = rows.outlying | rows.outlying.get(baseline, False)
    difference_freedom = welch.where(apart, freedom)
    half = quantile(rows.freedom) * squared_error**0.5
    rows["low"], rows["high"] = rows["mean"] - half, rows["mean"] + half
    rows["difference"] = (rows["mean"] - base["mean"]).where(rows.index != baseline)
    half = quantile(difference_freedom) * error
    rows["difference_low"], rows["difference_high"] = rows.difference - half, rows.difference + half
    rows["p"] = 2 * stats.t.sf((rows.difference / error).abs(), difference_freedom)
    return rows


def summarise_logarithms(measured: pandas.DataFrame, baseline: str = "") -> pandas.DataFrame:
    """:func:`summarise` of the values' logarithms: ``mean``, ``low`` and ``high`` are of the geometric mean,
    differences and ``deviation`` in percent."""
    with numpy.errstate(all="ignore"):
        rows = summarise(measured.assign(value=numpy.log(measured.value)), baseline)
    ends = ["mean", "low", "high"]
    rows[ends] = numpy.exp(rows[ends])
    percent = ["difference", "difference_low", "difference_high", "deviation"]
    rows[percent] = 100 * numpy.expm1(rows[percent])
    return rows


def quantile(freedom: pandas.Series) -> numpy.ndarray:
    """Of Student's t, for the intervals' ends."""
    return stats.t.ppf((1 + CONFIDENCE) / 2, freedom)


def outlying(rows: pandas.DataFrame) -> pandas.Series:
    """The rows whose seeds differ more than those of the others, by an F test of each ``variance`` against all smaller
    ones: in the pool they would hide the differences between the others."""
    several = rows[rows.variance.notna()].sort_values("variance")
    freedom = several.seeds - 1
    squares = freedom * several.variance
    for place in range(1, len(several)):
        others, others_freedom = squares.iloc[:place].sum(), freedom.iloc[:place].sum()
        ratio = several.variance.iloc[place] * others_freedom / others if others else 0.0
        if stats.f.sf(ratio, freedom.iloc[place], others_freedom) < OUTLYING / len(several):
            return rows.index.to_series().isin(several.index[place:])
    return pandas.Series(False, rows.index)


def holm(p: pandas.Series) -> pandas.Series:
    """Holm's (1979) adjusted p-values, which control the family-wise error; NaN, no comparison, stays NaN."""
    known = p.dropna().sort_values()
    adjusted = (known * range(len(known), 0, -1)).cummax().clip(upper=1)
    return adjusted.reindex(p.index)


def paired_bootstrap(systems: Dict[str, numpy.ndarray]) -> pandas.DataFrame:
    """Koehn's (2004) paired bootstrap over sentences of the differences in tokenised BLEU from the first system, with
    sacreBLEU's 1,000 samples. It says nothing of another seed's training.

    Args:
        systems: (sentences, 6) counts of each, as :func:`bleu.sentence_counts` has them.

    Returns:
        A line for each other system: ``p``, of differences as large in either direction (sacreBLEU's counts those in
        one, and so is about half of it), and the 95 % interval's ends, ``difference_low`` and ``difference_high``.

    Raises:
        ValueError: the systems' references aren't the same.
    """
    [base, *others] = systems
    for name in others:
        if not numpy.array_equal(systems[name][:, 1], systems[base][:, 1]):
            raise ValueError(f"{name} and {base} have translated different test sets")
    sentences = len(systems[base])
    samples = numpy.random.default_rng(12345).choice(sentences, size=(1000, sentences))  # as sacreBLEU draws them
    scores = {name: [bleu(counts[sample]) for sample in samples] for name, counts in systems.items()}
    rows = {}
    for name in others:
        differences = numpy.subtract(scores[name], scores[base])
        observed = abs(bleu(systems[name]) - bleu(systems[base]))
        beyond = (abs(differences - differences.mean()) >= observed).sum()
        low, high = numpy.quantile(differences, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        rows[name] = (beyond + 1) / (len(samples) + 1), low, high
    return pandas.DataFrame.from_dict(rows, orient="index", columns=["p", "difference_low", "difference_high"])


def bleu(counts: numpy.ndarray) -> float:
    """Of these sentences together; from 0 to 100."""
    length, reference_length, *matches = counts.sum(axis=0)
    ngrams = [(counts[:, 0] - shorter).clip(min=0).sum() for shorter in range(len(matches))]
    return BLEU.compute_bleu(matches, ngrams, length, reference_length, smooth_method="exp").score
