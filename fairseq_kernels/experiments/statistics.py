"""What seeds say of a table's rows: intervals and comparisons from one standard deviation pooled over the rows."""

import math
from typing import Dict, Sequence

import numpy
import pandas
import sacrebleu
from sacrebleu.significance import PairedTest
from scipy import stats

CONFIDENCE = 0.95


def summarise(measured: pandas.DataFrame, baseline: str = "") -> pandas.DataFrame:
    """Each row's mean over its seeds, and its difference from the baseline by the pooled t test.

    Args:
        measured: ``name`` and ``value``, a line a seed, of one table, corpus, profile and metric.
        baseline: the name of the row that the others are compared with.

    Returns:
        A line a row, in their order: ``mean``, ``seeds``, ``low`` and ``high`` of the mean's 95 % t interval,
        ``difference`` (mean - baseline's), ``difference_low``, ``difference_high`` and ``p``, not yet adjusted for the
        number of comparisons; ``deviation``, the standard deviation pooled over the rows with several seeds, and its
        degrees of ``freedom``. NaN: unknown, as no row has two seeds, or a value isn't finite.
    """
    finite = measured.value.where(numpy.isfinite(measured.value))
    rows = finite.groupby(measured.name, sort=False).agg(mean="mean", seeds="size", variance="var", known="count")
    rows.loc[rows.known < rows.seeds, ["mean", "variance"]] = math.nan  # a run diverged
    several = rows[rows.variance.notna()]
    freedom = int((several.seeds - 1).sum())
    squares = float(((several.seeds - 1) * several.variance).sum())
    deviation = math.sqrt(squares / freedom) if squares else math.nan
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, freedom) if freedom else math.nan
    half = quantile * deviation / rows.seeds**0.5
    rows["low"], rows["high"] = rows["mean"] - half, rows["mean"] + half
    base = rows.loc[baseline] if baseline in rows.index else pandas.Series(math.nan, rows.columns)
    error = deviation * (1 / rows.seeds + 1 / base.seeds) ** 0.5
    rows["difference"] = (rows["mean"] - base["mean"]).where(rows.index != baseline)
    rows["difference_low"] = rows.difference - quantile * error
    rows["difference_high"] = rows.difference + quantile * error
    rows["p"] = 2 * stats.t.sf((rows.difference / error).abs(), freedom or math.nan)
    return rows.assign(deviation=deviation, freedom=freedom)


def holm(p: pandas.Series) -> pandas.Series:
    """Holm's (1979) adjusted p-values, which control the family-wise error; NaN, no comparison, stays NaN."""
    known = p.dropna().sort_values()
    adjusted = (known * range(len(known), 0, -1)).cummax().clip(upper=1)
    return adjusted.reindex(p.index)


def paired_bootstrap(systems: Dict[str, Sequence[str]], references: Sequence[str]) -> Dict[str, float]:
    """p-values of the differences in tokenised BLEU from the first system, by sacreBLEU's paired bootstrap over
    sentences (1,000 samples). It says nothing of another seed's training."""
    metric = sacrebleu.BLEU(tokenize="none", force=True)
    _, scores = PairedTest(list(systems.items()), {"BLEU": metric}, [references], "bs", n_samples=1000)()
    return {name: result.p_value for name, result in zip(systems, scores["BLEU"]) if result.p_value is not None}
