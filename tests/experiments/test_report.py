"""The report against figures worked out by hand; where its numbers come from; the page by itself; mistakes."""

import json
import math
import re
import shlex
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pandas
import pytest
from scipy import stats

from fairseq_kernels.analysis.curves import file_pyplot
from fairseq_kernels.experiments import grid, report, tables
from fairseq_kernels.experiments.profiles import training_settings
from fairseq_kernels.experiments.report import html, load_chapters, markdown, put_into
from fairseq_kernels.experiments.results import frame

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


def record(row, seed=1, corpus="swb", profile="cpu", settings=None, parts=None, made=None, **values):
    """``values``: by metric on test, or by ``metric_split``."""
    metrics = []
    for name, value in values.items():
        metric, _, split = name.rpartition("_")
        metric, split = (metric, split) if split in ("valid", "train", "simlex") and metric else (name, "test")
        metrics.append({"split": split, "metric": metric, "value": value})
    settings = {"kernels": row} if settings is None else settings
    argv = ["bash", "scripts/train_lm.sh", corpus, "--kernels", row, "--seed", str(seed)]
    origin = {"commit": f"commit-{row}-{seed}", "argv": argv, "data": f"data-{corpus}", "date": f"2026-11-2{seed}",
              "versions": {"torch": "2.13.0"}, "machine": {"processor": "AMD EPYC", "threads": 2, "gpu": None},
              "parameters": 1896832, "arguments": "--arch x", **(made or {})}  # fmt: skip
    run = {"row": row, "corpus": corpus, "profile": profile, "seed": seed, "settings": settings}
    return {"run": run, "made": origin, "metrics": metrics, "parts": parts or {}}


def seeds(row, *values, **further):
    return [record(row, seed, ppl=value, **further) for seed, value in enumerate(values, 1)]


@pytest.fixture
def results(monkeypatch, tmp_path):
    """Writes records of tables, and loads the report's chapters."""
    configs = tmp_path / "configs"
    configs.mkdir()
    for name in ("toy", "other"):
        (configs / f"{name}.yaml").write_text(TABLE)
    monkeypatch.setattr(tables, "TABLES", configs)

    def write(records, name="toy", table=""):
        (tmp_path / f"{name}.json").write_text(json.dumps(records))
        (configs / f"{name}.yaml").write_text(TABLE + table)
        return load_chapters(tmp_path)

    return write


def grid_of(chapters, part=0):
    """Cells by row and head."""
    _, heads, rows, *_ = chapters[0].parts[part]
    return pandas.DataFrame(rows, columns=heads).set_index(heads[0])


def test_the_main_table(results):
    """Rows in the table's order; the pooled deviation is lin's, with 2 degrees of freedom; parts are unknown. Holm
    counts comparisons on the test set."""
    lin = [math.log(value) for value in (60.0, 62.0, 61.0)]
    every = [record("lin", seed, ppl=58.0 + 2 * seed, ppl_valid=56.5 + 2 * seed) for seed in (1, 2)]
    every.append(record("lin", 3, ppl=61.0, ppl_train=70.25))
    chapters = results([record("extra", ppl=70.04), *every, record("log", ppl=120.26, ppl_valid=115.0),
                        record("unigram", ppl=271.6, settings={})])  # fmt: skip
    grid = grid_of(chapters)
    assert grid.index.tolist() == ["unigram", "log", "lin", "extra"]
    heads = ["perplexity", "perplexity (valid)", "perplexity (train)", "the paper's, its own data", "− lin's", "p",
             "− lin's (valid)"]  # fmt: skip
    assert grid.columns.tolist() == [*heads, "parameters", "options"]
    assert grid["perplexity"].tolist() == ["271.6 (1)", "120.3 (1)", "60.99 (3)", "70.04 (1)"]
    assert grid["perplexity (valid)"]["lin"] == "59.49 (2)" and grid["the paper's, its own data"]["log"] == "103"
    half = stats.t.ppf(0.975, 2) * stats.tstd(lin) * math.sqrt(1 + 1 / 3)
    middle = math.log(120.26) - sum(lin) / 3
    low, high = (100 * math.expm1(middle + sign * half) for sign in (-1, 1))
    assert grid["− lin's"]["log"] == f"+{100 * math.expm1(middle):.1f} % [+{low:.1f}, +{high:.0f}]"
    assert grid["− lin's"]["unigram"] == "+345 %" and grid["p"]["unigram"] == ""  # it has no seeds
    p = 2 * stats.t.sf(middle / (half / stats.t.ppf(0.975, 2)), 2)
    assert grid["p"]["log"] == f"{2 * p:.3f}"  # Holm: the smaller of two
    assert grid["options"]["log"] == "--kernels log"
    text = markdown(chapters)
    assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith("|"))
    assert r"- Not run: lin\*, mog." in text.splitlines() and "A note." in text.splitlines()
    sentence = "cover seeds (pooled standard deviation 1.64 %, 2 degrees of freedom); p by Holm over 2."
    assert sentence in " ".join(text.split())
    assert r"## Kernels &lt;one by one&gt; (A. Author 2019, Table 1)" in text.splitlines()


def test_a_reference_with_a_margin(results):
    """lin-tuned: differences from it, too, and a test of equivalence over the rows that aren't lin."""
    table = "  - {name: lin-tuned, options: --kernels lin --lr 1}\nreference: lin-tuned\nmargin: 1\n"
    tuned = [record("lin-tuned", seed, ppl=value) for seed, value in enumerate((58.0, 58.2, 58.1), 1)]
    rows = [*seeds("lin", 61.0, 61.2, 61.3), *tuned, *seeds("mog", 58.05, 58.25, 58.1), *seeds("log", 59.5, 59.6, 59.7)]
    grid = grid_of(results(rows, table=table))
    assert grid["− lin's"]["lin-tuned"].startswith("-5.01 %") and grid["− lin-tuned's"]["lin"].startswith("+5.28 %")
    beyond = grid["p, beyond ± 1 %"]
    assert beyond["lin"] == beyond["lin-tuned"] == "" and beyond["mog"] == "< 0.001" and float(beyond["log"]) > 0.9


def test_rows_with_further_settings_and_other_data_have_lines_of_their_own(results):
    other = record("lin", 2, ppl=50.0, settings={"kernels": "lin", "lr": "1", "stock": True})
    grid = grid_of(results([*seeds("lin", 60.0), other]))
    assert grid["perplexity"].to_dict() == {"lin": "60.00 (1)", "lin (--kernels lin --lr 1 --stock)": "50.00 (1)"}
    records = [record("lin", ppl=47.0, made={"data": "a"}), record("lin", ppl=48.0, made={"data": "b"})]
    records += [record("lin", bleu=36.04, corpus="m30k"), record("log", ppl=99.0, profile="paper")]
    titles = [part.title for part in results(records)[0].parts]
    corpora = ["swb a", "swb b", "m30k", "swb data-swb"]  # language models first
    assert titles == [f"{corpus}, --profile {profile}" for corpus, profile in zip(corpora, ["cpu"] * 3 + ["paper"])]


CLAIM = """answer: So it is.\ngain: Bars are intervals.\nevidence: Of lin.\nclaims:
- claim: No kernel is better.
  source: A. Author 2019
  paper: 46.7 to 46.8
  rows: [toy/cpu/swb/ppl/log, toy/cpu/swb/ppl/mog, toy/cpu/swb/ppl/lin, toy/paper/swb/ppl/log]
  evidence: log is worse.
  verdict: holds
  tuned: can't be told
  reason: all were tried.
"""


def test_verdicts(results, tmp_path):
    (tmp_path / "verdicts.yaml").write_text(CLAIM)
    chapters = results([*seeds("lin", 60.0, 62.0, 61.0), record("log", ppl=120.0), record("mog", ppl=67.9),
                        record("lin*", ppl=67.9), record("log", ppl=90.0, profile="paper")])  # fmt: skip
    assert [chapter.name for chapter in chapters] == ["answer", "gain", "verdicts", "toy", "evidence"]
    assert [chapters[place].note for place in (0, 1, 4)] == ["So it is.", "Bars are intervals.", "Of lin."]
    cells = grid_of(chapters[2:]).loc["No kernel is better."].tolist()
    here, paper = grid_of(chapters[4:]).loc["No kernel is better."].tolist()
    assert cells == ["holds", "can't be told", "all were tried.", "4 rows, 1-3 seeds each: swb 2 × 128, swb 2 × 512"]
    log, mog = (grid_of(chapters[3:])["− lin's"][name] for name in ("log", "mog"))
    assert 0.05 < float(grid_of(chapters[3:])["p"]["mog"]) < 0.08  # half of it, if it weren't adjusted
    assert here == (f"log is worse. toy (swb, cpu, perplexity): log {log}; mog {mog}, not significant; lin 60.99 (3). "
                    "toy (swb, paper, perplexity): log 90.00 (1).")  # fmt: skip
    assert paper == "46.7 to 46.8 (A. Author 2019)"
    (tmp_path / "verdicts.yaml").write_text(CLAIM.replace("ppl/mog", "ppl/pol"))
    with pytest.raises(ValueError, match="row 'toy/cpu/swb/ppl/pol' has no figures"):
        load_chapters(tmp_path)


def text_of(element):
    return " ".join("".join(element.itertext()).split())


def test_gain_against_words_of_training_text(results, monkeypatch, tmp_path):
    """Corpora named talk-1M, talk-5M and talk; the paper's mixtures beside."""
    (tmp_path / "verdicts.yaml").write_text(CLAIM[: CLAIM.index("  rows")] + CLAIM[CLAIM.index("  evidence") :])
    (tmp_path / "configs" / "table3.yaml").write_text(TABLE)
    gains = {"talk-1M": 0.05, "talk-5M": 0.03, "talk": 0.01}
    shared = {"profile": "medium"}
    records = [record(row, seed, corpus, ppl=math.exp(4.1 + 0.004 * seed - (row == "mog") * gain), **shared)
               for corpus, gain in gains.items() for row in ("lin", "mog") for seed in (1, 2)]  # fmt: skip
    drawing = ElementTree.fromstring(results(records)[1].plot)
    assert {"1 M", "5 M", "24.6 M", "mog", "words of training text"} <= set(map(text_of, drawing.iter(f"{SVG}text")))
    drawn = []
    monkeypatch.setattr(file_pyplot(), "close", drawn.append)
    parts = load_chapters(tmp_path)[3].parts
    [axis] = drawn[0].axes
    [(line, _, [ends])], diamonds = axis.containers, axis.lines[-1]
    assert line.get_xdata() == pytest.approx([1, 5, 24.6], rel=0.1) and axis.get_xscale() == "log"
    assert line.get_ydata() == pytest.approx([100 * math.expm1(-gain) for gain in gains.values()])
    shown = {part.title.partition(",")[0]: dict(zip(part.heads, part.rows[-1]))["− lin's"] for part in parts}
    for corpus, y, ((_, low), (_, high)) in zip(gains, line.get_ydata(), ends.get_segments()):
        figures = [float(figure) for figure in re.findall("[-+][0-9.]+", shown[corpus])]
        assert figures == pytest.approx([y, low, high], abs=0.006)
    assert diamonds.get_xydata().tolist() == [[24.6, pytest.approx(100 * (y / 46.8 - 1))] for y in (103.0, 46.7)]
    assert results([records[0]])[1].plot == ""


def test_a_click_on_a_row_tells_how_it_was_made(results):
    page = ElementTree.fromstring(html(results([*seeds("lin", 61.5, 60.0), record("log", ppl=103.25)])))
    cards = {text_of(row.find("summary")): [text_of(cell) for cell in row.iter("dd")] for row in page.iter("details")}
    assert set(cards) == {"Contents", "lin", "log"} and len(cards["lin"]) == 3
    made = "commit commit-lin-2, date 2026-11-22, torch 2.13.0, processor AMD EPYC, threads 2, gpu None"
    assert made in cards["lin"]
    assert "bash scripts/train_lm.sh swb --kernels log --seed 1" in cards["log"]


def test_page_stands_alone():
    """It needs nothing of elsewhere, is the same each time, and its links lead somewhere."""
    chapters = load_chapters(tables.ROOT / "results")
    page = ElementTree.fromstring(html(chapters))
    ids = [element.get("id") for element in page.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) > len(chapters) and list(page.iter(f"{SVG}svg"))
    for element in page.iter():
        assert element.tag not in ("script", "link", "img", "iframe", "object", "base")
        assert not {"src", "srcset", "action", "data"} & set(element.attrib)
        assert element.get("href", "#").lstrip("#") in ("", *ids)
    assert html(chapters) == html(load_chapters(tables.ROOT / "results"))


def test_escaping(results):
    bad = '<b>a|b*"&$x_1$&lt;~c~'
    shared = {"corpus": "<i>corpus", "profile": '<u>"p"', "settings": {"<script>": "|"}}
    chapters = results([*seeds(bad, 1, 2, **shared), *seeds("lin", 1, 2, **shared)])
    page = ElementTree.fromstring(html(chapters))
    assert not {"b", "i", "u", "s", "script"} & {element.tag for element in page.iter()}
    assert bad in [text_of(cell) for cell in page.iter("summary")]
    rows = [line for line in markdown(chapters).splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1 and len(rows) == 4
    assert report.code("a`<img>``|`") == "``` a`<img>``\\|` ```"


def test_put_into(results):
    results([record("lin", ppl=60.0)])
    both = results([record("log", ppl=99.0)], name="other")
    before = "# Title\r\n\n<!-- toy -->\r\nold\n<!-- /toy -->\nbetween  \n<!-- other -->\n<!-- /other -->\nend"
    once = put_into(before, both)
    assert put_into(once, both) == once
    assert once.startswith("# Title\r\n\n<!-- toy -->\r\nA note.\n\n**swb, --profile cpu**") and "old" not in once
    assert once.index("| lin | ") < once.index("between") < once.index("| log | ")
    for text in ("", "<!-- toy -->\nno end", "text <!-- toy -->\n<!-- /toy -->", "<!-- /toy -->\n<!-- toy -->"):
        assert put_into(text, both[:1]) == text


@pytest.mark.parametrize("option, folder", [
    (["--results", "elsewhere"], "elsewhere"), (["--publish"], "results"), ([], tables.RESULTS),
])  # fmt: skip
def test_program(option, folder, monkeypatch, results, tmp_path):
    """It reads and writes the folder that is given, with --publish the repository's results/, else a user's."""
    chapters = results([record("lin", ppl=60.0)])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    place = tmp_path / folder
    place.mkdir(parents=True)
    (tmp_path / "toy.json").rename(place / "toy.json")
    document = tmp_path / "results.md"
    document.write_text("<!-- toy -->\n<!-- /toy -->\n")
    monkeypatch.setattr(sys, "argv", ["report.sh", *option, "--into", str(document)])
    report.main()
    assert (place / "report.md").read_text() == markdown(chapters)
    assert (place / "report.html").read_text() == html(chapters)
    assert document.read_text() == put_into("<!-- toy -->\n<!-- /toy -->\n", chapters)


SCHEDULE = ("max_update", "total_num_update", "warmup_updates", "lr_scheduler")
PUBLISHED = {name: tables.ROOT / "results" / f"{name}.json" for name in tables.names()}


@pytest.mark.parametrize("name", [name for name, path in PUBLISHED.items() if path.is_file()])
def test_published_records_are_of_today_s_settings(name):
    """Each has one row, a command, a commit of a clean tree, data and versions; the row still has the options that its
    record has, and its profile gives the same arguments of fairseq-train."""
    records = json.loads(PUBLISHED[name].read_text(encoding="utf-8"))
    assert len(frame(records)) >= len(records) > 0
    table = tables.load_table(name)
    rows = {} if table.command else {row.name: row for row in table.rows}
    for run, made in ((record["run"], record["made"]) for record in records):
        assert re.fullmatch(r"[0-9a-f]{12}(, [0-9a-f]{12})*", made["commit"])
        assert made["argv"][0] == (table.command or "bash").split()[0]
        assert made["data"] and made["date"] and made["versions"] and made["machine"]["processor"]
        known = tables.settings_of(shlex.split(made.get("arguments", "")))
        kind = "mt" if known.get("task") == "translation" else "lm"
        if known:
            today = training_settings(kind, run["profile"], run["settings"])
            assert {**known, "seed": ""} == {**today, "seed": ""}, run
        if run["row"] in rows:
            corpus = SimpleNamespace(kind=kind, name=run["corpus"])
            row = grid.row_options(rows[run["row"]], corpus, run["profile"], grid.SEARCHED)
            settings = tables.in_present_words(run["settings"])
            further = dict(settings.items() - row.items())  # the schedule after --
            assert row.items() <= settings.items() and ("max_update" in further or further.keys() <= {"log_interval"})
            named = {*SCHEDULE, "lr", "epsilon", "output_bias", "save_interval_updates", "log_interval"}
            assert further.keys() <= named, run
