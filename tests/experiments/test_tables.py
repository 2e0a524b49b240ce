"""What tables, grids and profiles become before anything is trained: rows, settings, folders, options of commands."""

import json
import os
import re
import shutil
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from omegaconf.errors import OmegaConfBaseException

from fairseq_kernels.analysis import linear_weight
from fairseq_kernels.experiments import cli, grid, mixtures, tables
from fairseq_kernels.experiments.corpus import Corpus
from fairseq_kernels.experiments.profiles import training_settings
from fairseq_kernels.experiments.run import Run, training
from fairseq_kernels.experiments.tables import load_table, names, publish, settings_of, words_of
from fairseq_kernels.kernels.spec import build_kernels, parse_kernels


def planned(table, *arguments):
    """The runs of a table's command."""
    args = cli.parse([table, *map(str, arguments)])
    return cli.planned(load_table(table), args)


@pytest.mark.parametrize("name", names())
def test_tables(name):
    """All load, and their kernels exist."""
    for row in load_table(name).rows:
        options = row.settings()
        if "kernels" in options:
            build_kernels(parse_kernels(options["kernels"]), 8, options.get("kernel_params", ""))
        assert ("latent" in row.name) == ("latent_projection" in options) or "linear" in row.name
        assert tables.in_present_words(options) == options
        if found := re.match(r"(?!mix2)(.+),start=(.+),rate=(.+?)(,no-clip)?$", row.name):  # the rate is the step
            given = [float(options.get(f"output_{word}", 1)) for word in ("start", "step")]
            assert given == [float(found[2]), float(found[3])]


def test_a_table_is_one_file(monkeypatch, tmp_path):
    """That in README is one."""
    [text] = re.findall(r"```\n(title: .*?)```", (tables.ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    monkeypatch.setattr(tables, "TABLES", tmp_path)
    (tmp_path / "mine.yaml").write_text(text)
    assert names() == ["mine"] and load_table("mine").name == "mine"
    assert [row.settings()["kernels"] for row in load_table("mine").rows] == ["lin", "laplace"]
    with pytest.raises(ValueError, match="'table1' is not known; choose from mine"):
        load_table("table1")


@pytest.mark.parametrize("content, named", [
    ("{title: a, source: b, rows: [{name: lin, option: --kernels lin}]}", "option"),
    ("{source: b, rows: [{name: lin}]}", "title"),
    ("{title: a, source: b, rows: [{name: lin, paper: {ppl: '46,8'}}]}", "ppl"),
])  # fmt: skip
def test_a_wrong_key_of_a_table_is_named(content, named, monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "TABLES", tmp_path)
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(OmegaConfBaseException, match=named):
        load_table("mine")


def test_published_records(tmp_path):
    """In the table's order; a run takes the place of an older one of the same row, corpus, profile, seed, settings."""

    def record(row, value, seed=1, **settings):
        run = {"row": row, "corpus": "c", "profile": "cpu", "seed": seed, "settings": settings}
        return {"run": run, "metrics": [{"value": value}]}

    path = tmp_path / "new" / "table.json"
    publish(path, [record("pol", 1.0), record("lin", 2.0)], ["lin", "pol"])
    publish(path, [record("pol", 3.0), record("pol", 4.0, seed=2), record("lin", 5.0, lr="1")], ["lin", "pol"])
    values = [(each["run"]["row"], each["metrics"][0]["value"]) for each in json.loads(path.read_text())]
    assert values == [("lin", 2.0), ("lin", 5.0), ("pol", 3.0), ("pol", 4.0)]
    assert path.read_text().count("\n") == 6  # a line each


def test_the_points_of_a_grid():
    rows = tables.rows_of({"log.p": [2, 4.5], "lr": [0.1], "log.gamma": [1]}, "--kernels log")
    assert [row.name for row in rows] == ["log.p=2,lr=0.1,log.gamma=1", "log.p=4.5,lr=0.1,log.gamma=1"]
    assert rows[1].settings() == {"kernels": "log", "kernel_params": "log.p=4.5,log.gamma=1", "lr": "0.1"}


def test_the_score_of_a_point():
    """The lowest validation perplexity, the mean over seeds."""
    curves = [[[1, 22.0], [2, 24.0]], [[1, 23.0]]]
    assert grid.score([{"curves": {"valid": curve}} for curve in curves]) == 22.5


@pytest.mark.parametrize("line, settings", [
    ("--lr 0.1 --stock", {"lr": "0.1", "stock": True}),
    ("--lr 0.1 --seed 1 --lr=0.2", {"seed": "1", "lr": "0.2"}),
    ("--kernel-params=log.p=2 -t de", {"kernel_params": "log.p=2", "-t": "de"}),
    ("--clip-norm -1 --splits valid test", {"clip_norm": "-1", "splits": ["valid", "test"]}),
])  # fmt: skip
def test_settings(line, settings):
    assert settings_of(line.split()) == settings and settings_of(words_of(settings)) == settings
    assert list(settings_of(line.split())) == list(settings)
    with pytest.raises(ValueError, match="'lost' is no option"):
        settings_of(["lost", *line.split()])


@pytest.mark.parametrize("kind, options, there, not_there", [
    ("lm", "--stock", ["--arch lstm_lm", "--criterion cross_entropy"], ["--stock", "--output-bias"]),
    ("mt", "--output-layer spherical", ["--criterion log_spherical_softmax"], ["--label-smoothing"]),
    ("mt", "--output-layer kerbs", ["kerbs_cross_entropy", "--label-smoothing"], ["--share-decoder"]),
    ("lm", "--arch kernel_transformer_lm", ["--output-bias prior", "--lr 0.008"], ["--decoder-hidden", "lstm"]),
    ("mt", "--arch kernel_transformer_wmt_en_de_big", ["--max-update 1000"], ["--decoder-embed-dim"]),
    ("lm", "--lr-scheduler fixed --lr 1", ["--lr-scheduler fixed", "--lr 1"], ["--total-num", "--warmup", "0.008"]),
    ("lm", "--profile paper --lr-scheduler polynomial_decay", ["--lr-scheduler polynomial_decay"], ["--stop-min-lr"]),
])  # fmt: skip
def test_options_win_over_the_profile(kind, options, there, not_there):
    settings = {"profile": "cpu", **settings_of(options.split())}
    words = " ".join(words_of(training_settings(kind, settings.pop("profile"), settings)))
    assert all(part in words for part in there) and not any(part in words for part in not_there)


@pytest.mark.parametrize("has_gpu", [False, True])
def test_devices(has_gpu, corpus, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert ("--cpu" in training(Corpus.at(corpus), "cpu", {}, tmp_path, "plugin")) != has_gpu
    args = cli.parse(["table1", str(corpus)])
    assert args.results == tables.RESULTS and cli.parse(["table1", "a", "--publish"]).results == tables.ROOT / "results"
    assert args.profile == ("paper" if has_gpu else "cpu")
    assert cli.trainings_at_a_time(args) == (1 if has_gpu else os.cpu_count())


def folder_of(corpus, **how):
    settings = {"row": "lin", "profile": "cpu", "seed": 1, "options": {"kernels": "lin"}, **how}
    return Run(Corpus.at(corpus), root=corpus.parent / "runs", **settings).folder


def test_other_options_or_data_are_another_folder(corpus, tmp_path):
    """But not another seed, test set, or place."""
    here = shutil.copytree(corpus, tmp_path / "toy")
    before = folder_of(here)
    assert before.name == "seed1" and before.parent.name.startswith("lin-")
    assert folder_of(here, seed=2).parent == before.parent
    assert folder_of(here, options={"kernels": "log"}).parent != before.parent
    assert folder_of(here, profile="medium").parent.name != before.parent.name
    data = Corpus.at(here).fingerprint
    (here / "data-bin" / "test.bin").write_bytes(b"another")
    assert folder_of(here) == before and Corpus.at(here).fingerprint != data
    files = [path for path in sorted((here / "data-bin").iterdir()) if path.suffix in (".idx", ".bin", ".txt")]
    content = b"".join(path.name.encode() + path.read_bytes() for path in files)
    assert Corpus.at(here).fingerprint == sha256(content).hexdigest()[:12]
    for name in ("valid.bin", "train.idx", "dict.txt"):
        before = folder_of(here)
        with open(here / "data-bin" / name, "ab") as file:
            file.write(b"x")
        assert folder_of(here).parent != before.parent


def test_seeds_and_corpora(corpus, mt_data, tmp_path):
    """Each row with each seed; the unigram once, and not for translation."""
    reference = shutil.copytree(mt_data, tmp_path / "mt" / "data-bin").parent / "test.ref.en"
    reference.touch()
    runs = planned("table1", corpus, tmp_path / "mt", "--profile", "cpu", "--rows", "unigram lin", "--seeds", "2 3")
    assert [(run.corpus.kind, run.row, run.seed) for run in runs] == [
        ("lm", "unigram", 1), ("lm", "lin", 2), ("lm", "lin", 3), ("mt", "lin", 2), ("mt", "lin", 3),
    ]  # fmt: skip
    reference.unlink()
    with pytest.raises(ValueError, match="no reference .*test.ref.en"):
        planned("table1", tmp_path / "mt", "--profile", "cpu")


def test_rows_that_are_left_out(corpus, capsys):
    """It is said why; without any row left it is a mistake."""
    [run] = planned("beyond_table", corpus, "--rows", "2xlin-untied", "--profile", "medium")
    assert run.options["decoder_out_embed_dim"] == "128" and "untied_projections" in run.options
    for table, row, profile, why in (("beyond_table", "rbf-searched", "cpu", "grid_search.sh --kernel rbf"),
                                     ("controls", "lin-132", "medium", "no size for --profile medium")):  # fmt: skip
        with pytest.raises(ValueError, match="none of the rows can be run"):
            planned(table, corpus, "--rows", row, "--profile", profile)
        assert re.search(f"left out, as .*{why}", capsys.readouterr().out)


def test_what_is_measured(corpus):
    """The table's measures and SimLex-999, of our language models; of Table 3's mixtures, for Table 4 beside lin of all
    seeds."""
    runs = planned("spherical_table", corpus, "--rows", "unigram log-taylor", "--simlex", "S.txt")
    assert [list(run.measures) for run in runs] == [[], ["top10_error", "simlex:S.txt"]]
    assert planned("table1", corpus, "--rows", "stock", "--simlex", "S.txt")[0].measures == []
    runs = planned("table3", corpus, "--rows", "lin mix2", "--seeds", "2", "1")
    for name, models in ("table4", ["lin 2", "lin 1", "mix2 2"]), ("linear_weight", ["mix2 2", "mix2 1"]):
        assert [f"{run.row} {run.seed}" for run in mixtures.chosen(name, runs)] == models


def test_searched_rows(corpus, tmp_path):
    (tmp_path / "searched.yaml").write_text("toy/cpu/log: {kernel_params: log.p=8}\n")
    options = ["--searched", tmp_path / "searched.yaml", "--rows", "log-searched", "--profile", "cpu"]
    [run] = planned("beyond_table", corpus, *options, "--", "--lr", "1")
    assert run.options == {"kernels": "log", "kernel_params": "log.p=8", "lr": "1"}
    [run] = planned("learning_rate_table", corpus, "--rows", "abs-0.016", "--", "--lr", "1")  # it has one of its own
    assert run.options == {"kernels": "abs", "lr": "1"}


@pytest.mark.parametrize("name, damage, said", [
    *((f"{split}.idx", None, f"has no {split} text") for split in ("train", "valid", "test")),
    ("test.bin", lambda content: b"", "test.idx .* damaged"),
    ("test.idx", lambda content: bytes(len(content)), "test.idx .* damaged"),
])  # fmt: skip
def test_missing_and_damaged_data_are_noticed_before_the_training(name, damage, said, corpus, tmp_path):
    here = shutil.copytree(corpus, tmp_path / "toy")
    data = here / "data-bin" / name
    data.write_bytes(damage(data.read_bytes())) if damage else data.unlink()
    with pytest.raises((ValueError, SystemExit), match=said):
        Corpus.at(here).check()


def test_conversations(corpus, tmp_path):
    """Sums over SPLIT.parts' numbers of lines; without it over blocks of 50."""
    here = Corpus.at(shutil.copytree(corpus, tmp_path / "toy"))
    lines = [[number, number / 8] for number in range(120)]
    assert [part[0] for part in here.parts("test", lines)] == [1225, 3725, 2190]
    (here.folder / "test.parts").write_text("1\n117\n2\n")
    assert here.parts("test", lines) == [[0, 0], [sum(range(1, 118)), sum(range(1, 118)) / 8], [237, 29.625]]


def test_each_corpus_has_models_of_its_own(monkeypatch, tmp_path):
    """They are measured on its text; the records have the row of the table."""

    def compare(data, models):
        return {name: [{"metric": str(data), "value": len(model)}] for name, model in models.items()}, {}

    runs = []
    for name, model in ("one", "m"), ("two", "other"):
        record = {"run": {"row": "a", "corpus": name, "profile": "cpu", "seed": 1, "settings": {}}, "made": {}}
        how = {"corpus": Corpus(Path(name), Path(name), "lm"), "row": "mix2", "seed": 1, "best": model}
        runs.append(SimpleNamespace(record=lambda record=record: record, **how))
    monkeypatch.setattr(linear_weight, "compare", compare)
    mixtures.analyse(load_table("linear_weight"), runs, tmp_path)
    found = [(each["run"], *each["metrics"]) for each in json.loads((tmp_path / "linear_weight.json").read_text())]
    assert [(run["corpus"], run["row"], metric["metric"], metric["value"]) for run, metric in found] == [
        ("one", "mix2", "one", 1), ("two", "mix2", "two", 5)]
