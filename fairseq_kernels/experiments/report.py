"""The tables that have been run, beside the papers' numbers: Markdown, and an HTML page that needs no other file.

``scripts/report.sh`` runs it.
"""

import re
import textwrap
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import jinja2

from ..analysis.markdown import escaped, markdown_table
from ..errors import CommandParser, one_line_errors
from . import tables
from .analyses import ANALYSES, SPEED, load_analysis, load_speed
from .chapters import Chapter, Part, chapter, in_order
from .files import write_text
from .summaries import load_results
from .verdicts import VERDICTS, load_verdicts


def load_chapters(folder: Path, names: Sequence[str] = ()) -> List[Chapter]:
    """What the folder has results of, in the report's order; of the named ones all must.

    Raises:
        ValueError: a name is unknown or has no results, or a file isn't what the scripts write.
    """
    known = [VERDICTS, *tables.names(), *ANALYSES, *SPEED]
    for name in names:
        if name not in known:
            raise ValueError(f"--tables: {name!r} is not known; choose from {' '.join(known)}")
    results = [load_results(folder / f"{name}.json", tables.load_table(name)) for name in tables.names()]
    results = [result for result in results if len(result.figures)]
    chapters = in_order(
        [chapter(result) for result in results]
        + [part for name in ANALYSES for part in load_analysis(folder, name)]
        + [part for name in SPEED for part in load_speed(folder, name)]
    )
    chapters = load_verdicts(folder, results) + chapters
    for name in names:
        if name not in [chapter.name for chapter in chapters]:
            raise ValueError(f"{folder / name}.json has no results; bash scripts/{name}.sh makes them")
    if not chapters:
        raise ValueError(f"{folder} has no results of a table; bash scripts/table1.sh makes some")
    return [chapter for chapter in chapters if chapter.name in names or not names]


def origin(figure: Dict) -> Dict[str, str]:
    """How one figure was made, by name."""
    lines = {"measured": f"{figure['metric']} of {figure['name']} on {figure['corpus']}, {figure['split']}"}
    for name, value in {**figure, **figure["provenance"]}.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {item}" for key, item in value.items())
        if name not in ("name", "corpus", "split", "metric", "paper", "provenance", "details", "valid_curve"):
            lines[name] = "none" if value is None else str(value)
    return lines


def markdown(chapters: Sequence[Chapter]) -> str:
    """The report as Markdown."""
    text = "# Results\n"
    for each in chapters:
        source = f" ({escaped(each.source)})" if each.source else ""
        text += f"\n## {escaped(each.title)}{source}\n\n{body(each)}"
    return text


def body(chapter: Chapter) -> str:
    """A chapter in Markdown, without its heading."""
    note = f"{filled(chapter.note)}\n\n" if chapter.note else ""
    return note + "\n".join(part_in_markdown(part) for part in chapter.parts)


def part_in_markdown(part: Part) -> str:
    blocks = [f"**{escaped(part.title)}**\n"] if part.title else []
    for table in part.tables:
        rows = [[code(cell) if head == "options" else escaped(str(cell)) for head, cell in zip(table.columns, row)]
                for row in table.values]  # fmt: skip
        blocks.append(markdown_table(list(map(escaped, table.columns)), rows))
    if part.notes:
        blocks.append("".join(f"{filled(f'- {sentence}', indent='  ')}\n" for sentence in part.notes))
    if part.command:
        blocks.append(f"{filled(f'{part.made} Command of the first row:')}\n\n```\n{part.command}\n```\n")
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
        marked = re.compile(rf"^({begin}[ \t\r]*\n).*?^({end}[ \t\r]*)$", flags=re.M | re.S)
        text, count = marked.subn(lambda match, content=content: match[1] + content + match[2], text)
        unmarked += [] if count else [each.name]
    return text, unmarked


def html(chapters: Sequence[Chapter]) -> str:
    """The report as a page that needs no other file."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html").render(chapters=chapters, origin=origin)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    print(path)


def main() -> None:
    parser = CommandParser(prog="report.sh", description="Tables as Markdown and as an HTML page.")
    default = tables.RESULTS
    parser.add_argument("--results", type=Path, default=default, help="folder of TABLE.json (default: %(default)s)")
    parser.add_argument("--publish", action="store_true", help="the results of this repository, and their report")
    parser.add_argument("--tables", nargs="+", default=[], metavar="TABLE", help="default: all that have results")
    parser.add_argument("--markdown", type=Path, help="default: report.md in the folder of results")
    parser.add_argument("--html", type=Path, help="default: report.html in the folder of results")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="FILE",
        help="a Markdown file; puts TABLE between its lines <!-- TABLE --> and <!-- /TABLE -->",
    )
    args = parser.parse_args()
    unmarked = []
    with one_line_errors():
        if args.publish:
            args.results = tables.checkout("results")
        chapters = load_chapters(args.results, args.tables)
        written = {args.markdown or args.results / "report.md": markdown(chapters)}
        written[args.html or args.results / "report.html"] = html(chapters)
    try:
        if args.into is not None:
            written[args.into], unmarked = put_into(args.into.read_bytes().decode(), chapters)
            if len(unmarked) == len(chapters):
                marks = f"<!-- {unmarked[0]} --> and <!-- /{unmarked[0]} -->"
                parser.error(f"{args.into} has no lines {marks}; write them where the table belongs")
        for path, text in written.items():
            write(path, text)
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}; give files that you may read and write")
    except UnicodeDecodeError:
        parser.error(f"{args.into} is no text in UTF-8; give a Markdown file")
    if unmarked:
        print(f"{args.into} has no lines <!-- NAME --> and <!-- /NAME --> for {', '.join(unmarked)}")


if __name__ == "__main__":
    main()
