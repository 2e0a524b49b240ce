"""Statistics over seeds and a test text: differences with intervals, tests of difference and of equivalence.

Two sources of chance are told apart. Trainings differ by their seeds: one standard deviation is pooled over all
replicated configurations of one size. The text is a sample of conversations (or blocks of lines, or sentences): its
part of the error comes from a paired bootstrap. A difference's error has both.
"""

import functools
import math
from typing import Callable, Dict, NamedTuple, Optional, Sequence, Tuple

import numpy
import pandas
from scipy import stats

CONFIDENCE = 0.95
SAMPLES = 1000  # of the bootstrap
PARTS = 10  # of a text at least for a bootstrap
FEW = 6  # degrees of freedom below which a size takes the deviation of all sizes and corpora


class Spread(NamedTuple):
    """Standard deviation of trainings that differ in their seed alone, and its degrees of freedom; and both with the
    seeds' own effects taken out, for rows that have the same seeds. NaN: unknown."""

    deviation: float = math.nan
    freedom: int = 0
    blocked: float = math.nan
    blocked_freedom: int = 0


def residual(values: pandas.DataFrame, *factors: str) -> Tuple[float, int]:
    """Sum of squared residuals of ``value``, fitted by a constant and the effects of these columns, and its degrees of
    freedom."""
    columns = [numpy.ones((len(values), 1))] + [pandas.get_dummies(values[name], dtype=float) for name in factors]
    design, value = numpy.hstack(columns), values.value.to_numpy(float)
    coefficients, _, rank, _ = numpy.linalg.lstsq(design, value, rcond=None)
    return float(((value - design @ coefficients) ** 2).sum()), len(values) - int(rank)


def spread(values: pandas.DataFrame) -> Spread:
    """The deviation pooled over replicated configurations, from a line a training, with ``configuration``, ``block``
    (seed and size) and ``value``."""
    values = values[numpy.isfinite(values.value)]
    values = values[values.groupby("configuration").block.transform("nunique") > 1]
    pooled = []
    for factors in (("configuration",), ("configuration", "block")):
        squares, freedom = residual(values, *factors)
        known = freedom and squares > 1e-24 * (values.value**2).sum()  # less is rounding: seeds that don't differ
        pooled += [math.sqrt(squares / freedom) if known else math.nan, freedom if known else 0]
    return Spread(*pooled)


def pooled(values: pandas.DataFrame) -> Dict[str, Spread]:
    """:func:`spread` of each ``size``; of all sizes together where one has under ``FEW`` degrees of freedom."""
    every = spread(values)
    own = {size: spread(trainings) for size, trainings in values.groupby("size")}
    return {size: each if each.freedom >= FEW else every for size, each in own.items()}


Text = Tuple[Callable, Callable]  # how a figure is made: the counts (P, k) of a text's parts, figures of sums (..., k)


@functools.lru_cache(maxsize=4)
def draws(parts: int) -> numpy.ndarray:
    """How often each part is drawn in each sample, (SAMPLES, parts): the same for all rows, which pairs them."""
    return numpy.random.default_rng(12345).multinomial(parts, numpy.full(parts, 1 / parts), SAMPLES).astype(float)


def resampled(runs: Sequence, text: Text) -> numpy.ndarray:
    """A row's mean over its seeds, whose ``runs`` are the text's parts, of each sample of the text, (SAMPLES,)."""
    counts_of, figure = text
    counts = [counts_of(numpy.asarray(parts, float)) for parts in runs]
    return numpy.mean([figure(draws(len(each)) @ each) for each in counts], axis=0)


def compare(measured: pandas.DataFrame, base: str, spread: Spread, text: Optional[Text] = None) -> pandas.DataFrame:
    """Each row's difference from one of them.

    The error's square is the seeds', from the pooled deviation, and the text's, from the bootstrap, where these are
    known; the degrees of freedom are Satterthwaite's.

    Args:
        measured: ``name``, ``seed``, ``value`` and ``parts`` (None if not known), a line a training.
        base: the name of the row that the others are compared with.

    Returns:
        By name: ``difference``, ``low`` and ``high`` of its interval, its ``error`` and ``freedom``, ``p`` and
        ``text``, whether the error has the text's part. NaN: unknown.
    """
    rows = {name: runs.set_index("seed") for name, runs in measured.groupby("name", sort=False)}
    compared = {name: comparison(runs, rows[base], spread, text) for name, runs in rows.items() if name != base}
    columns = ["difference", "error", "freedom", "text"]
    result = pandas.DataFrame.from_dict(compared, orient="index", columns=columns)
    result = result.astype(dict.fromkeys(columns[:3], float))
    half = stats.t.ppf((1 + CONFIDENCE) / 2, result.freedom) * result.error
    result["low"], result["high"] = result.difference - half, result.difference + half
    result["p"] = 2 * stats.t.sf((result.difference / result.error).abs(), result.freedom)
    return result


def comparison(row: pandas.DataFrame, base: pandas.DataFrame, spread: Spread, text: Optional[Text]) -> Tuple:
    """Difference, error, degrees of freedom, and whether the text is in the error."""
    difference = row.value.mean() - base.value.mean()
    if not (numpy.isfinite(row.value).all() and numpy.isfinite(base.value).all()):  # a training diverged
        return math.nan, math.nan, math.nan, False
    if set(row.index) == set(base.index) and spread.blocked_freedom:
        seeds, freedom = spread.blocked**2 * 2 / len(row), spread.blocked_freedom
    else:
        seeds, freedom = spread.deviation**2 * (1 / len(row) + 1 / len(base)), spread.freedom
    number, *others = {0 if parts is None else len(parts) for parts in [*row.parts, *base.parts]}
    sampled = text is not None and not others and number >= PARTS
    texts = 0.0
    if sampled:
        texts = (resampled(row.parts, text) - resampled(base.parts, text)).var(ddof=1)
        seeds, freedom = (0.0, 1) if math.isnan(seeds) else (seeds, freedom)  # one seed each: the text alone
    squares = seeds**2 / max(1, freedom) + texts**2 / max(1, number - 1)
    return difference, math.sqrt(seeds + texts), (seeds + texts) ** 2 / squares if squares else math.nan, sampled


def equivalence(rows: pandas.DataFrame, margin: float) -> pandas.Series:
    """p of two one-sided t tests that the difference is beyond ``margin``, in either direction: small where rows, as
    :func:`compare` has them, are as good as the one they are compared with."""
    beyond = [stats.t.sf((margin + sign * rows.difference) / rows.error, rows.freedom) for sign in (1, -1)]
    return pandas.Series(numpy.maximum(*beyond), rows.index)


def holm(p: pandas.Series) -> pandas.Series:
    """Holm's (1979) adjusted p-values, which control the family-wise error; NaN, no comparison, stays NaN."""
    known = p.dropna().sort_values()
    adjusted = (known * range(len(known), 0, -1)).cummax().clip(upper=1)
    return adjusted.reindex(p.index)


def anova(values: pandas.DataFrame, first: str, second: str) -> pandas.DataFrame:
    """Two-way analysis of variance with interaction of ``value``, each factor beside the other (type II).

    Args:
        values: a line a training, with these two columns.

    Returns:
        By source (the factors, ``FIRST × SECOND``, ``seeds``): ``squares``, ``freedom``, ``F`` and ``p``.
    """
    cells = values.assign(cell=values[first].astype(str) + " " + values[second].astype(str))
    within, additive = numpy.array(residual(cells, "cell")), numpy.array(residual(cells, first, second))
    without = {first: residual(cells, second) - additive, second: residual(cells, first) - additive}
    rows = {**without, f"{first} × {second}": additive - within, "seeds": within}
    table = pandas.DataFrame.from_dict(rows, orient="index", columns=["squares", "freedom"])
    mean = table.squares / table.freedom.where(table.freedom > 0)  # one seed a cell: no F
    table["F"] = (mean / mean["seeds"]).drop("seeds")
    table["p"] = stats.f.sf(table.F, table.freedom, table.freedom["seeds"])
    return table


def bleu(sums: numpy.ndarray) -> numpy.ndarray:
    """Tokenised BLEU, 0 to 100, of sums (..., 10) of :func:`bleu_counts`."""
    length, reference = sums[..., 0], sums[..., 1]
    with numpy.errstate(divide="ignore"):  # no match, or no words at all: BLEU is 0
        precision = numpy.log(sums[..., 2:6] / numpy.maximum(sums[..., 6:], 1)).mean(-1)
        return 100 * numpy.exp(precision + numpy.minimum(0, 1 - reference / length))


def bleu_counts(sentences: numpy.ndarray) -> numpy.ndarray:
    """The counts that BLEU is made of, (P, 10), from sentences' (P, 6) lengths of translation and reference, and
    1- to 4-grams that both have; the numbers of n-grams beside them."""
    return numpy.hstack([sentences, (sentences[:, :1] - numpy.arange(4)).clip(min=0)])


TEXTS = {  # of metrics whose figures come from parts; of perplexity its logarithm, from tokens and nats
    "ppl": (lambda parts: parts, lambda sums: sums[..., 1] / sums[..., 0]),
    "bleu": (bleu_counts, bleu),
}
