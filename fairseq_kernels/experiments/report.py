"""The tables that have been run, beside the papers' numbers: Markdown, and an HTML page that needs no other file.

``scripts/report.sh`` runs it.
"""

import argparse
import re
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import jinja2

from ..analysis.markdown import escaped, markdown_table
from ..errors import one_line_errors
from . import tables
from .analyses import ANALYSES, AnalysisTable, load_analyses
from .report_figures import pictures
from .summaries import METRICS, Results, Section, load_results, summaries


def origin(figure: Dict) -> Dict[str, str]:
    """How one figure was made, by name."""
    told = {"measured": f"{figure['metric']} of {figure['name']} on {figure['corpus']}, {figure['split']}"}
    for name, value in {**figure, **figure["provenance"]}.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {item}" for key, item in value.items())
        if name not in ("name", "corpus", "split", "metric", "paper", "provenance", "details"):
            told[name] = "none" if value is None else str(value)
    return told


def markdown(all_results: Sequence[Results], analyses: Sequence[AnalysisTable] = ()) -> str:
    """The report as Markdown."""
    text = "# Tables\n"
    for results in all_results:
        table = results.table
        text += f"\n## {escaped(table.title)} ({escaped(table.source)})\n\n"
        text += f"{escaped(table.note)}\n\n{body(results)}" if table.note else body(results)
    for table in analyses:
        text += f"\n## {escaped(table.title)} ({escaped(table.source)})\n\n"
        text += f"{escaped(table.note)}\n\n{analysis_body(table)}"
    return text


def analysis_body(table: AnalysisTable) -> str:
    rows = [[escaped(str(cell)) for cell in row] for row in table.rows]
    return f"{markdown_table(table.header, rows)}\n{escaped(table.made)} Made by:\n\n```\n{table.command}\n```\n"


def body(results: Results) -> str:
    """A table in Markdown, without its heading."""
    return "\n".join(section_in_markdown(part, results.table.source) for part in summaries(results))


def section_in_markdown(part: Section, source: str) -> str:
    header = ["", "options"]
    for column in part.columns:
        header += [escaped(column.label), "paper, its own data"][: 1 + (column in part.papers)]
    rows = []
    for line in part.lines:
        rows.append([escaped(line.name), f"`{line.options}`".replace("|", r"\|") if line.options else ""])
        for column in part.columns:
            cell = line.cells.get(column)
            rows[-1] += [str(cell or ""), cell.paper if cell else ""][: 1 + (column in part.papers)]
    text = f"`--profile {part.profile}`{f'; paper: {escaped(source)}' if part.papers else ''}\n\n"
    text += markdown_table(header, rows)
    if part.missing:
        text += f"\nnot run: {escaped(', '.join(part.missing))}\n"
    if part.mixtures:
        rows = []
        for line, corpus, weights in part.mixtures:
            each = ", ".join(f"{name[len('pi_') :]} {cell}" for name, cell in weights.items() if "variance" not in name)
            rows.append([*map(escaped, (line.name, corpus, each)), str(weights.get("pi_variance_pp2", ""))])
        text += "\n" + markdown_table(["", "corpus", "mean mixture weights", METRICS["pi_variance_pp2"][0]], rows)
    text += "\n" + "".join(f"- {escaped(sentence)}\n" for sentence in part.spread)
    return f"{text}\n{escaped(part.made)} One row's command:\n\n```\n{part.command}\n```\n"


def in_readme(
    text: str, all_results: Sequence[Results], analyses: Sequence[AnalysisTable] = ()
) -> Tuple[str, List[str]]:
    """The text with each table between its lines ``<!-- TABLE -->`` and ``<!-- /TABLE -->``; and such lines as it
    doesn't have."""
    unmarked = []
    bodies = {results.table.name: body(results) for results in all_results}
    bodies.update({table.name: analysis_body(table) for table in analyses})
    for name, content in bodies.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        marked = re.compile(rf"^({begin}[ \t\r]*\n).*?^({end}[ \t\r]*)$", flags=re.M | re.S)
        text, count = marked.subn(lambda found, content=content: found[1] + content + found[2], text)
        unmarked += [] if count else [f"{begin} … {end}"]
    return text, unmarked


def html(all_results: Sequence[Results], analyses: Sequence[AnalysisTable] = ()) -> str:
    """The report as a page that needs no other file."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    found = [(results, [(part, pictures(results, part)) for part in summaries(results)]) for results in all_results]
    page = environment.get_template("report.html")
    return page.render(found=found, analyses=analyses, METRICS=METRICS, origin=origin)


def main() -> None:
    parser = argparse.ArgumentParser(prog="report.sh", description="Tables as Markdown and as an HTML page.")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of TABLE.json (default: results)")
    parser.add_argument("--tables", nargs="+", default=[], metavar="TABLE", help="default: all that have results")
    parser.add_argument("--markdown", type=Path, help="default: report.md in the folder of results")
    parser.add_argument("--html", type=Path, help="default: report.html in the folder of results")
    parser.add_argument("--readme", type=Path, help="puts TABLE between its lines <!-- TABLE --> and <!-- /TABLE -->")
    args = parser.parse_args()
    unmarked = []
    with one_line_errors():
        known = [*tables.names(), *ANALYSES]
        for name in args.tables:
            if name not in known:
                raise ValueError(f"--tables: {name!r} is not known; choose from {' '.join(known)}")
        named = [name for name in args.tables if name not in ANALYSES]
        found = load_results(args.results, named) if named or not args.tables else []
        named = [name for name in args.tables if name in ANALYSES]
        analyses = load_analyses(args.results, named) if named or not args.tables else []
        if not (found or analyses):
            raise ValueError(f"{args.results} has no results of a table; bash scripts/table1.sh makes some")
        written = {args.markdown or args.results / "report.md": markdown(found, analyses)}
        written[args.html or args.results / "report.html"] = html(found, analyses)
        try:
            if args.readme is not None:
                readme = args.readme.read_bytes().decode()  # bytes keep the line ends
                written[args.readme], unmarked = in_readme(readme, found, analyses)
            for path, text in written.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
                print(path)
        except OSError as error:
            parser.error(f"{error.filename}: {error.strerror}; give files that you may read and write")
    if unmarked:
        print(f"{args.readme} has no lines {', '.join(unmarked)}; these tables were not put into it")


if __name__ == "__main__":
    main()
