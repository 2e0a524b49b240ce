"""Each table as the report shows it: rows beside the paper's, with intervals, comparisons, costs and origin."""

import functools
import math
import re
import subprocess
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy
import pandas

from ..analysis.bleu import hypotheses
from . import statistics, tables
from .report_figures import Picture, bars, curve_pictures, points
from .results import load
from .searched import SEARCHED, row_options


class Metric(NamedTuple):
    """What a reader calls it, how it is rounded, and how rows are compared in it."""

    label: str
    decimals: int = 3
    test: str = ""


METRICS = {  # in the columns' order
    "ppl": Metric("perplexity", 1, "t"),
    "bleu": Metric("BLEU4", 1, "bootstrap"),
    "sacrebleu": Metric("sacreBLEU", 1),
    "top10_error": Metric("top-10 error", 3, "t"),
    "simlex": Metric("word similarity", 3, "t"),
    "pi_variance_pp2": Metric("variance of weights, pp²", 1),
}
COSTS = {  # of rows whose figures have them: heading and format
    "parameters": ("parameters", "{:,.0f}"),
    "words_per_second": ("words/s", "{:,.0f}"),
    "learning_rate": ("learning rate", "{:g}"),
    "train_ppl": ("training perplexity", "{:.1f}"),
    "minutes": ("minutes", "{:.1f}"),
}
BASELINES = ("lin", "softmax")  # what rows are compared with; where there is none of these, with the table's first
LEVEL = 0.05
MARK = "†"
PAPERS = ("Gao", "de Brebisson", "Miao")
RUN = ("name", "corpus", "profile", "seed")
FIGURE = (*RUN, "split", "metric", "value", "command", "config", "data", "date", "versions")
OPTIONAL = ("paper", "parameters", "words_per_second", "train_ppl", "learned", "valid_curve", "hypotheses")
OPTIONAL += ("commit", "seconds", "arguments", "processor", "threads", "gpu", "python")


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


class Results(NamedTuple):
    """A table's figures, one a line; their statistics, a line a row and column; and what was pooled for these, by
    profile, corpus, metric and split."""

    table: tables.Table
    figures: pandas.DataFrame
    rows: pandas.DataFrame
    spreads: Dict[Tuple, statistics.Pooled]


def read(path: Path, names: Iterable[str]) -> List[Dict]:
    """A results file's objects.

    Raises:
        ValueError: one lacks a name, in itself and in its provenance, or has a value that is no number.
    """
    entries = load(path)
    for place, entry in enumerate(entries, 1):
        values = {**entry.get("provenance", {}), **entry}
        for name in names:
            if values.get(name) is None or (name == "value" and not isinstance(values[name], (int, float))):
                raise ValueError(f"{path}: object {place} has no {name!r}, or one of another type")
    return entries


def read_curves(path: Path) -> Dict[Tuple, List]:
    """Each run's validation perplexity, in pairs of update and value."""
    curves = {}
    for place, entry in enumerate(read(path, RUN), 1):
        try:
            curve = [(int(update), float(ppl)) for update, ppl in entry.get("valid", {}).get("ppl", {}).items()]
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: object {place} has no curve by update: {error}") from error
        curves[tuple(entry.get(name) for name in (*RUN, "config", "data"))] = curve
    return curves


def data_frame(entries: Sequence[Dict], table: tables.Table, curves: Optional[Dict[Tuple, List]] = None):
    """Objects of ``results/`` as lines, their provenance beside them.

    Rows that were run with other options too, after ``--``, have a name for each, and so have different data under one
    corpus' name.
    """
    figures = pandas.DataFrame([{**entry.get("provenance", {}), **entry, "entry": entry} for entry in entries])
    figures = figures.reindex(columns=figures.columns.union(OPTIONAL, sort=False))
    rates = (re.findall(r"--lr[ =]([\d.e-]+)(?:\s|$)", str(arguments)) for arguments in figures.arguments)
    figures["learning_rate"] = [rate[-1] if rate else None for rate in rates]  # the last one counts
    figures["minutes"] = pandas.to_numeric(figures.seconds) / 60
    figures[list(COSTS)] = figures[list(COSTS)].apply(pandas.to_numeric)
    runs = figures[[*RUN, "config", "data"]].itertuples(index=False, name=None)
    figures["valid_curve"] = [
        own if isinstance(own, list) else (curves or {}).get(run, []) for own, run in zip(figures.valid_curve, runs)
    ]
    figures["off_main"] = figures.commit.map(off_main)
    rows = {row.name: row for row in table.rows}
    for (name, corpus, profile), of_row in figures.groupby(["name", "corpus", "profile"]):
        options = " ".join(row_options(SEARCHED, corpus, profile, rows.get(name, tables.Row(""))) or ())
        own = options if options in of_row.config.values else of_row.config.iloc[0]
        other = of_row.config[of_row.config != own]
        figures.loc[other.index, "name"] = name + " (" + other + ")"
    several = figures.groupby("corpus").data.transform("nunique") > 1
    figures["corpus"] = figures.corpus.where(~several, figures.corpus + " " + figures.data)
    return figures.sort_values("seed", kind="stable")


@functools.lru_cache
def history() -> Tuple[str, ...]:
    """The checkout's commit and its ancestors; none without git or in a shallow clone."""

    def git(*command):
        return subprocess.run(["git", "-C", tables.ROOT, *command], capture_output=True, text=True, check=True).stdout

    try:
        return () if "true" in git("rev-parse", "--is-shallow-repository") else tuple(git("rev-list", "HEAD").split())
    except (OSError, subprocess.CalledProcessError):
        return ()


def off_main(commit) -> bool:
    """Whether the commit is not in the checkout's history, or files had changed since it (it ends in ``+`` then)."""
    return bool(history()) and not any(known.startswith(str(commit)) for known in history())


def load_results(path: Path, table: tables.Table) -> Results:
    """A results file with the curves beside it; without figures if there is none.

    Raises:
        ValueError: a file isn't what the runner writes.
    """
    entries = read(path, FIGURE)
    if not entries:
        return Results(table, pandas.DataFrame(), pandas.DataFrame(), {})
    figures = data_frame(entries, table, read_curves(path.parent / "curves" / path.name))
    summaries, spreads = [], {}
    for column, measured in figures.groupby(["profile", "corpus", "metric", "split"], sort=False):
        test = METRICS.get(column[2], Metric("")).test
        baseline = baseline_of(table, set(measured.name)) if test else ""
        rows, spreads[column] = statistics.summarise(measured, baseline)
        if test == "bootstrap":
            rows["p"] = rows.index.map(bleu_tests(measured, baseline, path.parent)).astype(float)
        untrained = rows.index.isin([row.name for row in table.rows if row.unigram])
        rows.loc[untrained, ["low", "high", "difference_low", "difference_high", "p"]] = numpy.nan
        summaries.append(rows.assign(baseline=baseline, **dict(zip(("profile", "corpus", "metric", "split"), column))))
    rows = pandas.concat(summaries).reset_index()
    rows["adjusted"] = rows.p.where(rows.split == table.split).groupby(rows.profile).transform(statistics.holm)
    return Results(table, figures, rows, spreads)


def baseline_of(table: tables.Table, names: Iterable[str]) -> str:
    return next((name for name in (*BASELINES, table.rows[0].name) if name in names), "")


def bleu_tests(measured: pandas.DataFrame, baseline: str, folder: Path) -> Dict[str, float]:
    """p of the rows that have translations at hand, as the baseline's same seed has: ``hypotheses``, the path of
    fairseq-generate's output from the results' folder."""
    for _, of_seed in measured.dropna(subset="hypotheses").groupby("seed"):
        paths = {name: folder / path for name, path in zip(of_seed.name, of_seed.hypotheses)}
        paths = {name: path for name, path in paths.items() if path.is_file()}
        if baseline in paths:
            systems = {name: hypotheses(paths[name]) for name in (baseline, *(paths.keys() - {baseline}))}
            return statistics.paired_bootstrap(systems, statistics.references(paths[baseline]))
    return {}


def chapter(results: Results) -> Chapter:
    """A part for each profile and corpus, language models first. Of a metric that was measured on the table's split the
    figures on others are left out, and of the mixture weights what the paper has none of."""
    table, figures = results.table, results.figures
    of_metric = (figures.split == table.split).groupby([figures.profile, figures.corpus, figures.metric])
    figures = figures[~of_metric.transform("any") | (figures.split == table.split)]
    sections = figures.metric.map(place).groupby([figures.profile, figures.corpus]).min().rename("place").reset_index()
    sections = sections.sort_values(["profile", "place", "corpus"])
    parts = [part(results, figures[(figures.profile == section.profile) & (figures.corpus == section.corpus)])
             for section in sections.itertuples()]  # fmt: skip
    return Chapter(table.name, table.title, table.source, table.note, parts)


def place(metric: str) -> int:
    return [*METRICS, metric].index(metric)


def part(results: Results, figures: pandas.DataFrame) -> Part:
    table, (profile, corpus) = results.table, figures[["profile", "corpus"]].iloc[0]
    planned, run = [row.name for row in table.rows], unique(figures.name)
    names = [name for name in unique([*planned, *run]) if name in run]
    of_profile = results.rows[results.rows.profile == profile]
    rows = of_profile[of_profile.corpus == corpus].set_index("name").loc[names]  # in the table's order
    in_paper = {metric for row in table.rows for metric in row.paper}
    columns = sorted(unique(zip(figures.metric, figures.split)), key=lambda column: (place(column[0]), column))
    columns = {column: rows[(rows.metric == column[0]) & (rows.split == column[1])] for column in columns
               if column[0] in in_paper or not column[0].startswith("pi_")}  # fmt: skip
    shown, pictures = [main_table(names, columns, figures)], []
    for column, of_column in columns.items():
        pictures += points_picture(column, of_column, figures)
    curves = figures.drop_duplicates(["name", "seed"]).groupby("name").valid_curve.agg(list)
    curves = {name: [curve for curve in curves[name] if curve] for name in names if any(curves[name])}
    if curves:
        pictures += curve_pictures("Validation perplexity over updates", curves, baseline_of(table, curves))
    weights = figures[figures.metric.str.startswith("pi_") & ~figures.metric.str.startswith("pi_variance")]
    if len(weights):
        shown.append(weights_table(unique(weights.name), weights, rows, figures))
        pictures.append(weights_picture(weights))
    missing = ", ".join(name for name in planned if name not in names)
    notes = [f"Not run: {missing}."] if missing else []
    for column, of_column in columns.items():
        spread = results.spreads[(profile, corpus, *column)]
        notes += comparisons(column, of_column, spread, of_profile.adjusted.count())
    notes += marked_rows(figures)
    of_split = figures[(figures.split == table.split) & figures.command.str.startswith("bash ")]
    command = (of_split if len(of_split) else figures).command.iloc[0]
    return Part(title(corpus, profile), shown, notes, made(figures), command, pictures)


def marked_rows(figures: pandas.DataFrame) -> List[str]:
    off = figures[figures.off_main]
    rows = ", ".join(unique(f"{name} ({commit})" for name, commit in zip(off.name, off.commit)))
    return [f"{MARK} commit not on main, or files had changed since: {rows}."] if rows else []


def title(corpus: str, profile: str) -> str:
    return f"{corpus}, --profile {profile}"


def unique(items: Iterable) -> List:
    return list(dict.fromkeys(items))


def label(metric: str, split: str) -> str:
    return METRICS.get(metric, Metric(metric)).label + ("" if split == "test" else f" ({split})")


def cell(row: pandas.Series) -> str:
    """``62.1 [61.8, 62.4] (3)``: the mean over that many seeds, with its interval."""
    digits = METRICS.get(row.metric, Metric("")).decimals
    interval = f" [{row.low:.{digits}f}, {row.high:.{digits}f}]" if numpy.isfinite(row.low) else ""
    return f"{row['mean']:.{digits}f}{interval} ({row.seeds})"


def difference(row: pandas.Series) -> str:
    """``-3.0 [-3.5, -2.6]``: from the baseline."""
    digits = METRICS.get(row.metric, Metric("")).decimals
    interval = f" [{row.difference_low:+.{digits}f}, {row.difference_high:+.{digits}f}]"
    known = f"{row.difference:+.{digits}f}{interval if numpy.isfinite(row.difference_low) else ''}"
    return known if numpy.isfinite(row.difference) else ""


def p_value(p: float) -> str:
    return "" if numpy.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def main_table(names: List[str], columns: Dict[Tuple, pandas.DataFrame], figures: pandas.DataFrame) -> pandas.DataFrame:
    """A line a row: in each column its mean, the paper's, the difference from the baseline and p; costs; options."""
    of_name, blocks = figures.groupby("name"), []
    for (metric, split), rows in columns.items():
        measured = figures[(figures.metric == metric) & (figures.split == split)].groupby("name")
        entries = measured.entry.agg(list)
        block = {
            label(metric, split): [Number(cell(row), entries[name]) for name, row in rows.iterrows()],
            "paper, its own data": measured.paper.first().astype(object),
            f"− {rows.baseline.iloc[0]}'s": [difference(row) for _, row in rows.iterrows()],
            "p": rows.adjusted.map(p_value),
        }
        blocks.append(pandas.DataFrame(block, index=rows.index))
    for cost, (head, form) in COSTS.items():
        blocks.append(of_name[cost].mean().map(form.format, na_action="ignore").astype(object).rename(head))
    blocks.append(of_name.learned.agg(learned_values))
    blocks.append(of_name.config.agg(lambda configs: " / ".join(unique(configs))).rename("options"))
    shown = pandas.concat(blocks, axis=1).reindex(names).astype(object).fillna("")
    shown = shown.loc[:, [any(map(str, shown.iloc[:, number])) for number in range(shown.shape[1])]]
    marked = of_name.off_main.any()
    shown.insert(0, "", [f"{name} {MARK}" if marked[name] else name for name in names])
    return shown


def learned_values(learned: pandas.Series) -> str:
    """Of trained hyper-parameters: their means over the seeds."""
    values = pandas.DataFrame(list(learned.dropna())).mean()
    return ", ".join(f"{name} {value:.3g}" for name, value in values.items())


def weights_table(names: List[str], weights: pandas.DataFrame, rows: pandas.DataFrame, figures: pandas.DataFrame):
    """Mean mixture weights, and the two variances that the paper's Table 2 may list: of each token's weights, averaged,
    and of the mean weights."""
    of_tokens = rows[rows.metric == "pi_variance_pp2"]
    entries, lines = figures[figures.metric == "pi_variance_pp2"].groupby("name").entry.agg(list), []
    for name in names:
        of_row = weights[weights.name == name]
        each = ", ".join(f"{metric[3:]} {mean:.2f}" for metric, mean in of_row.groupby("metric").value.mean().items())
        variance = Number(cell(of_tokens.loc[name]), entries[name]) if name in entries else ""
        lines.append([name, each, variance, f"{1e4 * of_row.groupby('seed').value.var(ddof=0).mean():.2f}"])
    heads = ["", "mean mixture weights", "variance of a token's weights, pp²", "variance of the mean weights, pp²"]
    return pandas.DataFrame(lines, columns=heads)


def points_picture(column: Tuple[str, str], rows: pandas.DataFrame, figures: pandas.DataFrame) -> List[Picture]:
    """Our rows and the paper's over their baselines, where there is something to compare."""
    base = rows.baseline.iloc[0]
    if not base or len(rows) < 2 or not rows["mean"][base]:
        return []
    measured = figures[(figures.metric == column[0]) & (figures.split == column[1])].set_index("name")
    rows = rows.assign(paper=pandas.to_numeric(measured.groupby("name").paper.first()))
    draw = functools.partial(points, rows=rows, seeds=measured.value, base=base)
    return [Picture(f"{label(*column)} over {base}'s, with 95 % intervals", draw)]


def weights_picture(weights: pandas.DataFrame) -> Picture:
    """Components of one kernel taken together, where there are several kernels."""
    components = weights.metric.str.removeprefix("pi_")
    kernels = components.str.rstrip("0123456789")
    parts = components if kernels.nunique() == 1 else kernels
    total = weights.groupby(["name", "seed", parts.rename("part")], sort=False).value.sum()
    means = total.groupby(["name", "part"], sort=False).mean().unstack(fill_value=0)
    return Picture("Mean mixture weights", functools.partial(bars, values=means, xlabel="weight"))


def comparisons(column: Tuple[str, str], rows: pandas.DataFrame, spread: statistics.Pooled, count: int) -> List[str]:
    """What the tests say of a column; ``count`` is Holm's number of comparisons."""
    base = rows.baseline.iloc[0]
    if not base or len(rows) == 1:
        return []
    bootstrap, name = METRICS[column[0]].test == "bootstrap", label(*column)
    if rows.adjusted.isna().all():
        reason = "no translations are at hand for the paired bootstrap" if bootstrap else "no row has two seeds"
        return [f"{name}: differences from {base} were not tested, as {reason}."]
    how = f"t test with the pooled standard deviation {spread.deviation:.2g}, {spread.freedom} degrees of freedom"
    how = "sacreBLEU's paired bootstrap over sentences" if bootstrap else how
    sure = rows.adjusted < LEVEL
    groups = {
        f"below {base}": sure & (rows.difference < 0),
        f"above {base}": sure & (rows.difference > 0),
        f"no difference from {base} shown": rows.adjusted >= LEVEL,
        "not tested": rows.adjusted.isna() & (rows.index != base),
    }
    each = "; ".join(f"{group}: {', '.join(rows.index[chosen])}" for group, chosen in groups.items() if chosen.any())
    return [f"{name} ({how}; Holm over {count} comparisons, level {LEVEL}): {each}."]


def made(figures: pandas.DataFrame) -> str:
    """Commits, data, versions and machines of figures, in a sentence."""

    def each(values: Iterable) -> str:
        return ", ".join(unique(str(value) for value in values if not pandas.isna(value)))

    versions = each(f"{package} {version}" for found in figures.versions for package, version in found.items())
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
