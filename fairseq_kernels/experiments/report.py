"""The tables that have been run, beside the papers' numbers: Markdown, and an HTML page that needs no other file.

``scripts/report.sh`` runs it.
"""

import io
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

from ..analysis.curves import file_pyplot
from ..analysis.markdown import escaped, markdown_table
from ..errors import CommandParser, one_line_errors
from ..whole_files import read_records, write_text
from . import statistics, tables
from .results import METRICS, SPLITS, Metric, differences, frame, logarithms, paper_figures, spread_of_seeds

LEVEL = 0.05
SIZES = {"cpu": "2 × 128", "medium": "2 × 256", "paper": "2 × 512"}  # of language models, by profile
ALL_TALK = 24.6  # millions of words of the training text of the corpus "talk", as many as the paper has
STYLE = {"svg.hashsalt": "", "axes.spines.top": False, "axes.spines.right": False, "font.size": 9}
ORDER = ("table1", "table2", "table3", "table4", "linear_weight", "spherical_table", "kerbs_table")  # the papers'


class Part(NamedTuple):
    """A table of texts, a row's name first; ``origins``: what a click on a row shows; ``notes``: sentences below it."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    origins: Sequence[Dict[str, str]] = ()
    notes: Sequence[str] = ()


class Chapter(NamedTuple):
    """A table of a paper, or what else the report shows; ``name`` is its file's, ``plot`` an SVG."""

    name: str
    title: str
    note: str
    parts: Sequence[Part]
    plot: str = ""


Results = Dict[str, Tuple[tables.Table, pandas.DataFrame, pandas.DataFrame]]  # figures and differences by table


def number(value: float, significant: int = 4, most: int = 4, sign: str = "") -> str:
    """Four significant digits, at most four decimals: ``61.84``, ``3.012``, ``0.0247``, ``1,642``."""
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


# tables


def load_results(folder: Path) -> Results:
    """The tables that have been run, with the spread of seeds over the trainings of all of them."""
    records = {name: read_records(folder / f"{name}.json") for name in tables.names()}
    known = {name: (tables.load_table(name), frame(every)) for name, every in records.items() if every}
    if not known:
        raise ValueError(f"{folder} has no results of a table; bash scripts/table1.sh makes some")
    spreads = spread_of_seeds(pandas.concat([figures for _, figures in known.values()]))
    return {name: (*pair, differences(*pair, spreads)) for name, pair in known.items()}


def chapter(table: tables.Table, figures: pandas.DataFrame, compared: pandas.DataFrame) -> Chapter:
    """Parts for each profile and corpus, language models first."""
    translated = figures.groupby(["profile", "corpus"]).metric.agg(lambda metrics: "bleu" in set(metrics))
    order = translated.reset_index().sort_values(["profile", "metric"])
    parts: List[Part] = []
    for profile, corpus in zip(order.profile, order.corpus):
        here, there = (at(each, profile=profile, corpus=corpus) for each in (figures, compared))
        title = f"{corpus}, --profile {profile}"
        parts += [measures(title, table, here)] if table.heads else trainings(title, table, here, there)
    source = f" ({table.source})" if table.source else ""
    return Chapter(table.name, table.title + source, table.note, parts)


def trainings(title: str, table: tables.Table, here: pandas.DataFrame, there: pandas.DataFrame) -> List[Part]:
    """A line a row, in the table's order; then the analysis of variance."""
    planned = [row.name for row in table.rows]
    names = [name for name in unique([*planned, *here.name]) if name in set(here.name)]
    missing = ", ".join(name for name in planned if name not in names)
    notes = [f"Not run: {missing}."] if missing else []
    main = part(title, names, columns_of(table, here, there), here, [*notes, *tests(table, there)])
    return [main, *variances(table, here)]


def part(
    title: str, names: Sequence[str], columns: List[Tuple[str, Dict]], here: pandas.DataFrame, notes: Sequence[str] = ()
) -> Part:
    """The rows of these names. A column is its head and its texts by name; empty ones are left out."""
    columns = [(head, texts) for head, texts in columns if any(texts.values())]
    rows = [[name, *(texts.get(name, "") for _, texts in columns)] for name in names]
    origins = [origin(here[here.name == name].record) for name in names]
    return Part(title, ["", *(head for head, _ in columns)], rows, origins, [*notes, made(here)])


def columns_of(table: tables.Table, here: pandas.DataFrame, there: pandas.DataFrame) -> List[Tuple[str, Dict]]:
    """Means over seeds, test and development figures side by side; the paper's; differences from the bases with
    intervals and Holm's p; mixture weights, parameters, trained values and settings."""
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
    return columns


def origin(records: Iterable[Dict]) -> Dict[str, str]:
    """How a row was made, seed by seed."""
    lines: Dict[str, str] = {}
    for record in records:
        made = record["made"]
        lines.setdefault("command", shlex.join(made["argv"]))
        known = {"commit": made["commit"], "date": made["date"], **made["versions"], **made["machine"]}
        lines[f"seed {record['run']['seed']}"] = ", ".join(f"{name} {value}" for name, value in known.items())
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


def variances(table: tables.Table, here: pandas.DataFrame) -> List[Part]:
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
            effect = ""
            if source in (first, second):
                means = cells.groupby(source).value.mean()
                change = interval(METRICS["ppl"], means.iloc[-1] - means.iloc[0])
                effect = f"{change} from {means.index[0]} to {means.index[-1]}"
            tested = ["", ""] if math.isnan(line.F) else [number(line.F), p_value(line.p)]
            squares = number(line.squares, 3, 6)
            rows.append([f"{name} ({split}): {source}", f"{line.freedom:.0f}", squares, effect, *tested])
    heads = ["analysis of variance of log-perplexity", "degrees of freedom", "sum of squares", "effect", "F", "p"]
    return [Part("", heads, rows)] if rows else []


def tests(table: tables.Table, there: pandas.DataFrame) -> List[str]:
    """How differences in each metric were tested, a sentence or two each."""
    sentences = []
    for (metric, base), rows in there[there.adjusted.notna()].groupby(["metric", "base"], sort=False):
        first, about = rows.iloc[0], METRICS[metric]
        unit = f"{100 * first.deviation:.2f} %" if about.relative else number(first.deviation, 2, 4)
        seeds = f"seeds (pooled standard deviation {unit}, {first.seeds:.0f} degrees of freedom)"
        covered = " and ".join([seeds] * bool(first.seeds) + ["the test text (bootstrap)"] * bool(rows.text.all()))
        shown = f"{about.label}: 95 % intervals of differences from {base} cover {covered}"
        sentences.append(f"{shown}; p by Holm over {first.family}.")
        if rows.equivalent.notna().any():
            shown = f"A small p, beyond ± {table.margin:g} %, says that a row is as good as {base}"
            sentences.append(f"{shown} (two one-sided t tests, Holm over {rows.equivalent.count()}).")
    return sentences


def measures(title: str, table: tables.Table, here: pandas.DataFrame) -> Part:
    """A line a trained model: what was measured of it, and differences from another where they are known."""

    def name(run: Dict) -> str:
        against = f", against lin of {run['baseline']}" if "baseline" in run else ""
        return f"{run['row']}, seed {run['seed']}{against}"

    def text(value: float, difference: Dict) -> str:
        if not difference:
            return number(value)
        compared = interval(Metric("", decimals=4), difference["mean"], difference["low"], difference["high"])
        return compared if value == difference["mean"] else f"{number(value)}, {compared}"

    here = here.assign(name=[name(record["run"]) for record in here.record])
    columns = []
    for metric, head in table.heads.items():
        lines = here[here.metric == metric]
        columns.append((head, dict(zip(lines.name, map(text, lines.value, lines.difference)))))
    return part(title, unique(here.name), columns, here)


# verdicts


def verdicts(folder: Path, results: Results) -> List[Chapter]:
    """What is written by hand in ``verdicts.yaml``, with our figures and plot; none if the folder has no such file."""
    path = folder / "verdicts.yaml"
    if not path.is_file():
        return []
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    rows = [judged(claim, results) for claim in written["claims"]]
    heads = ["claim", "against plain lin", "against tuned lin", "reason", "rests on"]
    short = Part("", heads, [row[:5] for row in rows])
    long = Part("", ["claim", "here", "the paper"], [[row[0], *row[5:]] for row in rows])
    plot = gains(pandas.concat(compared for _, _, compared in results.values()))
    return [
        Chapter("answer", "Does another output layer lower a language model's perplexity?", written["answer"], []),
        Chapter("gain", "The gain against the amount of text", written["gain"], [], plot),
        Chapter("verdicts", "What holds of the papers' claims", "", [short]),
        Chapter("evidence", "The evidence for each verdict", written["evidence"], [long]),
    ]


def judged(claim: Dict, results: Results) -> List[str]:
    """A claim's line: the claim, verdicts, reason, number of rows and seeds with corpora and sizes, evidence, paper."""
    rows = [evidence(row, results) for row in claim.get("rows", [])]
    known = pandas.DataFrame(rows, columns=["place", "figures", "size", "seeds"])
    places = known.groupby("place", sort=False).figures.agg("; ".join)
    here = " ".join([claim["evidence"], *(f"{place}: {texts}." for place, texts in places.items())])
    rests, paper = "", f"{claim['paper']} ({claim['source']})"
    if rows:
        span = "-".join(unique([str(known.seeds.min()), str(known.seeds.max())]))
        plural = "s" if known.seeds.max() > 1 else ""
        rests = f"{len(rows)} rows, {span} seed{plural} each: {', '.join(unique(known['size']))}"
    return [claim["claim"], claim["verdict"], claim.get("tuned", ""), claim["reason"], rests, here, paper]


def evidence(row: str, results: Results) -> Tuple[str, str, str, int]:
    """The cells of a row (TABLE/PROFILE/CORPUS/METRIC/ROW): which table its figures are in, and for what; the figures;
    corpus and size; and the number of seeds."""
    name, profile, corpus, metric, own = row.split("/", 4)
    table, every, compared = results[name]
    every, compared = (at(each, profile=profile, corpus=corpus, metric=metric, name=own) for each in (every, compared))
    if every.empty:
        raise ValueError(f"verdicts.yaml: row {row!r} has no figures")
    split = table.split if table.split in set(every.split) else every.split.iloc[0]
    about, values, shown = METRICS.get(metric, Metric(metric)), logarithms(at(every, split=split)).value, []
    for line in at(compared, split=split).itertuples():
        whose = f" from {line.base}" if line.base == table.reference else ""
        sure = "" if line.adjusted < LEVEL else ", not significant" if line.adjusted >= LEVEL else ", not tested"
        shown.append(f"{interval(about, line.difference, line.low, line.high)}{whose}{sure}")
    mean = math.exp(values.mean()) if about.relative else values.mean()
    place = f"{name} ({corpus}, {profile}, {about.label}{'' if split == 'test' else f' ({split})'})"
    size = f"{corpus} {profile if metric == 'bleu' else SIZES.get(profile, profile)}"
    return place, f"{own} {', '.join(shown) or f'{number(mean)} ({len(values)})'}", size, len(values)


# the plot


def gains(compared: pandas.DataFrame) -> str:
    """Gains over lin of LSTMs of 2 × 256 on corpora named ``talk``, or ``talk-5M``, by words of training text, with
    intervals, and those of the paper's mixtures as diamonds; "" where fewer than two amounts were tried. ``compared``
    has the differences of all tables."""
    rows = compared[(compared.metric == "ppl") & (compared.split == "test") & (compared.base == "lin")]
    words = rows.corpus.str.extract(r"^talk-?(?:([\d.]+)M)?$")[0].astype(float)
    rows = rows.assign(words=words.where(rows.corpus != "talk", ALL_TALK))
    rows = rows[(rows.profile == "medium") & rows.words.notna()].sort_values("words", kind="stable")
    if rows.words.nunique() < 2:
        return ""
    paper = paper_figures(tables.load_table("table3"), "ppl")
    paper = 100 * (paper.drop("lin") / paper["lin"] - 1)
    pyplot, out = file_pyplot(), io.StringIO()
    with pyplot.rc_context(STYLE):
        figure, axis = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
        axis.axhline(0, color="grey", linewidth=0.6)
        for count, (name, those) in enumerate(rows.groupby("name", sort=False)):
            x = those.words * 1.04 ** (count + 1)  # so that none hides another, nor the paper's
            low, middle, high = (100 * numpy.expm1(those[key].astype(float)) for key in ("low", "difference", "high"))
            ends = numpy.nan_to_num([middle - low, high - middle])
            axis.errorbar(x, middle, yerr=ends, fmt="o-", color=f"C{count}", markersize=4, label=name)
        label = "Gao et al.'s mixtures,\n25 M other words"
        axis.plot([ALL_TALK] * len(paper), paper, "D", color="grey", fillstyle="none", markersize=4, label=label)
        places = sorted({*rows.words, ALL_TALK})
        axis.set_xscale("log")
        axis.set_xticks(places, map("{:g} M".format, places))
        axis.minorticks_off()
        axis.set(xlabel="words of training text", ylabel="difference from plain lin's perplexity, %")
        figure.legend(loc="outside right center")
        figure.savefig(out, format="svg", metadata={"Date": None})  # the same each time
        pyplot.close(figure)
    return "<svg" + out.getvalue().partition("<svg")[2]


# output


def load_chapters(folder: Path) -> List[Chapter]:
    """The report on a folder of results."""
    results = load_results(folder)
    chapters = [chapter(*each) for each in results.values()]
    chapters.sort(key=lambda chapter: ORDER.index(chapter.name) if chapter.name in ORDER else len(ORDER))
    claims = verdicts(folder, results)
    return claims[:-1] + chapters + claims[-1:]


def markdown(chapters: Sequence[Chapter]) -> str:
    """The report as Markdown."""
    return "# Results\n" + "".join(f"\n## {escaped(each.title)}\n\n{body(each)}" for each in chapters)


def body(chapter: Chapter) -> str:
    """A chapter in Markdown, without its heading."""
    note = [f"{filled(chapter.note)}\n"] if chapter.note else []
    return "\n".join([*note, *map(part_in_markdown, chapter.parts)])


def part_in_markdown(part: Part) -> str:
    title = f"**{escaped(part.title)}**\n\n" if part.title else ""
    rows = [[code(cell) if head == "options" else escaped(cell) for head, cell in zip(part.heads, row)]
            for row in part.rows]  # fmt: skip
    notes = "".join(f"{filled(f'- {sentence}', indent='  ')}\n" for sentence in part.notes)
    return title + markdown_table(list(map(escaped, part.heads)), rows) + (f"\n{notes}" if notes else "")


def filled(text: str, indent: str = "") -> str:
    """Text in Markdown, in lines of 120 characters; ``indent`` stands before all but the first."""
    return textwrap.fill(escaped(text), 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def code(options: str) -> str:
    """Code in Markdown, between more backticks than it has in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", options)), default=0))
    space = " " * ("`" in options[:1] + options[-1:])
    return f"{fence}{space}{options}{space}{fence}".replace("|", r"\|") if options else ""


def put_into(text: str, chapters: Sequence[Chapter]) -> str:
    """The text with each chapter between its lines ``<!-- NAME -->`` and ``<!-- /NAME -->``, where it has these."""
    for each in chapters:
        content = body(each)
        marked = re.compile(rf"^(<!-- {each.name} -->\s*?\n).*?^(<!-- /{each.name} -->\s*?)$", flags=re.M | re.S)
        text = marked.sub(lambda match, content=content: match[1] + content + match[2], text)
    return text


def html(chapters: Sequence[Chapter]) -> str:
    """The report as a page that needs no other file."""
    text = Path(__file__).with_name("report.html").read_text(encoding="utf-8")
    return jinja2.Template(text, autoescape=True, trim_blocks=True, lstrip_blocks=True).render(chapters=chapters)


def main() -> None:
    parser = CommandParser(prog="report.sh", add_help=False)
    parser.add_argument("--results", type=Path, default=tables.RESULTS)
    parser.add_argument("--publish", action="store_const", dest="results", const=tables.ROOT / "results")
    parser.add_argument("--into", type=Path)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    with one_line_errors():
        chapters = load_chapters(args.results)
    written = {args.results / "report.md": markdown(chapters), args.results / "report.html": html(chapters)}
    if args.into is not None:
        written[args.into] = put_into(args.into.read_text(encoding="utf-8"), chapters)
    if args.figure is not None:
        written[args.figure] = "".join(each.plot for each in chapters)
    for path, text in written.items():
        write_text(path, text)
        print(path)


if __name__ == "__main__":
    main()
