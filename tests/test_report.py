"""The report against figures worked out by hand; where its numbers come from; the page by itself; mistakes."""

import json
import math
import re
import sys
from xml.etree import ElementTree

import pytest

from fairseq_kernels.experiments import report, report_figures, summaries, tables
from fairseq_kernels.experiments.report import html, in_readme, markdown
from fairseq_kernels.experiments.summaries import Cell, load_results, told_apart

TABLE = """
title: Kernels <one by one>
source: A. Author 2019, Table 1
note: A note.
rows:
  - {name: unigram, unigram: true}
  - {name: log, options: --kernels log, paper: {ppl: 103.0}}
  - {name: lin*, options: --kernels lin --kernel-params lin.scale=learned}
  - {name: lin, options: --kernels lin, paper: {ppl: 46.8, pi_variance_pp2: 4.74}}
  - {name: mog, options: --kernels mog, paper: {ppl: 46.7}}
"""
SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"


def figure(name, value, seed=1, metric="ppl", split="test", corpus="swb", paper=None, profile="cpu", **provenance):
    origin = {
        "commit": f"commit-{name}-{seed}", "processor": "AMD EPYC", "threads": 2, "gpu": None, "python": "3.11.7",
        "versions": {"torch": "2.13.0", "numpy": "2.4.6"}, "date": f"2026-11-2{seed}", "data": f"data-{corpus}",
        "seconds": 60.0 * seed, "config": f"--kernels {name}", **provenance,
    }  # fmt: skip
    command = f"bash scripts/train_lm.sh {corpus} --kernels {name} --seed {seed}"
    shared = {"name": name, "corpus": corpus, "split": split, "metric": metric, "value": value, "paper": paper}
    return {**shared, "profile": profile, "seed": seed, "command": command, "provenance": origin}


@pytest.fixture
def results(monkeypatch, tmp_path):
    """Writes results of tables, and loads them."""
    configs = tmp_path / "configs"
    configs.mkdir()
    for name in ("toy", "other"):
        (configs / f"{name}.yaml").write_text(TABLE)
    monkeypatch.setattr(tables, "TABLES", configs)

    def write(figures, curves=(), name="toy"):
        (tmp_path / "curves").mkdir(exist_ok=True)
        (tmp_path / f"{name}.json").write_text(json.dumps(figures))
        (tmp_path / "curves" / f"{name}.json").write_text(json.dumps(curves))
        return load_results(tmp_path)

    return write


def rows_of(text):
    """The cells of a Markdown text's tables."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells if set("".join(row)) != {"-"}]


def test_rows_with_further_options_have_lines_of_their_own(results):
    """Never averaged with the row itself, which keeps its name; in curves neither."""
    figures = [figure("lin", 50.0, config="--kernels lin --lr 1"), figure("lin", 60.0), figure("lin", 62.0, seed=2)]
    shared = {"corpus": "swb", "profile": "cpu", "seed": 1}
    curves = [{"name": "lin", **shared, "config": "--kernels lin --lr 1", "valid": {"ppl": {"1": 50.0}}}]
    found = results(figures, curves)
    assert [row[:3] for row in rows_of(markdown(found))[1:]] == [
        ["lin", "`--kernels lin`", "61.0 ± 1.4 (2)"],
        ["lin (--kernels lin --lr 1)", "`--kernels lin --lr 1`", "50.0"],
    ]
    assert [curve["name"] for curve in found[0].curves] == ["lin (--kernels lin --lr 1)"]


def test_a_searched_row_s_name_is_that_of_the_newest_search(results, monkeypatch, tmp_path):
    with (tmp_path / "configs" / "toy.yaml").open("a") as table:
        table.write("  - {name: log-searched, searched: log}\n")
    monkeypatch.setattr(summaries, "SEARCHED", tmp_path / "searched.yaml")
    old, new = (f"--kernels log --kernel-params log.p={p}" for p in (16, 8))
    figures = [figure("log-searched", 80.0, config=old), figure("log-searched", 70.0, config=new)]
    for searched, named in (("8", "70.0"), ("16", "80.0")):
        (tmp_path / "searched.yaml").write_text(f"swb/cpu/log: {{kernel_params: log.p={searched}}}\n")
        found = {row[0]: row[2] for row in rows_of(markdown(results(figures)))}
        assert found["log-searched"] == named and len(found) == 3


def test_the_command_is_of_the_shown_split(results):
    valid = {**figure("lin", 57.0, split="valid"), "command": "bash scripts/evaluate_lm.sh --gen-subset valid"}
    assert "--gen-subset valid" not in markdown(results([valid, figure("lin", 60.0)]))
    with (tables.TABLES / "toy.yaml").open("a") as table:
        table.write("split: valid\n")
    assert "--gen-subset valid" in markdown(results([figure("lin", 60.0), valid]))


def test_models_that_diverged(results):
    text = markdown(results([figure("lin", math.inf), figure("lin", 60.0, seed=2), figure("log", math.nan)]))
    cells = {row[0]: row[2] for row in rows_of(text)}
    assert cells["lin"] == "inf (2)" and cells["log"] == "nan"


def test_different_data_under_one_name_are_kept_apart(results):
    curves = [{"name": "lin", "corpus": "swb", "profile": "cpu", "seed": 1, "data": "b", "valid": {"ppl": {"1": 50.0}}}]
    found = results(
        [figure("lin", 50.0, data="a"), figure("lin", 60.0, data="b"), figure("log", 70.0, data="b")], curves
    )
    header, log, lin = rows_of(markdown(found))[:3]
    assert [header[2], header[4], lin[2], lin[4], log[2]] == [
        "swb a perplexity",
        "swb b perplexity",
        "50.0",
        "60.0",
        "",
    ]
    assert [curve["corpus"] for curve in found[0].curves] == ["swb b"]


def test_means_spread_order_and_paper(results):
    figures = [
        figure("extra", 70.04),
        *(figure("lin", value, seed, paper=46.8) for seed, value in ((2, 61.0), (1, 60.0), (3, 62.0))),
        figure("log", 120.26, paper=103.0, seconds=90),
        figure("unigram", 271.6, config=""),
        *(figure("lin", value, seed, split="valid") for seed, value in ((1, 1.0), (2, 2.0), (3, 3.0))),
    ]
    del figures[5]["provenance"]["seconds"]
    text = markdown(results(figures))
    assert rows_of(text) == [
        ["", "options", "swb perplexity", "paper, its own data", "swb minutes (training)"],
        ["unigram", "", "271.6", "", ""],
        ["log", "`--kernels log`", "120.3", "103.0", "1.5"],
        ["lin", "`--kernels lin`", "61.0 ± 1.0 (3)", "46.8", "2.0 ± 1.0 (3)"],
        ["extra", "`--kernels extra`", "70.0", "", "1.0"],
    ]
    assert r"not run: lin\*, mog" in text.splitlines()
    assert r"## Kernels \<one by one\> (A. Author 2019, Table 1)" in text.splitlines()
    assert "A note." in text.splitlines() and "`--profile cpu`; paper: A. Author 2019, Table 1" in text.splitlines()


def test_columns(results):
    """Language models before translation, metrics in their order; what was never measured on test with its split; of
    the mixture weights what the paper has."""
    measured = (("pi_variance_pp2", "valid"), ("top10_error", "valid"), ("ppl", "valid"), ("ppl", "test"),
                ("simlex", "SimLex-999"), ("pi_variance", "valid"))  # fmt: skip
    figures = [figure("lin", 0.25, metric=metric, split=split) for metric, split in measured]
    figures += [figure("log", 36.04, metric=metric, corpus="m30k") for metric in ("sacrebleu", "bleu")]
    header, log, _ = rows_of(markdown(results(figures)))[:3]
    assert header[2:] == [
        "swb perplexity", "swb top-10 error (valid)", "swb word similarity (SimLex-999)",
        "swb variance of weights, pp² (valid)", "swb minutes (training)",
        "m30k BLEU4", "m30k sacreBLEU", "m30k minutes (training)",
    ]  # fmt: skip
    assert log[2:] == ["", "", "", "", "", "36.0", "36.0", "1.0"]


def test_profiles_have_tables_of_their_own(results):
    text = markdown(results([figure("lin", 61.0), figure("lin", 47.0, profile="paper"), figure("log", 99.0)]))
    assert [row[2] for row in rows_of(text) if row[0] == "lin"] == ["61.0", "47.0"]
    assert text.index("61.0") < text.index("`--profile paper`") < text.index("47.0")
    assert "not run: unigram, lin\\*, mog" in text and "not run: unigram, log, lin\\*, mog" in text


def test_mixture_weights(results):
    figures = [figure("log", 100.0), figure("lin", 60.0)]
    for seed, weight in ((1, 0.25), (2, 0.35)):
        for metric, value in (("lin1", weight), ("log", 1 - weight), ("variance", 0.1), ("variance_pp2", 4.74)):
            figures.append(figure("lin", value, seed, metric=f"pi_{metric}", split="valid"))
    found = results(figures)
    header, row = rows_of(markdown(found))[-2:]
    assert header == ["", "corpus", "mean mixture weights", "variance of weights, pp²"]
    assert row == ["lin", "swb", "lin1 0.30 ± 0.07 (2), log 0.70 ± 0.07 (2)", "4.7 ± 0.0 (2)"]
    [[_, row]] = [list(table) for table in page_of(found).iter("table") if "mixture" in "".join(table.itertext())]
    assert [text_of(each) for each in row.iter("summary")] == ["0.30 ± 0.07 (2)", "0.70 ± 0.07 (2)", "4.7 ± 0.0 (2)"]


def cell(*values):
    return Cell([{"value": value} for value in values])


@pytest.mark.parametrize(
    "one, other, apart",
    [
        ((60.0, 61.0, 62.0), (62.0, 63.0, 64.0), False),  # 2 twice the deviation of 1
        ((60.0, 61.0, 62.0), (62.01, 63.01, 64.01), True),
        ((-1.0, 1.0), (1.3, 2.3, 3.3), False),  # pooled: sqrt((1 * 2 + 2 * 1) / 3), twice that is 2.309
        ((-1.0, 1.0), (1.32, 2.32, 3.32), True),
        ((60.0, 61.0, 62.5), (63.6,), False),  # a range of 2.5 around 61.17
        ((63.7,), (60.0, 61.0, 62.5), True),
        ((60.0,), (99.0,), None),
        ((math.nan, 60.0), (60.0, 61.0), None),
    ],
)
def test_rule(one, other, apart):
    assert told_apart(cell(*one), cell(*other)) is apart


def test_what_the_seeds_say(results):
    values = {"log": (99.0, 99.5), "lin": (60.0, 61.0), "lin*": (60.5, 61.5), "mog": (60.6,), "unigram": (270.0,)}
    figures = [figure(name, value, seed) for name, many in values.items() for seed, value in enumerate(many, 1)]
    figures += [figure(name, 36.0, metric="bleu", corpus="m30k") for name in ("lin", "log")]
    [part] = summaries.summaries(results(figures)[0])
    assert part.spread == [
        summaries.RULE,
        "swb perplexity: not told apart from lin by this rule: lin*, mog.",
        "swb perplexity: told apart from lin by this rule: unigram, log.",
        "The spread over seeds is unknown (fewer than two rows have two seeds): m30k BLEU4.",
    ]
    text = markdown(results(figures))
    assert r"- swb perplexity: not told apart from lin by this rule: lin\*, mog." in text.splitlines()
    one_each = [value for value in figures if value["seed"] == 1]
    [part] = summaries.summaries(results(one_each)[0])
    [sentence] = part.spread
    assert "unknown" in sentence and "swb perplexity, m30k BLEU4" in sentence


def test_first_row_is_the_baseline_where_there_is_no_lin(results):
    figures = [figure(name, seed, seed) for name in ("mog", "log") for seed in (1, 2)]
    [part] = summaries.summaries(results(figures)[0])
    assert part.spread[1] == "swb perplexity: not told apart from log by this rule: mog."


def test_how_it_was_made(results):
    unigram = {**figure("unigram", 271.6, config="unigram"), "command": "unigram_perplexities('swb')"}  # no training
    figures = [unigram, figure("lin", 60.0, 2, gpu="NVIDIA H200", threads=1)]
    text = markdown(results([*figures, figure("lin", 36.0, 3, metric="bleu", corpus="m30k")]))
    assert (
        "Made at commit commit-unigram-1, commit-lin-2, commit-lin-3, 2026-11-21 to 2026-11-23; data swb data-swb, "
        "m30k data-m30k; torch 2.13.0, numpy 2.4.6, Python 3.11.7; AMD EPYC, threads 2, 1, GPU none, NVIDIA H200; "
        "seeds 1, 2, 3. One row's command:\n\n```\nbash scripts/train_lm.sh swb --kernels lin --seed 2\n```\n"
    ) in text


def page_of(found):
    return ElementTree.fromstring(html(found))


def text_of(element):
    return " ".join("".join(element.itertext()).split())


def numbers_of(page):
    """Of each table cell with a number of ours: row, column and what its details tell, figure by figure."""
    for table in page.iter("table"):
        header, *rows = list(table)
        for row in rows:
            for column, place in zip(header, row):
                if place.tag == "td" and place.get("class") is None and text_of(place):
                    [details] = place.iter("details")
                    cards = [dict(zip(map(text_of, dl[::2]), map(text_of, dl[1::2]))) for dl in place.iter("dl")]
                    yield text_of(row[0]), text_of(column), text_of(details.find("summary")), cards


def test_each_number_on_the_page_tells_how_it_was_made(results):
    figures = [figure("lin", 61.5, 2, gpu="NVIDIA H200"), figure("lin", 60.0, 1, paper=46.8), figure("log", 103.25)]
    figures.append({**figure("log", 36.0, metric="sacrebleu", corpus="m30k"), "signature": "nrefs:1|case:mixed"})
    page = page_of(results(figures))
    assert [text_of(place) for place in page.iter("td") if place.get("class") == "paper"] == ["", "46.8"]
    found = {(row, column): (text, cards) for row, column, text, cards in numbers_of(page)}
    assert len(found) == 6
    for row, column in found:
        _, cards = found[row, column]
        assert [card["seed"] for card in cards] == (["1", "2"] if row == "lin" else ["1"])
        for card in cards:
            corpus = "m30k" if "m30k" in column else "swb"
            assert card["commit"] == f"commit-{row}-{card['seed']}" and card["data"] == f"data-{corpus}"
            assert card["config"] == f"--kernels {row}" and card["versions"] == "torch 2.13.0, numpy 2.4.6"
            assert card["command"] == f"bash scripts/train_lm.sh {corpus} --kernels {row} --seed {card['seed']}"
            assert card["seconds"] == str(60.0 * int(card["seed"])) and card["processor"] == "AMD EPYC"
    text, cards = found["lin", "swb perplexity"]
    assert text == "60.8 ± 1.1 (2)" and [card["value"] for card in cards] == ["60.0", "61.5"]
    assert [card["gpu"] for card in cards] == ["none", "NVIDIA H200"]
    assert {card["measured"] for card in cards} == {"ppl of lin on swb, test"}
    assert found["log", "m30k sacreBLEU"][1][0]["signature"] == "nrefs:1|case:mixed"


CURVES = [
    {"name": name, "corpus": "swb", "profile": "cpu", "seed": seed, "train": {"ppl": {}},
     "valid": {"ppl": {"10": start, "20": 120.0, "40": 75.5, "50": 70.0}},
     "weights": {"pi_lin1": {"10": 0.5, "20": 0.75, "40": 0.8, "50": 0.9}} if name == "lin" else {}}
    for name, seed, start in (("log", 1, 250.0), ("lin", 1, 160.0), ("lin", 2, 140.0))
]  # fmt: skip


def pictures_of(page):
    return {text_of(found.find("figcaption")): found.find(f"{SVG}svg") for found in page.iter("figure")}


def paths_of(drawing, count):
    """Open lines of so many points."""
    paths = [re.findall(r"[ML] (\S+) (\S+)", path.get("d")) for path in drawing.iter(f"{SVG}path") if
             not path.get("d").rstrip().endswith("z")]  # fmt: skip
    return [[tuple(map(float, point)) for point in path] for path in paths if len(path) == count]


def assert_affine(drawn, wanted):
    """What is drawn is wanted, moved and scaled."""
    scale = (drawn[-1] - drawn[0]) / (wanted[-1] - wanted[0])
    assert drawn == pytest.approx([drawn[0] + scale * (value - wanted[0]) for value in wanted], abs=1e-3)


def test_curves_and_weights(results):
    unigram = {"name": "unigram", "corpus": "swb", "profile": "cpu", "seed": 1}
    strange = {**CURVES[0], "name": "gone"}
    figures = [figure("unigram", 270.0), figure("log", 71.0), figure("lin", 70.0), figure("lin", 72.0, 2)]
    learning, weights, seeds = pictures_of(page_of(results(figures, [unigram, *CURVES, strange]))).items()
    assert "perplexity on swb" in learning[0] and "weights on swb" in weights[0] and "swb perplexity" in seeds[0]
    lines = paths_of(learning[1], 4)
    assert len(lines) == 3
    for line, curve in zip(lines, CURVES):  # in the table's order: log first
        assert_affine([x for x, _ in line], [10, 20, 40, 50])
        assert_affine([y for _, y in line], [math.log(value) for value in curve["valid"]["ppl"].values()])
    assert {"log", "lin", "update"} <= {text_of(text) for text in learning[1].iter(f"{SVG}text")}
    lines = paths_of(weights[1], 4)
    assert len(lines) == 2
    for line in lines:
        assert_affine([y for _, y in line], [0.5, 0.75, 0.8, 0.9])
    assert {"lin1", "lin"} <= {text_of(text) for text in weights[1].iter(f"{SVG}text")}


def test_seeds_are_dots(results):
    values = {"log": (100.0, 103.0, 101.0), "lin": (60.0, 62.0, 61.0), "mog": (64.0,)}
    figures = [figure(name, value, seed) for name, many in values.items() for seed, value in enumerate(many, 1)]
    [(caption, drawing)] = pictures_of(page_of(results(figures))).items()
    assert "swb perplexity" in caption
    rows = {}
    for dot in drawing.iter(f"{SVG}use"):
        if "opacity: 0.6" in dot.get("style"):
            rows.setdefault(float(dot.get("y")), []).append(float(dot.get("x")))
    log, lin, mog = (rows[y] for y in sorted(rows))
    assert [len(row) for row in (log, lin, mog)] == [6, 6, 1]  # values, and their differences to the mean
    assert_affine([*log[:3], *lin[:3], *mog], [*values["log"], *values["lin"], *values["mog"]])
    assert_affine([*log[3:], *lin[3:]], [-4 / 3, 5 / 3, -1 / 3, -1, 1, 0])
    assert [text_of(text) for text in drawing.iter(f"{SVG}text")].count("lin") == 1


def test_page_stands_alone(results):
    figures = [figure(name, seed, seed) for name in ("lin", "log") for seed in (1, 2)]
    results(figures, CURVES)
    found = results([{**each, "profile": profile} for each in figures for profile in ("cpu", "paper")], CURVES, "other")
    text = html(found)
    page = ElementTree.fromstring(text)
    ids = [element.get("id") for element in page.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) > 100
    for element in page.iter():
        assert element.tag not in ("script", "link", "img", "iframe", "object", "base")
        assert not {"src", "srcset", "action", "data"} & set(element.attrib)
        for name in ("href", f"{XLINK}href"):
            assert element.get(name, "#").lstrip("#") in ("", *ids)
    assert set(re.findall(r"url\((.)", text)) == {"#"} and "@import" not in text
    assert {found.strip("#)") for found in re.findall(r"#[\w.-]+\)", text)} <= set(ids)
    assert "color-scheme: light dark" in text and report_figures.INK not in text and "currentColor" in text
    assert html(found) == text


def test_escaping(results):
    bad = '<b>a|b*"&$x_1$'
    figures = [figure(bad, seed, seed, corpus="<i>corpus", profile='<u>"p"', config="<script>|", commit="<s>") for
               seed in (1, 2)]  # fmt: skip
    curves = [{**CURVES[1], "name": bad, "corpus": "<i>corpus", "profile": '<u>"p"'}]
    found = results(figures, curves)
    page = page_of(found)
    assert not {"b", "i", "u", "s", "script"} & {element.tag for element in page.iter()}
    assert bad in [text_of(cell) for cell in page.iter("th")]
    for drawing in pictures_of(page).values():
        assert bad in [text_of(text) for text in drawing.iter(f"{SVG}text")]
    header, row = rows_of(markdown(found))
    assert len(header) == len(row) == 4
    assert row[0] == r'\<b\>a\|b\*"&$x\_1$' and row[1] == r"`<script>\|`" and header[2] == r"\<i\>corpus perplexity"


def test_readme(results):
    found = results([figure("lin", 60.0)])
    both = results([figure("log", 99.0)], name="other")
    before = "# Title\r\n\n<!-- toy -->\r\nold\n<!-- /toy -->\nbetween  \n<!-- other -->\n<!-- /other -->\nend"
    once, unmarked = in_readme(before, both)
    assert unmarked == [] and in_readme(once, both) == (once, [])
    assert once.startswith("# Title\r\n\n<!-- toy -->\r\n`--profile cpu`") and "old" not in once
    assert "```\n<!-- /toy -->\nbetween  \n<!-- other -->\n" in once and once.endswith("```\n<!-- /other -->\nend")
    assert once.index("| lin | ") < once.index("between") < once.index("| log | ")
    assert in_readme(before, found)[0].endswith("between  \n<!-- other -->\n<!-- /other -->\nend")
    for text in (
        "no markers",
        "<!-- toy -->\nno end",
        "text <!-- toy -->\n<!-- /toy -->",
        "<!-- /toy -->\n<!-- toy -->",
    ):
        assert in_readme(text, found) == (text, ["<!-- toy --> … <!-- /toy -->"])


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["report.sh", *map(str, arguments)])
    report.main()


def test_program(monkeypatch, capsys, results, tmp_path):
    results([figure("lin", 60.0)])
    found = results([figure("log", 99.0)], name="other")
    readme = tmp_path / "README.md"
    readme.write_text("<!-- toy -->\n<!-- /toy -->\n")
    run(monkeypatch, "--results", tmp_path, "--readme", readme)
    assert (tmp_path / "report.md").read_text() == markdown(found)
    assert (tmp_path / "report.html").read_text() == html(found)
    assert readme.read_text() == in_readme("<!-- toy -->\n<!-- /toy -->\n", found)[0]
    printed = capsys.readouterr().out.splitlines()
    assert printed[:3] == [str(tmp_path / name) for name in ("report.html", "report.md", "README.md")][1::-1] + [
        str(readme)
    ]
    assert len(printed) == 4 and "README.md" in printed[3] and "<!-- other -->" in printed[3]
    chosen = ("--tables", "other", "--markdown", tmp_path / "new" / "a.md", "--html", tmp_path / "new" / "a.html")
    run(monkeypatch, "--results", tmp_path, *chosen)
    assert (tmp_path / "new" / "a.md").read_text() == markdown(found[:1])
    assert (tmp_path / "new" / "a.html").is_file()


def without(name, **entry):
    return {key: value for key, value in {**figure("lin", 60.0), **entry}.items() if key != name}


FILES = {
    "toy.json": {
        "no json": "[{",
        "a list": "{}",
        "object 1": "[1]",
        "'value'": json.dumps([without("value")]),
        "object 2 has no 'seed'": json.dumps([without(""), without("", seed="1")]),
        "provenance has no 'config'": json.dumps([without("", provenance={})]),
    },
    "curves/toy.json": {
        "'corpus'": json.dumps([{"name": "lin"}]),
        "by update": json.dumps([{**CURVES[0], "valid": {"ppl": {"first": 60.0}}}]),
        "object 2": json.dumps([CURVES[0], {**CURVES[0], "weights": {"pi_lin1": [0.5]}}]),
    },
}


@pytest.mark.parametrize("name, problem", [(name, problem) for name, found in FILES.items() for problem in found])
def test_wrong_files(name, problem, monkeypatch, results, tmp_path):
    results([figure("lin", 60.0)])
    (tmp_path / name).write_text(FILES[name][problem])
    said = {"no json": "is damaged", "a list": "no list", "object 1": "no list of objects"}.get(problem, problem)
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--results", tmp_path)
    assert str(tmp_path / name) in ended.value.code and said in ended.value.code and "\n" not in ended.value.code
    assert not (tmp_path / "report.md").exists()


def test_other_mistakes(monkeypatch, capsys, results, tmp_path):
    results([figure("lin", 60.0)])
    results([], name="other")
    for arguments, said in {
        ("--results", tmp_path / "none"): ["none", "no results", "table1.sh"],
        ("--results", tmp_path, "--tables", "other"): ["other.json", "no results", "other.sh"],
        ("--results", tmp_path, "--tables", "table9"): ["'table9'", "other toy"],
        ("--results", tmp_path, "--readme", tmp_path / "none.md"): ["none.md", "No such file"],
        ("--results", tmp_path, "--html", tmp_path / "toy.json" / "a.html"): ["toy.json"],
    }.items():
        with pytest.raises(SystemExit) as ended:
            run(monkeypatch, *arguments)
        shown = capsys.readouterr().err.strip().splitlines()[-1] if ended.value.code == 2 else ended.value.code
        assert all(part in shown for part in said) and "\n" not in shown, shown
