"""The report against figures worked out by hand; where its numbers come from; the page by itself; mistakes."""

import errno
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fairseq_kernels.analysis import measurement
from fairseq_kernels.analysis.plotting import end_labels, file_pyplot
from fairseq_kernels.experiments import report, report_figures, summaries, tables
from fairseq_kernels.experiments.chapters import Chapter, in_order
from fairseq_kernels.experiments.report import html, load_chapters, markdown, put_into

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


def figure(name, value, seed=1, metric="ppl", split="test", corpus="swb", profile="cpu", paper=None, own=(), **origin):
    """``own``: further fields of the object; ``origin``: of its provenance."""
    origin = {
        "commit": f"commit-{name}-{seed}", "processor": "AMD EPYC", "threads": 2, "gpu": None, "python": "3.11.7",
        "versions": {"torch": "2.13.0", "numpy": "2.4.6"}, "date": f"2026-11-2{seed}", "data": f"data-{corpus}",
        "seconds": 60.0 * seed, "config": f"--kernels {name}", **origin,
    }  # fmt: skip
    command = f"bash scripts/train_lm.sh {corpus} --kernels {name} --seed {seed}"
    shared = {"name": name, "corpus": corpus, "split": split, "metric": metric, "value": value, "paper": paper}
    return {**shared, "profile": profile, "seed": seed, "command": command, **dict(own), "provenance": origin}


def seeds(name, *values, **further):
    return [figure(name, value, seed, **further) for seed, value in enumerate(values, 1)]


def curve(name, seed, start, **further):
    origin = {"config": f"--kernels {name}", "data": "data-swb"}
    points = {"10": start, "20": 120.0, "40": 75.5, "50": 70.0}
    run = {"name": name, "corpus": "swb", "profile": "cpu", "seed": seed}
    return {**run, **origin, "valid": {"ppl": points}, **further}


CURVES = [curve("log", 1, 250.0), curve("lin", 1, 160.0), curve("lin", 2, 140.0)]


@pytest.fixture
def results(monkeypatch, tmp_path):
    """Writes results of tables, and loads the report's chapters."""
    configs = tmp_path / "configs"
    configs.mkdir()
    for name in ("toy", "other"):
        (configs / f"{name}.yaml").write_text(TABLE)
    monkeypatch.setattr(tables, "TABLES", configs)
    monkeypatch.setattr(summaries, "history", lambda: ())

    def write(figures, curves=(), name="toy"):
        (tmp_path / "curves").mkdir(exist_ok=True)
        (tmp_path / f"{name}.json").write_text(json.dumps(figures))
        (tmp_path / "curves" / f"{name}.json").write_text(json.dumps(curves))
        return load_chapters(tmp_path)

    return write


def rows_of(text):
    """The cells of a Markdown text's tables."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells if set("".join(row)) != {"-"}]


def values_of(chapters, head):
    """A column of the first table, by row."""
    [part, *_] = chapters[0].parts
    return dict(zip(part.tables[0][""], map(str, part.tables[0][head])))


# numbers


def test_the_main_table(results):
    """Rows in the table's order, intervals from the pooled deviation 1.7 %, lin's, with 2 degrees of freedom."""
    figures = [figure("extra", 70.04), *seeds("lin", 60.0, 62.0, 61.0, paper=46.8), *seeds("lin", 1.0, split="valid"),
               figure("log", 120.26, paper=103.0, seconds=90), figure("unigram", 271.6, config="")]  # fmt: skip
    chapters = results(figures)
    text = markdown(chapters)
    assert rows_of(text) == [
        ["", "perplexity", "paper, its own data", "− lin's", "p", "minutes", "options"],
        ["unigram", "271.6 (1)", "", "+345.3 %", "", "1.0", ""],
        [
            "log",
            r"120.3 \[112.1, 129.0\] (1)",
            "103.0",
            r"+97.2 % \[+81.7, +113.9\]",
            "0.002",
            "1.5",
            "`--kernels log`",
        ],
        ["lin", r"61.0 \[58.6, 63.5\] (3)", "46.8", "", "", "2.0", "`--kernels lin`"],
        ["extra", r"70.0 \[65.3, 75.2\] (1)", "", r"+14.8 % \[+5.8, +24.6\]", "0.018", "1.0", "`--kernels extra`"],
    ]
    assert r"- Not run: lin\*, mog." in text.splitlines() and "A note." in text.splitlines()
    assert "The 95 % interval of one seed comes from the other rows' spread." in text
    assert r"## Kernels \<one by one\> (A. Author 2019, Table 1)" in text.splitlines()
    how = "t test with the pooled standard deviation 1.7 %, of logarithms, 2 degrees of freedom"
    sentence = f"- perplexity ({how}; Holm over 2 comparisons, level 0.05): above lin: log, extra; not tested: unigram."
    assert all(len(line) <= 120 for line in text.splitlines()) and sentence in text.replace("\n  ", " ").splitlines()


def test_holm_counts_all_of_a_profile_s_comparisons(results):
    """t = 3.5 / sqrt(2) with 2 degrees of freedom: p = 0.132, doubled as there are two."""
    lin, mog = ([math.exp(value / 100) for value in pair] for pair in ((60, 62), (63.5, 65.5)))
    figures = [*seeds("lin", *lin), *seeds("mog", *mog), figure("lin", 1.0, profile="paper"),
               *seeds("lin", *lin, corpus="ptb"), *seeds("mog", *mog, corpus="ptb")]  # fmt: skip
    chapters = results(figures)
    assert values_of(chapters, "p")["mog"] == "0.264"
    notes = [part.notes[-1] for part in chapters[0].parts]
    assert "Holm over 2 comparisons" in notes[0] and "no difference from lin shown: mog" in notes[0]
    values = [figure(name, 9.0) for name in ("lin", "mog")]
    assert (
        results(values)[0].parts[0].notes[-1]
        == "perplexity: differences from lin were not tested, as no row has two seeds that differ."
    )


def test_word_similarity_is_tested_too(results):
    """Though it is of no split of the text."""
    values = (("lin", 1, 0.1), ("lin", 2, 0.11), ("mog", 1, 0.2), ("mog", 2, 0.21))
    figures = [figure(name, value, metric="simlex", split="SimLex-999", seed=seed) for name, seed, value in values]
    [part] = results(figures)[0].parts
    assert "word similarity (SimLex-999) (t test" in part.notes[-1] and "above lin: mog" in part.notes[-1]
    assert not part.pictures  # a correlation over another says nothing


def test_costs_and_learned_values(results):
    """Of newer figures; the last --lr counts, and a list of rates has no mean."""
    costs = {"parameters": 1896832, "words_per_second": 4052.4, "train_ppl": 41.26}
    figures = [
        figure("pol", 59.0, seed, own={**costs, "learned": {"pol.alpha": alpha}}, seconds=None, arguments=rates)
        for seed, alpha, rates in ((1, 0.3, "--lr 0.002 --arch x --lr 5e-3"), (2, 0.4, "--lr 0.005"))
    ]
    header, row = rows_of(markdown(results(figures)))
    assert header[2:] == ["parameters", "words/s", "learning rate", "training perplexity", "learned", "options"]
    assert row[2:] == ["1,896,832", "4,052", "0.005", "41.3", "pol.alpha 0.35", "`--kernels pol`"]
    assert "learning rate" not in rows_of(markdown(results([figure("pol", 59.0, arguments="--lr 0.01,0.005")])))[0]


def test_bleu_is_compared_where_the_sentences_counts_are_there(results, tmp_path):
    """Seven words each, of which one is wrong in log's, the fifth."""
    counts = {"lin": "7 7 7 6 5 4", "log": "7 7 6 4 2 1"}
    shared = {"corpus": "swb", "profile": "cpu", "seed": 1, "data": "data-swb", "split": "test"}
    sentences = [{**shared, "name": name, "config": f"--kernels {name}", "sentences": [line] * 40}
                 for name, line in counts.items()]  # fmt: skip
    (tmp_path / "sentences").mkdir()
    (tmp_path / "sentences" / "toy.json").write_text(json.dumps(sentences))
    figures = [figure(name, value, metric="bleu") for name, value in (("lin", 99.9), ("log", 48.9), ("mog", 34.0))]
    chapters = results(figures)
    assert values_of(chapters, "p") == {"lin": "", "log": "< 0.001", "mog": ""}
    assert values_of(chapters, "− lin's")["log"] == "-51.0 [-51.1, -51.1]"
    [note] = [note for note in chapters[0].parts[0].notes if "bootstrap" in note]
    assert "Holm over 1 comparison," in note and note.endswith("below lin: log; not tested: mog.")
    two_seeds = results([*figures, figure("mog", 34.4, metric="bleu", seed=2)])
    assert values_of(two_seeds, "p") == {"lin": "", "log": "0.007", "mog": "0.007"}  # the t test says more
    assert not any("bootstrap" in note for note in two_seeds[0].parts[0].notes)
    with_lin = results([*figures, figure("lin", 99.5, metric="bleu", seed=2)])  # no seed of lin's is log's only one
    assert not any("bootstrap" in note for note in with_lin[0].parts[0].notes)
    (tmp_path / "sentences" / "toy.json").write_text(json.dumps(sentences[1:]))
    not_tested = " ".join(markdown(results(figures)).split())
    assert "not tested, as no row has two seeds that differ, and lin's translations, or all others, are" in not_tested


def test_models_that_diverged(results):
    chapters = results([figure("lin", math.inf), figure("lin", 60.0, seed=2), *seeds("log", 99.0, 98.0)])
    assert values_of(chapters, "perplexity")["lin"] == "nan (2)"
    assert "nan (2)" in html(chapters)


def test_rows_with_further_options_have_lines_of_their_own(results):
    """Never averaged with the row itself, which keeps its name; in curves neither."""
    figures = [figure("lin", 50.0, config="--kernels lin --lr 1"), *seeds("lin", 60.0, 62.0)]
    chapters = results(figures, [curve("lin", 1, 99.0, config="--kernels lin --lr 1")])
    assert list(values_of(chapters, "options").items()) == [
        ("lin", "--kernels lin"), ("lin (--kernels lin --lr 1)", "--kernels lin --lr 1"),
    ]  # fmt: skip
    assert chapters[0].parts[0].pictures[-1].caption.endswith(": lin (--kernels lin --lr 1)")


def test_one_more_training_with_other_options_is_no_baseline(results):
    """Most rows were run with options after --: one more of lin's, or a row with others alone, doesn't pass for them;
    one with an option of its own layer, too, does."""
    usual, other = "--kernels {} --max-epoch 3", "--kernels {} --lr 1 --max-epoch 3"
    runs = (("lin", usual, 60.0), ("lin", other, 50.0), ("log", usual + " --epsilon 1", 70.0), ("mog", usual, 65.0),
            ("lin*", "--kernels lin --kernel-params lin.scale=learned --lr 1", 64.0))  # fmt: skip
    figures = [figure(name, value, config=config.format(name)) for name, config, value in runs]
    chapters = results(sorted(figures, key=lambda each: each["provenance"]["config"]))
    assert values_of(chapters, "− lin's") == {
        "log": "+16.7 %", "lin": "", "mog": "+8.3 %", "lin (--kernels lin --lr 1 --max-epoch 3)": "-16.7 %",
        "lin* (--kernels lin --kernel-params lin.scale=learned --lr 1)": "+6.7 %",
    }  # fmt: skip


def test_a_searched_row_s_name_is_that_of_the_newest_search(results, monkeypatch, tmp_path):
    with (tmp_path / "configs" / "toy.yaml").open("a") as table:
        table.write("  - {name: log-searched, searched: log}\n")
    monkeypatch.setattr(summaries, "SEARCHED", tmp_path / "searched.yaml")
    old, new = (f"--kernels log --kernel-params log.p={p}" for p in (16, 8))
    figures = [figure("log-searched", 80.0, config=old), figure("log-searched", 70.0, config=new)]
    for searched, shown in (("8", "70.0 (1)"), ("16", "80.0 (1)")):
        (tmp_path / "searched.yaml").write_text(f"swb/cpu/log: {{kernel_params: log.p={searched}}}\n")
        values = values_of(results(figures), "perplexity")
        assert values["log-searched"] == shown and len(values) == 2


def test_parts_and_columns(results):
    """Profiles and corpora apart, language models first, different data under one name apart; what was never measured
    on test with its split; of the mixture weights what the paper has."""
    measured = (("pi_variance_pp2", "valid"), ("top10_error", "valid"), ("ppl", "valid"), ("ppl", "test"),
                ("simlex", "SimLex-999"), ("pi_variance", "valid"))  # fmt: skip
    figures = [figure("lin", 0.25, metric=metric, split=split) for metric, split in measured]
    figures += [figure("log", 36.04, metric=metric, corpus="m30k") for metric in ("sacrebleu", "bleu")]
    figures += [figure("lin", 47.0, profile="paper", data="a"), figure("lin", 48.0, profile="paper", data="b")]
    [chapter] = results(figures)
    assert [part.title for part in chapter.parts] == [
        "swb data-swb, --profile cpu", "m30k, --profile cpu", "swb a, --profile paper", "swb b, --profile paper",
    ]  # fmt: skip
    assert list(chapter.parts[0].tables[0]) == [
        "", "perplexity", "top-10 error (valid)", "word similarity (SimLex-999)", "variance of weights, pp² (valid)",
        "minutes", "options",
    ]  # fmt: skip
    assert list(chapter.parts[1].tables[0])[1:3] == ["BLEU4", "sacreBLEU"]
    assert [str(value) for part in chapter.parts[2:] for value in part.tables[0]["perplexity"]] == [
        "47.0 (1)",
        "48.0 (1)",
    ]


def test_mixture_weights(results):
    figures = [figure("log", 100.0), figure("lin", 60.0)]
    for seed, weight in ((1, 0.25), (2, 0.35)):
        for metric, value in (("lin1", weight), ("log", 1 - weight), ("variance", 0.1), ("variance_pp2", 4.74)):
            figures.append(figure("lin", value, seed, metric=f"pi_{metric}", split="valid"))
    [chapter] = results(figures)
    table, picture = chapter.parts[0].tables[1], chapter.parts[0].pictures[-1]
    assert [str(cell) for cell in table.values[0]] == ["lin", "lin1 0.30, log 0.70", "4.7 (2)", "425.00"]  # 25² and 15²
    assert picture.caption == "Mean mixture weights" and "lin" in picture.svg("x")
    figures = [figure("lin", 0.1, metric=f"pi_lin{number}", split="valid") for number in range(1, 11)]
    [_, table], picture = results(figures)[0].parts[0].tables, results(figures)[0].parts[0].pictures[-1]
    for order in (table.values[0][1], picture.svg("x")):
        assert order.index("lin2") < order.index("lin9") < order.index("lin10")


def test_how_it_was_made(results):
    unigram = {**figure("unigram", 271.6, config="unigram"), "command": "unigram_perplexities('swb')"}  # no training
    valid = {**figure("lin", 57.0, 2, split="valid"), "command": "bash scripts/evaluate_lm.sh --gen-subset valid"}
    text = markdown(results([unigram, valid, figure("lin", 60.0, 2, gpu="NVIDIA H200", threads=1)]))
    assert (
        "Made at commit commit-unigram-1, commit-lin-2, 2026-11-21 to 2026-11-22; data swb data-swb; torch 2.13.0, "
        "numpy 2.4.6, Python 3.11.7; AMD EPYC, threads 2, 1, GPU none, NVIDIA H200; seeds 1, 2. Command of the first "
        "row: ``` bash scripts/train_lm.sh swb --kernels lin --seed 2 ``` "
    ) in " ".join([*text.split(), ""])
    with (tables.TABLES / "toy.yaml").open("a") as table:
        table.write("split: valid\n")
    assert "--gen-subset valid" in markdown(results([figure("lin", 60.0), valid]))


def test_rows_from_elsewhere_are_marked(results, monkeypatch):
    monkeypatch.setattr(summaries, "history", lambda: ("abc123", "def456"))
    figures = [
        figure("lin", 60.0, commit="abc1", analysis_commit="def4"),
        figure("log", 99.0, commit="def456+"),
        figure("mog", 61.0, commit="fff", analysis_commit="eee"),
    ]
    chapters = results(figures)
    assert list(values_of(chapters, "options")) == ["log †", "lin", "mog †"]
    sentence = "† commit not on main, or files had changed since: log (def456+), mog (fff eee)."
    assert chapters[0].parts[0].notes[-1] == sentence


def first_commit(folder):
    git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *command], check=True)


def test_commits_of_the_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(summaries, "history", summaries.history.__wrapped__)  # without its cache
    assert not summaries.off_main("abc")  # where there is no git nothing is known
    first_commit(tmp_path)
    [commit] = summaries.history()
    assert [summaries.off_main(name) for name in (commit[:12], commit[:12] + "+", "abc")] == [False, True, True]


def test_new_files_count_as_changes_where_they_are_used(monkeypatch, tmp_path):
    first_commit(tmp_path)
    monkeypatch.setattr(measurement, "__file__", str(tmp_path / "fairseq_kernels" / "analysis" / "measurement.py"))
    (tmp_path / "notes.txt").touch()
    assert not measurement.commit().endswith("+")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "searched.yaml").touch()
    assert not measurement.commit().endswith("+")
    (tmp_path / "configs" / "mine.yaml").touch()
    assert measurement.commit().endswith("+")


def test_the_papers_order():
    sources = ["beyond the papers", "Miao et al. 2019, Tables 2 and 5", "Gao et al. 2019, section 4.4: above 50 %"]
    sources += ["de Brebisson and Vincent 2016, Table 5", "Gao et al. 2019, Table 10", "Gao et al. 2019, Table 2"]
    chapters = [Chapter("", "", source, "", []) for source in sources]
    assert [sources.index(chapter.source) for chapter in in_order(chapters)] == [5, 4, 2, 3, 1, 0]


CLAIM = """
- claim: No kernel is better.
  source: A. Author 2019
  paper: 46.7 to 46.8
  rows: [toy/cpu/swb/ppl/log, toy/cpu/swb/ppl/mog, toy/cpu/swb/ppl/lin, toy/paper/swb/ppl/log]
  evidence: log is worse.
  verdict: holds
  reason: all were tried.
"""


def test_verdicts(results, tmp_path):
    figures = [*seeds("lin", 60.0, 62.0, 61.0), figure("log", 120.0), figure("mog", 61.5)]
    figures.append(figure("log", 90.0, profile="paper"))
    (tmp_path / "verdicts.yaml").write_text(CLAIM)
    chapters = results(figures)
    assert [chapter.name for chapter in chapters] == ["verdicts", "toy"]
    assert chapters[0].parts[0].tables[0].values.tolist() == [[
        "No kernel is better.", "holds", "all were tried.",
        "log is worse. toy (swb, cpu, perplexity): log +96.7 % [+81.3, +113.4]; mog +0.8 % [-7.1, +9.4], not "
        "significant; lin 61.0 [58.6, 63.5] (3). toy (swb, paper, perplexity): log 90.0 (1).",
        "46.7 to 46.8 (A. Author 2019)",
    ]]  # fmt: skip
    for new, problem in {
        ("holds", "perhaps"): "'perhaps' is not known; choose from holds, doesn't, can't be told here",
        ("  reason: all were tried.\n", ""): "'No kernel is better.' has no text for reason",
        ("ppl/mog", "ppl/pol"): "row 'toy/cpu/swb/ppl/pol' has no figures",
        ("toy/cpu/swb/ppl/mog", "mog"): "row 'mog' has no figures",
        (CLAIM, "claim: none"): "no list of claims",
        (CLAIM, "- ["): "expected the node content",
    }.items():
        (tmp_path / "verdicts.yaml").write_text(CLAIM.replace(*new))
        with pytest.raises(ValueError, match=re.escape(problem)):
            load_chapters(tmp_path)


def test_close_words_and_the_weight_of_lin(results, tmp_path):
    compared = {"mean": 0.012, "low": -0.001, "high": 0.025}
    closeness = [
        figure(name, value, metric=f"cluster_{metric}", own={"difference": difference, "baseline": "seed 1"})
        for name, difference in (("lin", None), ("mos", compared))
        for metric, value in (("accuracy", 0.7094), ("log_likelihood", -0.75))
    ]
    by_rank = [{"of": "1-10", "mean": 0.25}, {"of": "11-20", "mean": None}]
    details = {
        "above_half": 0.24,
        "by_position": [{"of": "0", "mean": 0.15}, {"of": "2", "mean": 0.3}],
        "by_rank": by_rank,
    }
    (tables.TABLES / "table3.yaml").write_text(TABLE)
    (tmp_path / "table4.json").write_text(json.dumps(closeness))
    weight = figure("mix1", 0.36, metric="linear_weight", own={"details": details})
    (tmp_path / "linear_weight.json").write_text(json.dumps([weight]))
    results([figure("lin", 60.0)])
    clusters, weights = (chapter.parts[0].tables[0] for chapter in load_chapters(tmp_path, ["table4", "linear_weight"]))
    assert [list(map(str, row)) for row in clusters.values] == [
        ["lin", "1", "seed 1", "70.9", "", "-0.750", ""],
        ["mos", "1", "seed 1", "70.9", "+1.20 [-0.10, +2.50]", "-0.750", "+0.0120 [-0.0010, +0.0250]"],
    ]
    assert list(weights) == ["", "seed", "mean", "above 0.5", "at word 0", "rank 1-10", "rank 11-20"]
    assert list(map(str, weights.values[0])) == ["mix1", "1", "0.360", "24.0 %", "0.15", "0.25", ""]


def test_training_speed(results, tmp_path):
    shared = {"speed_ratio": 1.0, "mebibytes": 69.0}
    speeds = (("stock", "12800", 1917), ("lin", "12800", 4052), ("lin", "30000", 1946))
    rows = [{"row": row, "words": words, "words_per_second": speed, **shared} for row, words, speed in speeds]
    made = {"commit": "abc", "date": "2026-11-21", "processor": "AMD EPYC", "threads": 2}
    record = {"command": "benchmark", "settings": {"batch_size": 32, "length": 35}, "made": made, "rows": rows}
    path = tmp_path / "training_speed.json"
    path.write_text(json.dumps([record]))
    [_, chapter] = results([figure("lin", 60.0)])
    assert chapter.parts[0].tables[0]["words/s"].tolist() == ["1917", "4052", "1946"]
    assert "Speed of training" in html([chapter]) and len(chapter.parts[0].pictures) == 2
    path.write_text(json.dumps([{**record, "rows": [{}]}]))
    with pytest.raises(ValueError, match="a record lacks"):
        load_chapters(tmp_path)


# the page


def page_of(chapters):
    return ElementTree.fromstring(html(chapters))


def text_of(element):
    return " ".join("".join(element.itertext()).split())


def test_each_number_on_the_page_tells_how_it_was_made(results):
    figures = [figure("lin", 61.5, 2, gpu="NVIDIA H200"), figure("lin", 60.0, 1, paper=46.8), figure("log", 103.25)]
    figures.append(figure("log", 36.0, metric="sacrebleu", corpus="m30k", own={"signature": "nrefs:1|case:mixed"}))
    cells = {}
    for row in page_of(results(figures)).iter("tr"):
        for cell in row.iter("td"):
            if cell.find("details") is not None:
                cards = [dict(zip(map(text_of, dl[::2]), map(text_of, dl[1::2]))) for dl in cell.iter("dl")]
                name = text_of(row.find("th/details/summary"))
                cells[name, text_of(cell.find("details/summary"))] = cards
                for card in cards:
                    assert card["commit"] == f"commit-{name}-{card['seed']}" and card["config"] == f"--kernels {name}"
                    assert card["versions"] == "torch 2.13.0, numpy 2.4.6" and card["processor"] == "AMD EPYC"
                    assert card["seconds"] == str(60.0 * int(card["seed"])) and "--kernels" in card["command"]
    assert [name for name, _ in cells] == ["log", "lin", "log"]
    [cards] = [cards for (name, _), cards in cells.items() if name == "lin"]
    assert [card["value"] for card in cards] == ["60.0", "61.5"] and {card["measured"] for card in cards} == {
        "ppl of lin on swb, test"
    }
    assert [card["gpu"] for card in cards] == ["none", "NVIDIA H200"]
    assert cells["log", "36.0 (1)"][0]["signature"] == "nrefs:1|case:mixed"


def pictures_of(page):
    return {text_of(drawing.find("figcaption")): drawing.find(f"{SVG}svg") for drawing in page.iter("figure")}


def paths_of(drawing, count):
    """Open lines of so many points."""
    paths = [re.findall(r"[ML] (\S+) (\S+)", path.get("d")) for path in drawing.iter(f"{SVG}path")
             if not path.get("d").rstrip().endswith("z")]  # fmt: skip
    return [[tuple(map(float, point)) for point in path] for path in paths if len(path) == count]


def assert_affine(drawn, wanted):
    """What is drawn is wanted, moved and scaled."""
    scale = (drawn[-1] - drawn[0]) / (wanted[-1] - wanted[0])
    assert drawn == pytest.approx([drawn[0] + scale * (value - wanted[0]) for value in wanted], abs=1e-3)


def test_curves(results):
    """Those of the curves' file; each with its name at its end."""
    figures = [figure("log", 71.0), *seeds("lin", 70.0, 72.0)]
    [*_, (caption, drawing)] = pictures_of(page_of(results(figures, [*CURVES, curve("gone", 1, 9.0)]))).items()
    assert caption == "Validation perplexity over updates: lin, log"
    lines, expected = paths_of(drawing, 4), [*CURVES[1:], CURVES[0]]
    assert len(lines) == 3
    for line, run in zip(lines, expected):  # the baseline first
        assert_affine([x for x, _ in line], [10, 20, 40, 50])
        assert_affine([y for _, y in line], [math.log(value) for value in run["valid"]["ppl"].values()])
    assert {"lin", "log", "update"} <= {text_of(text) for text in drawing.iter(f"{SVG}text")}


def test_labels_of_lines_are_apart():
    figure, axis = file_pyplot().subplots()
    lines = {f"k{number}": axis.plot([0, 1], [0, end])[0] for number, end in enumerate((5.0, 1.0, 1.0, 0.99))}
    end_labels(axis, lines, apart=0.1)
    heights = {text.get_text(): text.get_position()[1] for text in axis.texts}
    assert list(heights) == ["k3", "k1", "k2", "k0"]
    assert all(text.get_color() == lines[text.get_text()].get_color() for text in axis.texts)
    assert heights["k1"] - heights["k3"] == pytest.approx(0.1) and heights["k0"] == pytest.approx(
        1 / 1.1 + 0.05 / 1.1, abs=0.01
    )


def test_few_curves_a_plot(results):
    names = [f"k{number}" for number in range(9)]
    figures = [figure(name, 70.0) for name in (*names, "lin")]
    pictures = results(figures, [curve(name, 1, 99.0) for name in (*names, "lin")])[0].parts[0].pictures
    groups = [picture.caption.split(": ")[1].split(", ") for picture in pictures if "updates" in picture.caption]
    assert [group[0] for group in groups] == ["lin"] * 3 and [len(group) for group in groups] == [4, 4, 4]


def test_points(results):
    """Over lin's 61; the paper's over its own; what lies outside is written."""
    figures = [
        *seeds("log", 100.0, 103.0, paper=103.0),
        *seeds("lin", 60.0, 62.0, paper=46.8),
        figure("mog", 64.0, paper=46.7),
    ]
    [(caption, drawing)] = pictures_of(page_of(results(figures))).items()
    assert caption == "perplexity over lin's, with 95 % intervals"
    texts = [text_of(text) for text in drawing.iter(f"{SVG}text")]
    assert {"1.66 →", "2.20 →", "log", "lin", "mog", "over lin's"} <= set(texts)


def test_page_stands_alone(results):
    figures = [*seeds("lin", 1, 2), *seeds("log", 1, 2)]
    results(figures, CURVES)
    chapters = results(
        [{**each, "profile": profile} for each in figures for profile in ("cpu", "paper")], CURVES, "other"
    )
    text = html(chapters)
    page = ElementTree.fromstring(text)
    ids = [element.get("id") for element in page.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) > 100
    for element in page.iter():
        assert element.tag not in ("script", "link", "img", "iframe", "object", "base")
        assert not {"src", "srcset", "action", "data"} & set(element.attrib)
        for name in ("href", f"{XLINK}href"):
            assert element.get(name, "#").lstrip("#") in ("", *ids)
    assert set(re.findall(r"url\((.)", text)) == {"#"} and "@import" not in text
    assert {reference.strip("#)") for reference in re.findall(r"#[\w.-]+\)", text)} <= set(ids)
    assert "color-scheme: light dark" in text and report_figures.INK not in text and "currentColor" in text
    assert html(chapters) == text


def test_escaping(results):
    bad = '<b>a|b*"&$x_1$&lt;~c~'
    shared = {"corpus": "<i>corpus", "profile": '<u>"p"', "config": "<script>|", "commit": "<s>"}
    figures = [*seeds(bad, 1, 2, **shared), *seeds("lin", 1, 2, **shared)]
    curves = [curve(bad, 1, 9.0, **{**shared, "data": "data-<i>corpus"})]
    chapters = results(figures, curves)
    page = page_of(chapters)
    assert not {"b", "i", "u", "s", "script"} & {element.tag for element in page.iter()}
    assert bad in [text_of(cell) for cell in page.iter("summary")]
    for drawing in pictures_of(page).values():
        assert bad in [text_of(text) for text in drawing.iter(f"{SVG}text")]
    text = markdown(chapters)
    [header, lin, row] = rows_of(text)
    assert len(header) == len(row) and row[0] == r'\<b\>a\|b\*"&$x\_1$\&lt;\~c\~' and row[-1] == r"`<script>\|`"
    assert r'**\<i\>corpus, --profile \<u\>"p"**' in text.splitlines()


# the program


def test_put_into(results):
    chapters = results([figure("lin", 60.0)])
    both = results([figure("log", 99.0)], name="other")
    before = "# Title\r\n\n<!-- toy -->\r\nold\n<!-- /toy -->\nbetween  \n<!-- other -->\n<!-- /other -->\nend"
    once, unmarked = put_into(before, both)
    assert unmarked == [] and put_into(once, both) == (once, [])
    assert once.startswith("# Title\r\n\n<!-- toy -->\r\nA note.\n\n**swb, --profile cpu**") and "old" not in once
    assert "```\n<!-- /toy -->\nbetween  \n<!-- other -->\n" in once and once.endswith("```\n<!-- /other -->\nend")
    assert once.index("| lin | ") < once.index("between") < once.index("| log | ")
    assert put_into(before, chapters)[0].endswith("between  \n<!-- other -->\n<!-- /other -->\nend")
    for text in ("", "<!-- toy -->\nno end", "text <!-- toy -->\n<!-- /toy -->", "<!-- /toy -->\n<!-- toy -->"):
        assert put_into(text, chapters) == (text, ["toy"])


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["report.sh", *map(str, arguments)])
    report.main()


def test_program(monkeypatch, capsys, results, tmp_path):
    results([figure("lin", 60.0)])
    chapters = results([figure("log", 99.0)], name="other")
    document = tmp_path / "results.md"
    document.write_text("<!-- toy -->\n<!-- /toy -->\n")
    run(monkeypatch, "--results", tmp_path, "--into", document)
    assert (tmp_path / "report.md").read_text() == markdown(chapters)
    assert (tmp_path / "report.html").read_text() == html(chapters)
    assert document.read_text() == put_into("<!-- toy -->\n<!-- /toy -->\n", chapters)[0]
    printed = capsys.readouterr().out.splitlines()
    assert printed[:3] == [str(tmp_path / name) for name in ("report.md", "report.html", "results.md")]
    assert len(printed) == 4 and "results.md has no lines" in printed[3] and printed[3].endswith("for other")
    chosen = ("--tables", "other", "--markdown", tmp_path / "new" / "a.md", "--html", tmp_path / "new" / "a.html")
    run(monkeypatch, "--results", tmp_path, *chosen)
    assert (tmp_path / "new" / "a.md").read_text() == markdown(chapters[:1])
    assert (tmp_path / "new" / "a.html").is_file() and not list(tmp_path.rglob("*.part"))


def test_a_user_s_results_by_default(monkeypatch, results, tmp_path):
    results([figure("lin", 60.0)])
    own = tmp_path / "checkpoints" / "results"
    own.mkdir(parents=True)
    (tmp_path / "toy.json").rename(own / "toy.json")
    monkeypatch.chdir(tmp_path)
    run(monkeypatch)
    assert {path.name for path in own.iterdir()} >= {"report.md", "report.html"}
    monkeypatch.setattr(report.tables, "ROOT", tmp_path)
    own.rename(tmp_path / "results")
    run(monkeypatch, "--publish", "--html", tmp_path / "a.html")
    assert (tmp_path / "a.html").is_file()


def test_a_full_disk_leaves_the_older_report(monkeypatch, capsys, results, tmp_path):
    results([figure("lin", 60.0)])
    run(monkeypatch, "--results", tmp_path)
    before = (tmp_path / "report.md").read_text()
    results([figure("log", 99.0)])

    def full(path, content):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(SystemExit):
        run(monkeypatch, "--results", tmp_path)
    assert f"{tmp_path}/report.md: No space left on device" in capsys.readouterr().err
    assert (tmp_path / "report.md").read_text() == before and not list(tmp_path.rglob("*.part"))


def without(name, **entry):
    return {key: value for key, value in {**figure("lin", 60.0), **entry}.items() if key != name}


FILES = {
    "toy.json": {
        "is damaged": "[{",
        "no list": "{}",
        "object 1 has no 'value'": json.dumps([without("value")]),
        "object 2 has no 'value'": json.dumps([without(""), without("", value="high")]),
        "object 1 has no 'config'": json.dumps([without("", provenance={})]),
    },
    "curves/toy.json": {
        "no 'corpus'": json.dumps([{"name": "lin"}]),
        "by update": json.dumps([curve("lin", 1, 9.0, valid={"ppl": {"first": 60.0}})]),
        "object 2": json.dumps([CURVES[0], curve("lin", 1, 9.0, valid={"ppl": [0.5]})]),
    },
    "sentences/toy.json": {
        "no 'split'": json.dumps([CURVES[0]]),
        "object 1 has no six numbers": json.dumps([{**CURVES[0], "split": "test"}]),
        "object 2 has no six numbers": json.dumps([{**CURVES[0], "split": "test", "sentences": sentences}
                                                   for sentences in (["1 1 1 0 0 0"], ["1 1 1 0 0"])]),
    },
}


@pytest.mark.parametrize("name, problem", [(name, problem) for name, problems in FILES.items() for problem in problems])
def test_wrong_files(name, problem, monkeypatch, results, tmp_path):
    results([figure("lin", 60.0)])
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(FILES[name][problem])
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--results", tmp_path)
    assert str(tmp_path / name) in ended.value.code and problem in ended.value.code and "\n" not in ended.value.code
    assert not (tmp_path / "report.md").exists()


def test_other_mistakes(monkeypatch, capsys, results, tmp_path):
    results([figure("lin", 60.0)])
    results([], name="other")
    unmarked, binary = tmp_path / "plain.md", tmp_path / "binary.md"
    unmarked.write_text("# Title\n")
    binary.write_bytes(b"\xff\xfe")
    for arguments, parts in {
        ("--results", tmp_path / "none"): ["none", "no results", "table1.sh"],
        ("--results", tmp_path, "--tables", "other"): ["other.json", "no results", "other.sh"],
        ("--results", tmp_path, "--tables", "table9"): ["'table9'", "other toy"],
        ("--results", tmp_path, "--into", tmp_path / "none.md"): ["none.md", "No such file"],
        ("--results", tmp_path, "--into", unmarked): ["plain.md has no lines <!-- toy -->"],
        ("--results", tmp_path, "--into", binary): ["binary.md is no text in UTF-8"],
        ("--results", tmp_path, "--html", tmp_path / "toy.json" / "a.html"): ["toy.json"],
    }.items():
        with pytest.raises(SystemExit) as ended:
            run(monkeypatch, *arguments)
        shown = capsys.readouterr().err.strip().splitlines()[-1] if ended.value.code == 2 else ended.value.code
        assert all(part in shown for part in parts) and "\n" not in shown, shown
