"""The tables that have been run, beside the papers' numbers: Markdown, and an HTML page that needs no other file.

``scripts/report.sh`` runs it.
"""

import math
import re
import shlex
import textwrap
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

import jinja2
import numpy
import pandas
import yaml

from ..analysis.markdown import escaped, markdown_table
from ..errors import CommandParser, one_line_errors
from ..whole_files import read_records, write_text
from . import figures, statistics, tables
from .results import METRICS, SPLITS, Metric, differences, frame, logarithms, paper_figures, spread_of_seeds

LEVEL = 0.05
ORDER = ("table1", "table2", "table3", "table4", "linear_weight", "spherical_table", "kerbs_table")  # the papers'
MEASURES = {  # results that are no trainings: title, source, note, and what is shown
    "table4": (
        "Choosing among close words",
        "Gao et al. 2019, Table 4",
        "Clusters of close words by inner product of lin's projection matrix: how often, and how surely, a model finds "
        "the right one where it knows the cluster. The gain is the share of lin's loss that a model saves there, less "
        "the same in random clusters of these words. Signed: differences from lin, with 95 % intervals of a paired "
        "bootstrap over lines. The clusters, and sentences in the paper's form, are in the folder table4.",
        {"cluster_accuracy": "accuracy", "cluster_log_likelihood": "log-likelihood, nats",
         "cluster_gain_beyond_random": "gain beyond random clusters"},
    ),
    "linear_weight": (
        "Where the weight of lin goes",
        "Gao et al. 2019, section 4.4: always above 50 %",
        "Total weight of the linear components: its mean over the words of the text, how often it is above one half, "
        "and its mean by place in the line (from 0) and by rank of the word in training.",
        {name: name for name in ("mean", "above 0.5", "at word 0", "at word 1", "at word 5", "at word 20+",
                                 "rank 1-10", "rank 11-100", "rank 101-1000", "rank 1001-10000")},
    ),
}  # fmt: skip


class Grid(NamedTuple):
    """A table of texts, a row's name first; ``origins``: what a click on a row shows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    origins: Sequence[Dict[str, str]] = ()


class Part(NamedTuple):
    """The part of a chapter that belongs to one profile and corpus."""

    title: str
    grids: Sequence[Grid]
    notes: Sequence[str] = ()


class Chapter(NamedTuple):
    """A table of a paper, or what else the report shows; ``name`` is its file's, ``plot`` an SVG."""

    name: str
    title: str
    source: str
    note: str
    parts: Sequence[Part]
    plot: str = ""


class Results(NamedTuple):
    """A table's figures and its rows' differences, a line each."""

    table: tables.Table
    figures: pandas.DataFrame
    differences: pandas.DataFrame


def number(value: float, significant: int = 4, most: int = 3, sign: str = "") -> str:
    """Four significant digits, at most three decimals: ``61.84``, ``3.012``, ``0.419``, ``1,642``."""
    if not math.isfinite(value):
        return str(value)
    decimals = significant - 1 - math.floor(math.log10(abs(value))) if value else most
    return f"{value:{sign},.{min(most, max(0, decimals))}f}"


def interval(metric: Metric, difference: float, low: float = math.nan, high: float = math.nan) -> str:
    """``-4.83 % [-5.60, -4.22]``, where the metric is relative; nothing if it isn't known."""
    if not math.isfinite(difference):
        return ""
    values = [100 * math.expm1(value) if metric.relative else value for value in (difference, low, high)]
    middle, *ends = (number(value, 3, metric.decimals, "+") for value in values)
    return middle + " %" * metric.relative + (f" [{', '.join(ends)}]" if math.isfinite(low) else "")


def p_value(p: float) -> str:
    return "" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def unique(items: Iterable) -> List:
    return list(dict.fromkeys(items))


def at(rows: pandas.DataFrame, **values: str) -> pandas.DataFrame:
    """The lines that have these values in their columns."""
    return rows[(rows[list(values)] == pandas.Series(values)).all(axis=1)]


# tables of trainings


def load_results(folder: Path) -> Dict[str, Results]:
    """The comparison of each table that has been run, with the spread of seeds over the trainings of all tables."""
    known = {name: (tables.load_table(name), frame(read_records(folder / f"{name}.json"))) for name in tables.names()}
    known = {name: pair for name, pair in known.items() if len(pair[1])}
    spreads = spread_of_seeds(pandas.concat([each for _, each in known.values()])) if known else {}
    return {name: Results(*pair, differences(*pair, spreads)) for name, pair in known.items()}


def chapter(results: Results) -> Chapter:
    """A part for each profile and corpus, language models first."""
    table, every = results.table, results.figures
    shown = every[every.split != "train"]
    place = shown.metric.map(lambda metric: [*METRICS, metric].index(metric))
    order = place.groupby([shown.profile, shown.corpus]).min().reset_index().sort_values(["profile", "metric"])
    parts = [part(results, profile, corpus) for profile, corpus in zip(order.profile, order.corpus)]
    return Chapter(table.name, table.title, table.source, table.note, parts)


def part(results: Results, profile: str, corpus: str) -> Part:
    table, planned = results.table, [row.name for row in results.table.rows]
    here, there = (at(each, profile=profile, corpus=corpus) for each in results[1:])
    names = [name for name in unique([*planned, *here.name]) if name in set(here.name)]
    grids = [main_grid(table, names, here, there), *anova_grids(table, here)]
    missing = ", ".join(name for name in planned if name not in names)
    notes = [f"Not run: {missing}."] if missing else []
    notes += tests(table, there, results.differences[results.differences.profile == profile])
    return Part(f"{corpus}, --profile {profile}", grids, [*notes, made(here)])


def main_grid(table: tables.Table, names: List[str], here: pandas.DataFrame, there: pandas.DataFrame) -> Grid:
    """A line a row: its means over seeds, test and development figures side by side; the paper's; differences from the
    bases with intervals and Holm's p; mixture weights, parameters, trained values and settings."""
    columns: List[Tuple[str, Dict]] = []
    for metric, about in METRICS.items():
        measured = logarithms(here[here.metric == metric])
        splits = [split for split in unique([table.split, *SPLITS, *measured.split]) if split in set(measured.split)]
        suffixes = {split: "" if split == "test" else f" ({split})" for split in splits}
        for split in splits:
            values = measured[measured.split == split].groupby("name").value.agg(["mean", "size"])
            means = numpy.exp(values["mean"]) if about.relative else values["mean"]
            texts = {name: f"{number(mean)} ({size})" for name, mean, size in zip(means.index, means, values["size"])}
            columns.append((about.label + suffixes[split], texts))
        if set(splits) - {"train"}:
            columns.append(("the paper's, its own data", paper_figures(table, metric).map("{:g}".format).to_dict()))
        for (base, split), rows in there[there.metric == metric].groupby(["base", "split"], sort=False):
            rows = rows.set_index("name")
            ends = zip(rows.index, rows.difference, rows.low, rows.high)
            shown = {name: interval(about, *end) for name, *end in ends}
            columns.append((f"− {base}'s{suffixes[split]}", shown))
            columns.append(("p", rows.adjusted.map(p_value).to_dict()))
            columns.append((f"p, beyond ± {table.margin:g} %", rows.equivalent.map(p_value).to_dict()))
    columns += weights(here)
    runs = here.drop_duplicates(["name", "seed"])
    made = {name: [record["made"] for record in records] for name, records in runs.groupby("name").record}
    counts = {name: each[0].get("parameters") for name, each in made.items()}
    columns.append(("parameters", {name: f"{count:,}" for name, count in counts.items() if count}))
    learned = {name: pandas.DataFrame([one.get("learned", {}) for one in each]).mean() for name, each in made.items()}
    columns.append(("learned", {name: ", ".join(f"{value} {mean:.3g}" for value, mean in means.items())
                                for name, means in learned.items()}))  # fmt: skip
    columns.append(("options", dict(zip(runs.name, runs.options))))
    columns = [(head, texts) for head, texts in columns if any(texts.values())]
    rows = [[name, *(texts.get(name, "") for _, texts in columns)] for name in names]
    return Grid(["", *(head for head, _ in columns)], rows, [origin(runs[runs.name == name].record) for name in names])


def origin(records: Iterable[Dict]) -> Dict[str, str]:
    """How a row was made, seed by seed."""
    lines: Dict[str, str] = {}
    for record in records:
        run, made = record["run"], record["made"]
        machine, versions = made.get("machine", {}), made.get("versions", {})
        lines.setdefault("command", shlex.join(made["argv"]))
        lines[f"seed {run['seed']}"] = (
            f"commit {made.get('commit')}, {made.get('date')}; {', '.join(map(' '.join, versions.items()))}; "
            f"{machine.get('processor')}, threads {machine.get('threads')}, GPU {machine.get('gpu') or 'none'}"
        )
    return lines


def made(here: pandas.DataFrame) -> str:
    """Commits, days and data of figures, in a sentence."""
    records = [record["made"] for record in here.record]
    days = sorted(made["date"] for made in records if made.get("date"))
    commits = ", ".join(unique(str(made.get("commit")) for made in records))
    data = ", ".join(unique(f"{corpus} {data}" for corpus, data in zip(here.corpus, here.data)))
    return f"Made at commit {commits}, {' to '.join(unique([*days[:1], *days[-1:]]))}; data {data}."


def weights(here: pandas.DataFrame) -> List[Tuple[str, Dict]]:
    """Columns of the mean mixture weights and of their variance, which the paper's Table 2 may list in the place of
    that of each token's weights."""
    own = here[here.metric.str.startswith("pi_") & ~here.metric.str.startswith("pi_variance")]
    means = own.groupby(["name", "metric"], sort=False).value.mean().reset_index("metric")
    each = means.metric.str[len("pi_") :] + means.value.map(" {:.2f}".format)
    texts = each.groupby("name").agg(", ".join).to_dict()
    variances = 1e4 * own.groupby(["name", "seed"]).value.var(ddof=0).groupby("name").mean()
    return [("mean mixture weights", texts), ("their variance, pp²", variances.map(number).to_dict())]


def anova_grids(table: tables.Table, here: pandas.DataFrame) -> List[Grid]:
    """Two-way analyses of variance of the logarithm of perplexity, over rows whose names give a table's two factors
    (``lin,start=1,rate=4``): one for each rest of the name, in each split."""
    if not table.factors:
        return []
    first, second = table.factors
    pattern = rf",{first}=([^,]+),{second}=([^,]+)"
    measured = logarithms(here[(here.metric == "ppl") & (here.split != "train")])
    levels = measured.name.str.extract(pattern).set_axis(table.factors, axis=1)
    rest = measured.name.str.replace(pattern, "", regex=True)
    measured = pandas.concat([measured, levels], axis=1).assign(rest=rest).dropna(subset=table.factors)
    rows = []
    for (name, split), cells in measured.groupby(["rest", "split"]):
        for source, line in statistics.anova(cells, first, second).iterrows():
            levels = cells.groupby(source).value.mean() if source in (first, second) else []
            effect = ""
            if len(levels):
                change = interval(METRICS["ppl"], levels.iloc[-1] - levels.iloc[0])
                effect = f"{change} from {levels.index[0]} to {levels.index[-1]}"
            tested = ["", ""] if math.isnan(line.F) else [number(line.F), p_value(line.p)]
            squares = number(line.squares, 3, 6)
            rows.append([f"{name} ({split}): {source}", f"{line.freedom:.0f}", squares, effect, *tested])
    heads = ["analysis of variance of log-perplexity", "degrees of freedom", "sum of squares", "effect", "F", "p"]
    return [Grid(heads, rows)] if rows else []


def tests(table: tables.Table, there: pandas.DataFrame, family: pandas.DataFrame) -> List[str]:
    """How differences in each metric were tested, a sentence or two each."""
    sentences = []
    for (metric, base), rows in there[there.adjusted.notna()].groupby(["metric", "base"], sort=False):
        first, count, label = rows.iloc[0], family[family.base == base].adjusted.count(), METRICS[metric].label
        unit = f"{100 * first.deviation:.2f} %" if METRICS[metric].relative else number(first.deviation, 2, 4)
        seeds = f"seeds (pooled standard deviation {unit}, {first.seeds:.0f} degrees of freedom)"
        covered = [seeds] * bool(first.seeds) + ["the test text (bootstrap)"] * bool(rows.text.all())
        sentences.append(
            f"{label}: 95 % intervals of differences from {base} cover {' and '.join(covered)}; p by Holm over {count}."
        )
        if rows.equivalent.notna().any():
            sentences.append(
                f"A small p, beyond ± {table.margin:g} %, says that a row is as good as {base} (two one-sided t tests, "
                f"Holm over {rows.equivalent.count()})."
            )
    return sentences


def measures(folder: Path, name: str) -> List[Chapter]:
    """The chapter of a measure of trained models, a row a model; none if it has no results."""
    title, source, note, heads = MEASURES[name]
    records: Dict[Tuple, List] = {}
    for record in read_records(folder / f"{name}.json"):
        records.setdefault((record["run"]["corpus"], record["run"]["profile"]), []).append(record)
    parts = []
    for (corpus, profile), those in records.items():
        rows = []
        for record in those:
            run, values = record["run"], {metric["metric"]: metric for metric in record["metrics"]}
            against = f", against lin of {run['baseline']}" if "baseline" in run else ""
            cells = [f"{run['row']}, seed {run['seed']}{against}"]
            for metric in heads:
                value, difference = values.get(metric, {}), values.get(metric, {}).get("difference")
                ends = [difference[name] for name in ("mean", "low", "high")] if difference else [math.nan] * 3
                own = number(value["value"]) if value and value["value"] != ends[0] else ""
                cells.append(", ".join(filter(None, (own, interval(Metric("", decimals=4), *ends)))))
            rows.append(cells)
        grid = Grid(["", *heads.values()], rows, [origin([record]) for record in those])
        parts.append(Part(f"{corpus}, --profile {profile}", [grid], [made(frame(those))]))
    return [Chapter(name, title, source, note, parts)] if parts else []


# verdicts


def verdicts(folder: Path, results: Dict[str, Results]) -> List[Chapter]:
    """The claims of ``verdicts.yaml``, written by hand, and our figures for each; none if the folder has no such file.

    Raises:
        ValueError: the file isn't a list of claims, or names rows that have no figures.
    """
    path = folder / "verdicts.yaml"
    if not path.is_file():
        return []
    try:
        rows = [judged(claim, results) for claim in yaml.safe_load(path.read_text(encoding="utf-8"))]
    except (yaml.YAMLError, LookupError, ValueError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error
    heads = ["claim", "against plain lin", "against tuned lin", "reason", "rests on"]
    short = Grid(heads, [row[:5] for row in rows])
    long = Grid(["claim", "here", "the paper"], [[row[0], *row[5:]] for row in rows])
    note = (
        "Signed figures are differences from lin (spherical family: from log-softmax; KerBS: from softmax; Table 2: "
        "from rho=0.001), in square brackets their 95 % intervals."
    )
    compared = [each.differences.assign(table=name) for name, each in results.items()]
    plot = figures.gains(compared) if compared else ""
    claims = Chapter("verdicts", "What holds of the papers' claims", "", "", [Part("", [short])], plot)
    return [claims, Chapter("evidence", "The evidence for each verdict", "", note, [Part("", [long])])]


def judged(claim: Dict, results: Dict[str, Results]) -> List[str]:
    """A claim's line: the claim, verdicts, reason, number of rows and seeds with corpora and sizes, evidence, paper."""
    places: Dict[str, List[str]] = {}
    sizes, seeds = [], []
    for place, text, size, count in (evidence(row, results) for row in claim.get("rows", [])):
        places.setdefault(place, []).append(text)
        sizes, seeds = unique([*sizes, size]), [*seeds, count]
    here = " ".join([claim["evidence"], *(f"{place}: {'; '.join(those)}." for place, those in places.items())])
    span = "-".join(unique((str(min(seeds)), str(max(seeds))))) if seeds else ""
    rests = f"{len(seeds)} rows, {span} seed{'s' if max(seeds) > 1 else ''} each: {', '.join(sizes)}" if seeds else ""
    paper = f"{claim['paper']} ({claim['source']})"
    return [claim["claim"], claim["verdict"], claim.get("tuned", ""), claim["reason"], rests, here, paper]


def evidence(row: str, results: Dict[str, Results]) -> Tuple[str, str, str, int]:
    """The cells of a row (TABLE/PROFILE/CORPUS/METRIC/ROW): which table its figures are in, and for what; the figures;
    corpus and size; and the number of seeds."""
    name, profile, corpus, metric, own = row.split("/", 4)
    table, every, compared = results[name]
    every, compared = (at(each, profile=profile, corpus=corpus, metric=metric, name=own) for each in (every, compared))
    if every.empty:
        raise ValueError(f"row {row!r} has no figures")
    split = table.split if table.split in set(every.split) else every.split.iloc[0]
    about, values, shown = METRICS.get(metric, Metric(metric)), logarithms(at(every, split=split)).value, []
    for line in at(compared, split=split).itertuples():
        whose = f" from {line.base}" if line.base == table.reference else ""
        unsure = ", not tested" if math.isnan(line.adjusted) else ", not significant"
        sure = "" if line.adjusted < LEVEL else unsure
        shown.append(f"{interval(about, line.difference, line.low, line.high)}{whose}{sure}")
    mean = math.exp(values.mean()) if about.relative else values.mean()
    place = f"{name} ({corpus}, {profile}, {about.label}{'' if split == 'test' else f' ({split})'})"
    size = f"{corpus} {profile if metric == 'bleu' else figures.SIZES.get(profile, profile)}"
    return place, f"{own} {', '.join(shown) or f'{number(mean)} ({len(values)})'}", size, len(values)


# output


def load_chapters(folder: Path, names: Sequence[str] = ()) -> List[Chapter]:
    """The tables that the folder has results of, in the report's order; the named ones must have some.

    Raises:
        ValueError: there are no results, or none of a name, or a file isn't what the scripts write.
    """
    results = load_results(folder)
    chapters = [chapter(each) for each in results.values()]
    chapters += [each for name in MEASURES for each in measures(folder, name)]
    chapters.sort(key=lambda chapter: ORDER.index(chapter.name) if chapter.name in ORDER else len(ORDER))
    claims = verdicts(folder, results)
    chapters = claims[:1] + chapters + claims[1:]
    known = [chapter.name for chapter in chapters]
    for name in names:
        if name not in known:
            raise ValueError(f"{folder} has no results of {name!r}, only of {' '.join(known) or 'nothing'}")
    if not chapters:
        raise ValueError(f"{folder} has no results of a table; bash scripts/table1.sh makes some")
    return [chapter for chapter in chapters if chapter.name in names or not names]


def markdown(chapters: Sequence[Chapter]) -> str:
    """The report as Markdown."""
    sections = []
    for each in chapters:
        source = f" ({escaped(each.source)})" if each.source else ""
        sections.append(f"\n## {escaped(each.title)}{source}\n\n{body(each)}")
    return "# Results\n" + "".join(sections)


def body(chapter: Chapter) -> str:
    """A chapter in Markdown, without its heading."""
    note = f"{filled(chapter.note)}\n\n" if chapter.note else ""
    return note + "\n".join(map(part_in_markdown, chapter.parts))


def part_in_markdown(part: Part) -> str:
    blocks = [f"**{escaped(part.title)}**\n"] if part.title else []
    for grid in part.grids:
        rows = [[code(cell) if head == "options" else escaped(cell) for head, cell in zip(grid.heads, row)]
                for row in grid.rows]  # fmt: skip
        blocks.append(markdown_table(list(map(escaped, grid.heads)), rows))
    if part.notes:
        blocks.append("".join(f"{filled(f'- {sentence}', indent='  ')}\n" for sentence in part.notes))
    return "\n".join(blocks)


def filled(text: str, indent: str = "") -> str:
    """Text in Markdown, in lines of 120 characters; ``indent`` stands before all but the first."""
    return textwrap.fill(escaped(text), 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def code(options: str) -> str:
    return f"`{options}`".replace("|", r"\|") if options else ""


def put_into(text: str, chapters: Sequence[Chapter]) -> Tuple[str, List[str]]:
    """The text with each chapter between its lines ``<!-- NAME -->`` and ``<!-- /NAME -->``; and the names of those
    that it has no such lines for."""
    unmarked = []
    for each in chapters:
        content = body(each)
        begin, end = f"<!-- {each.name} -->", f"<!-- /{each.name} -->"
        marked = re.compile(rf"^({begin}\s*?\n).*?^({end}\s*?)$", flags=re.M | re.S)
        text, count = marked.subn(lambda match, content=content: match[1] + content + match[2], text)
        unmarked += [] if count else [each.name]
    return text, unmarked


def html(chapters: Sequence[Chapter]) -> str:
    """The report as a page that needs no other file."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("report.html").render(chapters=chapters)


def main() -> None:
    parser = CommandParser(prog="report.sh", description="Tables as Markdown and as an HTML page.")
    default = tables.RESULTS
    parser.add_argument("--results", type=Path, default=default, help="folder of TABLE.json (default: %(default)s)")
    parser.add_argument("--publish", action="store_true", help="the results of this repository, and their report")
    parser.add_argument("--tables", nargs="+", default=[], metavar="TABLE", help="default: all that have results")
    parser.add_argument("--into", type=Path, metavar="FILE", help="a Markdown file; puts TABLE between its lines "
                        "<!-- TABLE --> and <!-- /TABLE -->")  # fmt: skip
    parser.add_argument("--figure", type=Path, metavar="FILE", help="the first page's plot, as SVG")
    args = parser.parse_args()
    unmarked: List[str] = []
    with one_line_errors():
        if args.publish:
            args.results = tables.ROOT / "results"
        chapters = load_chapters(args.results, args.tables)
        written = {args.results / "report.md": markdown(chapters), args.results / "report.html": html(chapters)}
        if args.into is not None:
            written[args.into], unmarked = put_into(args.into.read_text(encoding="utf-8"), chapters)
        if args.figure is not None:
            written[args.figure] = next(chapter.plot for chapter in chapters if chapter.plot)
        for path, text in written.items():
            write_text(path, text)
            print(path)
    if unmarked:
        print(f"{args.into} has no lines <!-- NAME --> and <!-- /NAME --> for {', '.join(unmarked)}")


if __name__ == "__main__":
    main()
