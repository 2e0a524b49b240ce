"""Each table as the report shows it: rows beside the paper's, with intervals, comparisons, costs and origin."""

import functools
import math
import re
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

import numpy
import pandas

from .report_figures import Picture, bars, curve_pictures, points
from .statistics import OUTLYING
from .summaries import COSTS, METRICS, Metric, Results, baseline_of

LEVEL = 0.05
MARK = "†"
ONE_SEED = "In round brackets: the number of seeds. The 95 % interval of one seed comes from the other rows' spread."
PAPERS = ("Gao", "de Brebisson", "Miao")


class Number(NamedTuple):
    """As it is shown, and the objects of ``results/`` that it comes from."""

    text: str
    figures: Sequence[Dict] = ()

    def __str__(self) -> str:
        return self.text


class Part(NamedTuple):
    """Of a chapter, what belongs to one profile and corpus: tables of texts and :class:`Number`, a row's name first;
    sentences on them; how the figures were made, and by which commands; pictures."""

    title: str
    tables: List[pandas.DataFrame]
    notes: Sequence[str] = ()
    made: str = ""
    command: str = ""
    pictures: Sequence[Picture] = ()


class Chapter(NamedTuple):
    """A table of a paper, or what else the report shows; ``name`` is its file's."""

    name: str
    title: str
    source: str
    note: str
    parts: List[Part]


def chapter(results: Results) -> Chapter:
    """A part for each profile and corpus, language models first. Of a metric that was measured on the table's split the
    figures on others are left out, and of the mixture weights what the paper has none of."""
    table, figures = results.table, results.figures
    by_metric = (figures.split == table.split).groupby([figures.profile, figures.corpus, figures.metric])
    figures = figures[~by_metric.transform("any") | (figures.split == table.split)]
    sections = figures.metric.map(place).groupby([figures.profile, figures.corpus]).min().rename("place").reset_index()
    sections = sections.sort_values(["profile", "place", "corpus"])
    parts = [part(results, figures[(figures.profile == section.profile) & (figures.corpus == section.corpus)])
             for section in sections.itertuples()]  # fmt: skip
    return Chapter(table.name, table.title, table.source, table.note, parts)


def place(metric: str) -> int:
    return [*METRICS, metric].index(metric)


def part(results: Results, figures: pandas.DataFrame) -> Part:
    """Of one profile and corpus, whose figures these are."""
    table, (profile, corpus) = results.table, figures[["profile", "corpus"]].iloc[0]
    planned, run = [row.name for row in table.rows], unique(figures.name)
    names = [name for name in unique([*planned, *run]) if name in run]
    profile_figures = results.rows[results.rows.profile == profile]
    rows = profile_figures[profile_figures.corpus == corpus].set_index("name").loc[names]  # in the table's order
    in_paper = {metric for row in table.rows for metric in row.paper}
    columns = sorted(unique(zip(figures.metric, figures.split)), key=lambda column: (place(column[0]), column))
    columns = [rows[(rows.metric == metric) & (rows.split == split)] for metric, split in columns
               if metric in in_paper or not metric.startswith("pi_")]  # fmt: skip
    shown = [main_table(names, columns, figures)]
    pictures = [picture for column in columns for picture in points_picture(column)]
    curves = figures.drop_duplicates(["name", "seed"]).groupby("name").valid_curve.agg(list)
    curves = {name: [curve for curve in curves[name] if curve] for name in names if any(curves[name])}
    if curves:
        pictures += curve_pictures("Validation perplexity over updates", curves, baseline_of(table, curves))
    weights = figures[figures.metric.str.startswith("pi_") & ~figures.metric.str.startswith("pi_variance")]
    if len(weights):
        shown.append(weights_table(weights, rows[rows.metric == "pi_variance_pp2"]))
        pictures.append(weights_picture(weights))
    missing = ", ".join(name for name in planned if name not in names)
    notes = [f"Not run: {missing}."] if missing else []
    if any((column.low.notna() & (column.seeds == 1)).any() for column in columns):
        notes.append(ONE_SEED)
    for column in columns:
        notes += comparisons(column, profile_figures.adjusted.count())
    split_figures = figures[(figures.split == table.split) & figures.command.str.startswith("bash ")]
    command = (split_figures if len(split_figures) else figures).command.iloc[0]
    return Part(title(corpus, profile), shown, notes + marked_rows(figures), made(figures), command, pictures)


def marked_rows(figures: pandas.DataFrame) -> List[str]:
    rows = ", ".join(unique(f"{name} ({commits})" for name, commits in zip(figures.name, figures.off_main) if commits))
    return [f"{MARK} commit not on main, or files had changed since: {rows}."] if rows else []


def title(corpus: str, profile: str) -> str:
    return f"{corpus}, --profile {profile}"


def unique(items: Iterable) -> List:
    return list(dict.fromkeys(items))


def label(column: pandas.DataFrame) -> str:
    metric, split = column[["metric", "split"]].iloc[0]
    return METRICS.get(metric, Metric(metric)).label + ("" if split == "test" else f" ({split})")


def cell(row: pandas.Series) -> str:
    """``62.1 [61.8, 62.4] (3)``: the mean over that many seeds, with its interval."""
    digits = METRICS.get(row.metric, Metric("")).decimals
    interval = f" [{row.low:.{digits}f}, {row.high:.{digits}f}]" if numpy.isfinite(row.low) else ""
    return f"{row['mean']:.{digits}f}{interval} ({row.seeds})"


def difference(row: pandas.Series) -> str:
    """``-3.0 [-3.5, -2.6]``: from the baseline; of relative metrics ``-4.8 % [-5.6, -4.2]``."""
    metric = METRICS.get(row.metric, Metric(""))
    digits, unit = (1, " %") if metric.relative else (metric.decimals, "")
    interval = f" [{row.difference_low:+.{digits}f}, {row.difference_high:+.{digits}f}]"
    known = f"{row.difference:+.{digits}f}{unit}{interval if numpy.isfinite(row.difference_low) else ''}"
    return known if numpy.isfinite(row.difference) else ""


def p_value(p: float) -> str:
    return "" if numpy.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def main_table(names: List[str], columns: List[pandas.DataFrame], figures: pandas.DataFrame) -> pandas.DataFrame:
    """A line a row: in each column its mean, the paper's, the difference from the baseline and p; costs; options."""
    by_name, blocks = figures.groupby("name"), []
    for column in columns:
        rows = [row for _, row in column.iterrows()]
        block = {
            label(column): [Number(cell(row), row.entries) for row in rows],
            "paper, its own data": column.paper.astype(object),
            f"− {column.baseline.iloc[0]}'s": [difference(row) for row in rows],
            "p": column.adjusted.map(p_value),
        }
        blocks.append(pandas.DataFrame(block, index=column.index))
    for cost, (head, form) in COSTS.items():
        blocks.append(by_name[cost].mean().map(form.format, na_action="ignore").astype(object).rename(head))
    blocks.append(by_name.learned.agg(learned_values))
    blocks.append(by_name.config.agg(lambda configs: " / ".join(unique(configs))).rename("options"))
    shown = pandas.concat(blocks, axis=1).reindex(names).astype(object).fillna("")
    shown = shown.loc[:, [any(map(str, shown.iloc[:, number])) for number in range(shown.shape[1])]]
    marked = by_name.off_main.agg(any)
    shown.insert(0, "", [f"{name} {MARK}" if marked[name] else name for name in names])
    return shown


def learned_values(learned: pandas.Series) -> str:
    """Of trained hyper-parameters: their means over the seeds."""
    values = pandas.DataFrame(list(learned.dropna())).mean(numeric_only=True)
    return ", ".join(f"{name} {value:.3g}" for name, value in values.items())


def weights_table(weights: pandas.DataFrame, variances: pandas.DataFrame) -> pandas.DataFrame:
    """Mean mixture weights, and the two variances that the paper's Table 2 may list: of each token's weights, averaged,
    and of the mean weights."""
    lines = []
    for name, rows in weights.groupby("name", sort=False):
        means = rows.groupby("metric").value.mean().sort_index(key=numbered)
        each = ", ".join(f"{metric[3:]} {mean:.2f}" for metric, mean in means.items())
        # without an interval: with a few seeds it would begin below 0
        variance = [
            Number(f"{row['mean']:.1f} ({row.seeds})", row.entries)
            for _, row in variances[variances.index == name].iterrows()
        ]
        lines.append([name, each, *(variance or [""]), f"{1e4 * rows.groupby('seed').value.var(ddof=0).mean():.2f}"])
    heads = ["", "mean mixture weights", "variance of a token's weights, pp²", "variance of the mean weights, pp²"]
    return pandas.DataFrame(lines, columns=heads)


def numbered(names: pandas.Index) -> pandas.Index:
    """So that lin10 comes after lin9."""
    return names.str.replace(r"\d+", lambda number: number[0].zfill(9), regex=True)


def points_picture(rows: pandas.DataFrame) -> List[Picture]:
    """Our rows and the paper's over their baselines, where there is something to compare."""
    base = rows.baseline.iloc[0]
    correlation = rows.metric.iloc[0] == "simlex"  # about 0, or below it: no ratio
    if correlation or not base or len(rows) < 2 or not rows["mean"][base] > 0:
        return []
    draw = functools.partial(points, rows=rows, base=base)
    intervals = ", with 95 % intervals" if rows.low.notna().any() else ""
    return [Picture(f"{label(rows)} over {base}'s{intervals}", draw)]


def weights_picture(weights: pandas.DataFrame) -> Picture:
    """Components of one kernel taken together, where there are several kernels."""
    components = weights.metric.str.removeprefix("pi_")
    kernels = components.str.rstrip("0123456789")
    parts = components if kernels.nunique() == 1 else kernels
    total = weights.groupby(["name", "seed", parts.rename("part")], sort=False).value.sum()
    means = total.groupby(["name", "part"], sort=False).mean().unstack(fill_value=0)
    means = means.sort_index(axis="columns", key=numbered) if parts is components else means
    return Picture("Mean mixture weights", functools.partial(bars, values=means, xlabel="weight"))


def comparisons(rows: pandas.DataFrame, count: int) -> List[str]:
    """What the tests say of a column; ``count`` is Holm's number of comparisons."""
    first = rows.iloc[0]
    if not first.baseline or len(rows) == 1:
        return []
    base, name, tested = first.baseline, label(rows), rows.adjusted.notna()
    if not tested.any():
        reason = "no row has two seeds that differ"
        if rows.deviation.notna().any():
            reason = (
                f"{base} has no finite figure" if pandas.isna(rows["mean"].get(base)) else "no other row was trained"
            )
        elif METRICS[first.metric].test == "bootstrap":
            reason += f", and {base}'s translations, or all others, are not in results/sentences"
        return [f"{name}: differences from {base} were not tested, as {reason}."]
    pooled, apart = rows[~rows.outlying].iloc[0], ", ".join(rows.index[rows.outlying])
    freedom = f"{pooled.freedom} degree{'' if pooled.freedom == 1 else 's'} of freedom"
    unit = " %, of logarithms" if METRICS[first.metric].relative else ""
    how = f"t test with the pooled standard deviation {pooled.deviation:.2g}{unit}, {freedom}"
    how += f", but Welch's for {apart}, whose seeds differ more (F test, level {OUTLYING})" if apart else ""
    if rows.bootstrap.any():
        others = (tested & ~rows.bootstrap).any()
        how = f"{how}; for {', '.join(rows.index[rows.bootstrap])}, of one seed: " if others else ""
        how += "paired bootstrap over sentences, which says nothing of other seeds"
    sure = rows.adjusted < LEVEL
    groups = {
        f"below {base}": sure & (rows.difference < 0),
        f"above {base}": sure & (rows.difference > 0),
        f"no difference from {base} shown": rows.adjusted >= LEVEL,
        "not tested": rows.adjusted.isna() & (rows.index != base),
    }
    each = "; ".join(f"{group}: {', '.join(rows.index[chosen])}" for group, chosen in groups.items() if chosen.any())
    return [f"{name} ({how}; Holm over {count} comparison{'' if count == 1 else 's'}, level {LEVEL}): {each}."]


def made(figures: pandas.DataFrame) -> str:
    """Commits, data, versions and machines of figures, in a sentence."""

    def each(values: Iterable) -> str:
        return ", ".join(unique(str(value) for value in values if not pandas.isna(value)))

    versions = each(f"{package} {version}" for installed in figures.versions for package, version in installed.items())
    return (
        f"Made at commit {each(figures.commit)}, {' to '.join(unique((figures.date.min(), figures.date.max())))}; data "
        f"{each(figures.corpus + ' ' + figures.data)}; {versions}, Python {each(figures.python)}; "
        f"{each(figures.processor)}, threads {each(figures.threads.astype('Int64'))}, "
        f"GPU {each(figures.gpu.astype(object).fillna('none'))}; seeds {each(figures.seed)}."
    )


def in_order(chapters: Iterable[Chapter]) -> List[Chapter]:
    """The papers', each table in its place, then what is beyond them."""

    def order(chapter: Chapter) -> Tuple:
        paper = [number for number, author in enumerate(PAPERS) if chapter.source.startswith(author)]
        table = re.search(r"Tables? (\d+)", chapter.source)
        return paper or [len(PAPERS)], int(table[1]) if table else math.inf, chapter.name

    return sorted(chapters, key=order)
