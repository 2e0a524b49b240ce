"""The papers' tables: their definitions, and rows that are trained once, whatever happens meanwhile."""

import json
import math
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import torch
from fairseq_commands import script
from forked_python import forked_python
from table_commands import SHORT, call

from fairseq_kernels.experiments import grid_search, mixtures, runs, step, tables, training, workflow
from fairseq_kernels.experiments import old_results as results
from fairseq_kernels.experiments.commands import Failed
from fairseq_kernels.experiments.data import Corpus
from fairseq_kernels.experiments.profiles import (
    difference,
    fairseq_arguments,
    load_profile,
    option_value,
    profiles,
    understood,
)
from fairseq_kernels.experiments.progress import Progress
from fairseq_kernels.experiments.results import options
from fairseq_kernels.experiments.runs import Run
from fairseq_kernels.experiments.searched import add_searched
from fairseq_kernels.experiments.step import Step
from fairseq_kernels.experiments.tables import ROOT, Row, Table, load_table, names
from fairseq_kernels.experiments.workflow import main, options_of, run_of, run_steps
from fairseq_kernels.kernels.spec import build_kernels, parse_kernels

# definitions


@pytest.mark.parametrize("name", names())
def test_tables(name):
    """Their rows have names of their own, and kernels that exist."""
    table = load_table(name)
    assert len({row.name for row in table.rows}) == len(table.rows)
    for row in table.rows:
        options = dict(zip(row.options, row.options[1:]))
        if "--kernels" in options:
            build_kernels(parse_kernels(options["--kernels"]), 8, options.get("--kernel-params", ""))


def test_a_table_is_one_file(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "TABLES", tmp_path)
    (tmp_path / "mine.yaml").write_text("title: a\nsource: b\nrows:\n  - {name: lin, options: --kernels lin}\n")
    assert names() == ["mine"] and load_table("mine") == Table("mine", "a", "b", (Row("lin", ("--kernels", "lin")),))
    with pytest.raises(ValueError, match="'table1' is not known; choose from mine"):
        load_table("table1")


@pytest.mark.parametrize(
    "content, said",
    [
        (
            "{title: a, source: b, rows: [{name: lin, option: --kernels lin}]}",
            "row 1 has 'option', which is none of name,",
        ),
        ("{title: a, rows: []}", "the table has no 'source'"),
        ("{title: a, source: b, rows: [lin]}", "row 1 is 'lin', no mapping"),
        ("title: [", "while parsing"),
        ("{title: 2019, source: b, rows: []}", "the table has title: 2019, where a text is wanted"),
        ("{title: a, source: b, rows: [], measures: simlex}", "the table has measures: 'simlex', where a list"),
        ("{title: a, source: b, rows: [], measures: [bleu]}", "measures is .'bleu'.; choose from top10_error, simlex"),
        ("{title: a, source: b, rows: [{name: lin, paper: 46.8}]}", "row 1 has paper: 46.8, where a mapping is wanted"),
        ("{title: a, source: b, rows: [{name: lin, paper: {ppl: '46,8'}}]}", "row 1 has '46,8' under paper, where a"),
        ("{title: a, source: b, rows: [{name: lin, kind: text}]}", "row 1 has kind: 'text'; choose from lm, mt"),
        ("{title: a, source: b, rows: [{name: lin}, {name: lin}]}", "row 2 has the name 'lin'; give each its own"),
        ("{title: a, source: b, rows: [{name: my lin}]}", "row 1 has the name 'my lin'; give each its own, without"),
    ],
)
def test_a_wrong_table_is_named(content, said, monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "TABLES", tmp_path)
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(ValueError, match=f"mine.yaml is no table: {said}.*; mend it"):
        load_table("mine")


def test_an_installed_wheel_has_no_tables(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "TABLES", tmp_path / "none")
    for call_ in (names, lambda: load_table("table1"), lambda: load_profile("lm", "cpu")):
        with pytest.raises(ValueError, match="no configs/ beside .*: call this in a clone of the repository"):
            call_()


def test_untied_mixtures_share_out_the_dimensions(corpus):
    """Two matrices of half the columns: as many parameters as one."""
    [row] = load_table("beyond_table").chosen(["2xlin-untied"])
    for profile, half in (("cpu", "64"), ("medium", "128"), ("paper", "256")):
        options = options_of(row, Corpus.at(corpus), profile)
        assert "--untied-projections" in options and options[-2:] == ("--decoder-out-embed-dim", half)


def test_table1_is_the_papers():
    paper = {row.name: row.paper for row in load_table("table1").rows if row.paper}
    assert list(paper) == ["lin", "log", "pow", "pol", "rbf", "ssg", "mog", "hpb", "wav"]
    assert paper["rbf"] == {"ppl": 284.9, "bleu": 0.0} and paper["ssg"] == {"ppl": 49.9, "bleu": 34.6}


def test_mixbig_has_one_of_each_kernel():
    [row] = load_table("table3").chosen(["mixbig"])
    assert sorted(row.options[1].split(",")) == sorted(r.name for r in load_table("table1").rows if r.paper)


# profiles


def test_published_settings_are_the_profiles():
    """What fairseq-train understood when Table 1 was made is what the profiles say now."""
    for record in results.load(ROOT / "results" / "table1.json"):
        run, made = record["run"], record["made"]
        kind = "mt" if record["metrics"][0]["metric"].endswith("bleu") else "lm"
        if made["arguments"]:
            own = [*shlex.split(options(run["settings"])), "--seed", str(run["seed"])]
            assert not difference(made["arguments"], shlex.join(fairseq_arguments(kind, run["profile"], own)))


def test_differences_are_told():
    known = shlex.join(fairseq_arguments("lm", "cpu", ["--kernels", "lin"]))
    assert not difference(known, shlex.join(fairseq_arguments("lm", "cpu", ["--kernels=lin", "--log-interval", "7"])))
    assert not difference(known.replace("fused_adamw", "adam"), known)  # the same steps
    said = difference(known, shlex.join(fairseq_arguments("lm", "cpu", ["--kernels", "log", "--lr", "1"])))
    assert said == "--kernels lin in the place of log, --lr [0.008] in the place of [1.0]"
    assert "refuses now: --no-such" in difference("--no-such", known)


@pytest.mark.parametrize(
    "kind, options, there, not_there",
    [
        ("lm", ["--stock"], ["--arch lstm_lm", "--criterion cross_entropy"], ["--stock", "--output-bias"]),
        ("lm", ["--output-layer=taylor"], ["--criterion log_taylor_softmax", "--output-bias prior"], []),
        ("mt", ["--stock"], ["--arch transformer_iwslt_de_en", "--label-smoothing 0.1"], ["kernel"]),
        ("mt", ["--output-layer", "spherical"], ["--criterion log_spherical_softmax"], ["--label-smoothing"]),
        ("mt", ["--output-layer", "kerbs"], ["kerbs_cross_entropy", "--label-smoothing"], ["--share-decoder"]),
    ],
)
def test_layers_choose_their_criterion(kind, options, there, not_there):
    for profile in profiles(kind):
        words = " ".join(fairseq_arguments(kind, profile, options))
        assert all(part in words or profile != "cpu" for part in there) and not any(part in words for part in not_there)


def test_another_scheduler_comes_without_the_profiles_settings():
    own = ["--lr-scheduler", "polynomial_decay", "--total-num-update", "9"]
    words = fairseq_arguments("lm", "paper", own)
    assert words[-4:] == own and words.count("--lr-scheduler") == 1
    assert not {"--lr-shrink", "--lr-threshold", "--stop-min-lr"}.intersection(words)
    same = fairseq_arguments("lm", "paper", ["--lr-scheduler=reduce_lr_on_plateau"])
    assert {"--lr-shrink", "--lr-threshold", "--stop-min-lr"}.issubset(same)


@pytest.mark.parametrize(
    "options, bias",
    [
        (["--arch", "kernel_transformer_lm"], True),
        (["--arch=kernel_transformer_lm_gpt", "--output-layer", "taylor"], True),
        (["--stock", "--arch", "transformer_lm"], False),
    ],
)
def test_another_model_comes_with_its_own_sizes(options, bias):
    """And so does another named architecture of the same model."""
    words = fairseq_arguments("lm", "cpu", options)
    meant = understood(shlex.join(words))
    assert "TransformerLanguageModel" in meant["model"] and meant["lr"] == "[0.008]"
    assert meant.get("decoder_layers") != "2" and "--decoder-hidden-size" not in words
    assert ("--output-bias" in words) == bias
    assert "--decoder-hidden-size" in fairseq_arguments("lm", "cpu", ["--arch", "kernel_lstm_lm"])
    for arch, size in (("small", 256), ("wmt_en_de_big", 1024), ("iwslt_de_en", 512)):
        words = fairseq_arguments("mt", "paper", ["--arch", f"kernel_transformer_{arch}"])
        assert understood(shlex.join(words))["decoder_embed_dim"] == str(size)
        assert ("--decoder-embed-dim" in words) == (arch == "iwslt_de_en")


def test_the_last_of_an_option_counts():
    for words in (["--lr", "0.1", "--lr=0.2"], ["--lr=0.1", "--lr", "0.2"], ["--lr", "0.2", "--lr"]):
        assert option_value(words, "--lr") == "0.2"
    assert option_value(["--lr"], "--lr") is None


def test_unknown_profile():
    with pytest.raises(ValueError, match="--profile gpu is not known; choose from cpu, medium, paper"):
        load_profile("lm", "gpu")


@pytest.mark.parametrize(
    "content, said",
    [("", "'NoneType' object"), ("model: [", "while parsing"), ("task: {_name: translation}", "'model'")],
)
def test_a_wrong_profile_is_named(content, said, monkeypatch, tmp_path):
    monkeypatch.setattr(f"{load_profile.__module__}.checkout", lambda *parts: tmp_path.joinpath(*parts[2:]))
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(ValueError, match=f"mine.yaml is no profile: {said}.*; it needs task, model, criterion"):
        load_profile("lm", "mine")


def test_a_profile_s_false_is_no_default(monkeypatch):
    groups = load_profile("lm", "cpu")
    groups["model"]["output_bias"] = False
    monkeypatch.setattr(f"{load_profile.__module__}.load_profile", lambda kind, name: groups)
    words = fairseq_arguments("lm", "cpu", [])
    assert words[words.index("--output-bias") + 1] == "False"


# one run after the other


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """Table 1's unigram and lin, then Table 3's lin."""
    folder = tmp_path_factory.mktemp("finished")
    first = call("table1", corpus, folder, "--rows", "unigram lin", "--", *SHORT)
    assert first.returncode == 0, first.stdout + first.stderr
    second = call("table3", corpus / "data-bin", folder, "--rows", "lin", "--", *SHORT)
    assert second.returncode == 0, second.stdout + second.stderr
    return folder, second


def test_a_home_that_cant_be_written(corpus, tmp_path):
    """As in a container; Snakemake has a cache there."""
    result = call("table1", corpus, tmp_path, "--rows", "unigram", HOME="/proc/nowhere")
    assert result.returncode == 0, result.stdout + result.stderr


def test_figures_tell_how_they_were_made(finished, corpus):
    folder, _ = finished
    actual = results.load(folder / "results" / "table1.json")
    assert [(f["name"], f["split"], f["metric"]) for f in actual] == [
        (name, split, "ppl") for name in ("unigram", "lin") for split in ("test", "valid")
    ]
    figure = actual[2]
    assert figure["corpus"] == "toy" and figure["profile"] == "cpu" and figure["seed"] == 1 and figure["paper"] == 46.8
    assert 5 < figure["value"] < 24
    for figure_, split in ((figure, "test"), (actual[3], "valid")):
        train, evaluate = figure_["command"].split("; ")
        assert train.startswith("bash scripts/train_lm.sh") and evaluate.startswith("bash scripts/evaluate_lm.sh")
        assert evaluate.endswith(f" --gen-subset {split}")
    origin = figure["provenance"]
    assert origin["data"] == Corpus.at(corpus).fingerprint and origin["config"] == " ".join(
        ["--kernels", "lin", *SHORT]
    )
    assert "--lr 0.008" in origin["arguments"] and "--save-dir" not in origin["arguments"]
    assert origin["updates"] == 10 and origin["seconds"] > 0 and origin["versions"]["torch"] and origin["threads"]
    update, perplexity = figure["valid_curve"][-1]
    assert update == figure["updates"] == 10 and perplexity == pytest.approx(actual[3]["value"], rel=1e-3)
    assert figure["parameters"] > 1000 and figure["words_per_second"] > 0 and figure["train_ppl"] > 5
    curves = results.load(folder / "results" / "curves" / "table1.json")
    assert [entry["name"] for entry in curves] == ["lin", "unigram"] and "10" in curves[0]["valid"]["ppl"]


def test_tables_share_runs(finished):
    """Table 3's lin is Table 1's: not trained again."""
    folder, second = finished
    assert "training" not in second.stdout
    one, three = (results.load(folder / "results" / f"{name}.json") for name in ("table1", "table3"))
    assert three == [figure for figure in one if figure["name"] == "lin"]


def test_another_corpus_in_the_same_place(finished, corpus, mt_data, tmp_path):
    """A folder of runs knows its data."""
    folder, _ = finished
    other = tmp_path / "toy"
    shutil.copytree(corpus, other)
    with open(other / "data-bin" / "dict.txt", "a") as dictionary:
        dictionary.write("another 1\n")
    result = call("table1", other, folder, "--rows", "lin", "--", *SHORT)
    assert result.returncode != 0 and "was trained on data" in result.stdout and "--save-dir" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr
    [checkpoint] = folder.glob("runs/toy/cpu/*/seed1/checkpoint_best.pt")
    with pytest.raises(ValueError, match="was trained with another dictionary than that of"):
        training.check_words(Corpus.at(other), checkpoint)


def test_another_meaning_of_a_profile(finished, corpus, monkeypatch):
    """A folder of runs knows fairseq's arguments, which another version of a profile changes."""
    folder, _ = finished
    run = Run(Corpus.at(corpus), "cpu", ("--kernels", "lin", *SHORT), 1, folder / "runs")
    assert run.finished()
    before = run.arguments()
    monkeypatch.setattr(Run, "arguments", lambda run: before.replace("--lr 0.008", "--lr 0.002"))
    for call_, said in ((run.finished, "was trained on"), (run.begin, "was begun on")):
        with pytest.raises(
            ValueError, match=f"{said} --lr \\[0.008\\] in the place of \\[0.002\\]; name another --save-dir"
        ):
            call_()


def test_rows_with_further_options_are_kept_apart(finished, tmp_path):
    """What follows -- makes another row of the same name: it doesn't take the place of the first."""
    folder, _ = finished
    path = shutil.copy(folder / "results" / "table1.json", tmp_path)
    figures = [figure for figure in results.load(Path(path)) if figure["name"] == "lin"]
    others = [{**figure, "value": 1.0, "provenance": {**figure["provenance"], "config": "x"}} for figure in figures]
    results.add(Path(path), others, ["unigram", "lin"])
    results.add(Path(path), others, ["unigram", "lin"])
    assert len(results.load(Path(path))) == 6
    values = {(figure["value"] == 1.0, figure["provenance"]["config"] == "x") for figure in results.load(Path(path))}
    assert values == {(True, True), (False, False)}
    results.add(Path(path), [{**figures[0], "seed": seed} for seed in (10, 2)], ["unigram", "lin"])
    seeds = [figure["seed"] for figure in results.load(Path(path)) if figure["split"] == figures[0]["split"]]
    assert seeds[-4:] == [1, 1, 2, 10]


def test_dry_run_shows_fairseq_s_command(corpus, tmp_path):
    save = tmp_path / "none"
    options = ["--profile", "cpu", "--kernels", "3xlin,log", "--dry-run", "--save-dir", save]
    code, shown, err = script("train_lm", corpus / "data-bin", *options)
    assert code == 0, err
    assert shown.startswith(f"fairseq-train {corpus / 'data-bin'} ") and "--kernels 3xlin" in shown
    assert shown.count("\n") == 1 and not save.exists()


# steps


def test_cluster_profile(corpus, tmp_path, capfd, monkeypatch):
    """Snakemake's own profile says where steps run; why one failed is said here."""
    monkeypatch.setattr(sys, "executable", forked_python())
    (tmp_path / "config.yaml").write_text("cores: 1\n")
    row = Row("bad", ("--kernels", "lin", "--kernel-params", "lin.p=2"))
    run = Run(Corpus.at(corpus), "cpu", row.options, 1, tmp_path / "runs")
    failed = run_steps([Step(Table("table1", "", "", (row,)), row, run, {}, tmp_path / "results")], 1, tmp_path)
    assert "lin.p" in failed["bad on toy, seed 1"]


def test_a_failing_row_stops_no_other(corpus, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(sys, "executable", forked_python())
    rows = (Row("bad", ("--kernels", "lin", "--kernel-params", "lin.p=2")), Row("good", ("--kernels", "lin")))
    runs_ = [Run(Corpus.at(corpus), "cpu", (*row.options, *SHORT), 1, tmp_path / "runs") for row in rows]
    table = Table("table1", "", "", rows)
    failed = run_steps([Step(table, row, run, {}, tmp_path / "results") for row, run in zip(rows, runs_)], 2)
    assert list(failed) == ["bad on toy, seed 1"] and "lin.p" in failed["bad on toy, seed 1"]
    assert capfd.readouterr().out.count("bad on toy, seed 1: failed: ") == 1
    assert {f["name"] for f in results.load(tmp_path / "results" / "table1.json")} == {"good"}


# files


def test_damaged_results_are_named(corpus, monkeypatch, tmp_path):
    """Before anything is trained."""
    for name, content in (
        ("table1.json", '[{"name"'), ("table1.json", '{"a": 1}'), ("curves/table1.json", ""),
        ("sentences/table1.json", "{}"),
    ):  # fmt: skip
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        places = ["--save-dir", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
        monkeypatch.setattr(sys, "argv", ["workflow", "table1", str(corpus), *places, "--rows", "lin"])
        with pytest.raises(SystemExit, match=f"{name} (is damaged|holds no list of objects).*; move it away"):
            main()
        path.unlink()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("missing, said", [("test.idx", "no test text"), ("valid.idx", "no valid text")])
def test_splits_are_looked_for_before_a_training(missing, said, corpus, tmp_path):
    other = tmp_path / "toy"
    shutil.copytree(corpus, other)
    (other / "data-bin" / missing).unlink()
    Corpus.at(corpus).check()
    with pytest.raises(ValueError, match=f"{said}; give a folder that a data-prep script made"):
        Corpus.at(other).check()


def test_references_are_looked_for_before_a_training(mt_data, tmp_path):
    with pytest.raises(ValueError, match="has no reference test.ref.en;"):
        Corpus.at(mt_data).check()
    here = tmp_path / "toy"
    shutil.copytree(mt_data, here)  # without a data-bin in it
    (here / "test.ref.de").touch()
    with pytest.raises(ValueError, match="has no reference test.ref.en;"):
        Corpus.at(here).check()
    (here / "test.ref.en").touch()
    Corpus.at(here).check()
    for path in here.glob("*.de-en.*"):
        path.rename(here / path.name.replace("de-en", "de-pt_BR").replace(".en.", ".pt_BR."))
    with pytest.raises(ValueError, match="has no reference test.ref.pt_BR;"):
        Corpus.at(here).check()


def test_weights_are_those_of_the_checkpoint_that_is_evaluated(corpus, monkeypatch, tmp_path):
    """fairseq may have chosen it by another value than perplexity."""
    valid = {"loss": {10: 5.0, 20: 4.0}, "ppl": {10: 30.0, 20: 31.0}, "pi_lin": {10: 0.1, 20: 0.9}}
    monkeypatch.setattr(runs, "read_curves", lambda log, kind: valid if kind == "valid" else {})
    monkeypatch.setattr(runs, "load", lambda checkpoint: {"extra_state": {"previous_training_time": 1.0}})
    monkeypatch.setattr(runs, "updates", lambda checkpoint: {"checkpoint_best.pt": 20}[checkpoint.name])
    monkeypatch.setattr(runs, "model_state", lambda checkpoint: {})
    (tmp_path / "train.log").write_text("num. shared model params: 3,540 (num. trained: 3,540)\n")
    monkeypatch.setattr(Run, "log", tmp_path / "train.log")
    run = Run(Corpus.at(corpus), "cpu", ("--kernels", "lin"), 1, tmp_path)
    record = run.record([], {"commit": "of its beginning"})
    assert record["provenance"]["commit"] == "of its beginning" != record["provenance"]["analysis_commit"]
    [weight] = record["metrics"]
    assert (weight["metric"], weight["value"], weight["split"]) == ("pi_lin", 0.9, "valid")
    assert weight["command"].startswith("bash scripts/train_lm.sh") and ";" not in weight["command"]
    assert record["provenance"]["updates"] == record["trained"]["updates"] == 20
    assert record["trained"]["parameters"] == 3540 and record["curves"]["valid"] == {"ppl": valid["ppl"]}


AN_OLDER = "num. shared model params: 9\n2026-01-01 | INFO | valid | epoch 001 | loss 5 | pi_lin 1 | num_updates 10\n"


@pytest.mark.parametrize("log", [None, "", "| valid | {}", AN_OLDER])
def test_figures_need_the_training_s_log(log, corpus, monkeypatch, tmp_path):
    """Of the best checkpoint's validation, too."""
    monkeypatch.setattr(runs, "updates", lambda checkpoint: 20)
    run = Run(Corpus.at(corpus), "cpu", ("--kernels", "lin"), 1, tmp_path)
    run.folder.mkdir(parents=True)
    if log is not None:
        run.log.write_text(log)
    with pytest.raises(Failed, match="train.log, which figures come from, is damaged; move .* away to train it anew"):
        run.record([], {})


def test_numbers_that_are_not_finite_are_json(tmp_path):
    path = tmp_path / "table.json"
    results.add(path, [{"name": "rbf", "value": math.inf}, {"name": "log", "value": math.nan}], ["rbf", "log"])

    def refuse(constant):
        raise AssertionError(constant)

    assert [entry["value"] for entry in json.loads(path.read_text(), parse_constant=refuse)] == ["inf", "nan"]
    rbf, log = results.load(path)
    assert rbf["value"] == math.inf and math.isnan(log["value"])


# where and how many


def test_threads_and_devices(monkeypatch):
    """An equal part of the cores, and the GPUs in turn."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert workflow.threads_of(2) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "abc")
    monkeypatch.setattr(workflow, "cores", lambda: 8)
    assert [workflow.threads_of(jobs) for jobs in (1, 3, 20)] == [8, 2, 1]
    assert workflow.devices(2) == workflow.gpus() or torch.cuda.is_available()
    monkeypatch.setattr(workflow, "gpus", lambda: ["0", "3"])
    assert workflow.devices(3) == ["0", "3", "0"]


def test_the_published_results_change_by_publish_alone():
    """Tables', and what searches find."""
    own = workflow.parse(["table1", "data"])
    assert own.results == Path("checkpoints", "results") and own.searched == ROOT / "configs" / "searched.yaml"
    assert workflow.parse(["table1", "data", "--publish"]).results == ROOT / "results"
    search = ["data", "--kernel", "log"]
    assert grid_search.parse(search).searched == Path("checkpoints", "search", "searched.yaml")
    assert grid_search.parse([*search, "--publish"]).searched == ROOT / "configs" / "searched.yaml"


def test_each_process_has_a_device_of_its_own(tmp_path):
    first = step.free_device(tmp_path, ["0", "1", "0"])
    second, third = (step.free_device(tmp_path, ["0", "1", "0"]) for _ in range(2))
    assert [device for _, device in (first, second, third)] == ["0", "1", "0"]
    second[0].release()
    assert step.free_device(tmp_path, ["0", "1", "0"])[1] == "1"
    with pytest.raises(Failed, match="interrupted"):  # which must not wait
        step.free_device(tmp_path, ["0", "1", "0"], stopping=lambda: True)


def test_progress(tmp_path):
    """The latest statistics, what is said of checkpoints, and nothing of an earlier training."""
    log, when = tmp_path / "train.log", "2026-01-01 00:00:00 | INFO"
    log.write_text(f"{when} | train_inner | epoch 001:    100 / 400 loss=5, ppl=32, num_updates=100\n")
    progress = Progress(log, ["--max-epoch", "3"])
    assert progress.lines() == []
    with log.open("a") as more:
        for update in (200, 300):
            more.write(
                f"{when} | train_inner | epoch 001:    {update} / 400 loss=5, ppl={update}.05, num_updates={update}\n"
            )
        more.write(f"{when} | fairseq_kernels.checkpoints | resumes after 100 updates\n{when} | train_inner | ep")
    resumed, line = progress.lines()
    assert resumed == "resumes after 100 updates"
    assert line.startswith("update 300 of 1200, training perplexity 300.1, ") and line.endswith(" left")
    assert progress.lines() == []
    with log.open("a") as more:  # of a loss that has no perplexity
        more.write(f"{when} | train_inner | epoch 001:    400 / 400 loss=7.25, num_updates=400\n")
    assert progress.lines()[0].startswith("update 400 of 1200, training loss 7.2, ")
    with log.open("ab") as more:  # no text, as a killed process may leave
        more.write(b"\xff\xfe\r\n")
    assert progress.lines() == []
    with log.open("a") as more:
        more.write(f"{when} | train_inner | epoch 002:    100 / 400 loss=7, num_updates=500\n")
    assert progress.lines()[0].startswith("update 500 of 1200")


def test_a_table_without_rows_to_run_is_a_mistake(corpus, monkeypatch, tmp_path, capsys):
    (tmp_path / "searched.yaml").write_text("")
    options = ["--rows", "rbf-searched", "--profile", "cpu", "--searched", str(tmp_path / "searched.yaml")]
    monkeypatch.setattr(sys, "argv", ["workflow", "beyond_table", str(corpus), *options])
    with pytest.raises(SystemExit, match="none of the rows can be run"):
        main()
    assert "rbf-searched on toy: left out" in capsys.readouterr().out


def test_seeds_and_corpora(corpus, mt_data):
    """Each row with each seed, one without options too; the unigram once, and not for translation."""

    class Arguments:
        seeds, profile, extra, save_dir, searched = [1, 2], "cpu", (), Path("runs"), Path("none")

    rows = [Row("unigram", unigram=True), Row("lin", ())]
    here, there = Corpus.at(corpus), Corpus.at(mt_data)
    actual = [run_of(row, each, seed, Arguments) for each in (here, there) for seed in (1, 2) for row in rows]
    assert [run and (run.corpus.kind, run.seed) for run in actual] == [
        ("lm", 1), ("lm", 1), None, ("lm", 2), None, ("mt", 1), None, ("mt", 2),
    ]  # fmt: skip
    assert len({run.folder for run in actual if run}) == 5
    Arguments.seeds = [2, 3]
    assert run_of(rows[0], here, 2, Arguments).seed == 1  # the same one


def test_rows_for_one_kind_of_text(corpus, mt_data, capsys):
    [row] = load_table("beyond_table").chosen(["2xlin-untied"])
    assert options_of(row, Corpus.at(mt_data), "cpu") is None
    assert "2xlin-untied on " in capsys.readouterr().out
    assert "--untied-projections" in options_of(row, Corpus.at(corpus), "cpu")


def test_a_row_with_sizes_of_some_profiles_is_for_these(corpus, capsys):
    """Under others it would be trained with the profile's own, under the same name."""
    [row] = load_table("controls").chosen(["lin-132"])
    assert "132" in options_of(row, Corpus.at(corpus), "cpu")
    assert options_of(row, Corpus.at(corpus), "medium") is None
    assert "left out, as it has no size for --profile medium, but for cpu" in capsys.readouterr().out


def test_searched_rows(corpus, tmp_path, capsys):
    """The best point of a search on the same data; without one they are left out, and it is said how to search."""
    searched = tmp_path / "searched.yaml"
    row, here = Row("log-searched", searched="log"), Corpus.at(corpus)
    assert options_of(row, here, "cpu", searched) is None
    said = capsys.readouterr().out
    assert f"{searched} has no search of it" in said
    assert f"bash scripts/grid_search.sh {corpus} --kernel log --profile cpu" in said
    add_searched(tmp_path / "searched.yaml", "toy/cpu/log", {"kernel_params": "log.p=8", "origin": {}})
    assert options_of(row, here, "cpu", searched) == ("--kernels", "log", "--kernel-params", "log.p=8")
    assert options_of(row, here, "paper", searched) is None
    capsys.readouterr()
    other = {"kernel_params": "log.p=8", "origin": {"data": "0123456789ab"}}
    add_searched(tmp_path / "searched.yaml", "toy/cpu/log", other)
    assert options_of(row, here, "cpu", searched) is None
    said = capsys.readouterr().out
    assert f"the search in {searched} was on data 0123456789ab, this is {here.fingerprint}; give --searched" in said
    add_searched(tmp_path / "searched.yaml", "toy/cpu/log", {"origin": {}})
    with pytest.raises(ValueError, match="searched.yaml: toy/cpu/log has no kernel_params"):
        options_of(row, here, "cpu", searched)


@pytest.mark.parametrize(
    "options, parts",
    [
        (["--rows", "lin nil"], ["'nil'", "table1", "unigram"]),
        (["--seeds", "0"], ["--seeds 0", "from 1 to"]),
        (["--seeds", ""], ["--seeds", "from 1 to"]),
        (["--", "--seed", "7"], ["--seed after --", "--seeds before --"]),
        (["--", "--lr", "1", "--kernels=log"], ["--kernels after --", "choose --rows"]),
        (["--", "--log-format=json"], ["--log-format after --", "figures are read from it"]),
        *((["--", option], [f"{option} after --", "figures are of the best"])
          for option in ("--no-save", "--no-last-checkpoints", "--disable-validation", "--valid-subset")),
        (["--save-dir", ""], ["--save-dir", "is empty"]),
        (["--results", ""], ["--results", "is empty"]),
        (["--save-dir", "a:b"], ["--save-dir", "'a:b' has :", "name a folder without it"]),
        (["--save-dir", "${{oc.env:HOME}}"], ["--save-dir", "${"]),
        (["--searched", "nowhere.yaml"], ["--searched nowhere.yaml", "not found"]),
        (["--workflow-profile", str(ROOT)], ["--workflow-profile", "has no config.yaml", "configs/slurm"]),
        (["--profile", "gpu"], ["gpu", "cpu"]),
        (["--workflow-profile", "nowhere"], ["nowhere", "not found"]),
        (["--jobs", "-1"], ["--jobs -1"]),
        (["--simlex", "nowhere.txt"], ["nowhere.txt", "not found"]),
        (["--simlex", __file__], ["test_experiments.py", "not in SimLex-999's format"]),
    ],
)  # fmt: skip
def test_one_clear_line(options, parts, corpus, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["workflow", "table1", str(corpus), *options])
    with pytest.raises(SystemExit) as ended:
        main()
    last = capsys.readouterr().err.strip().splitlines()[-1] if ended.value.code == 2 else str(ended.value)
    assert all(part in last for part in parts) and "\n" not in last


# what is made of trained models


def test_a_failing_mixture_stops_no_analysis(corpus, tmp_path):
    """Table 4 and the weight of lin, of the models that there are; and in the report."""
    [mix5] = load_table("table3").chosen(["mix5"])
    folder = Run(Corpus.at(corpus), "cpu", (*mix5.options, *SHORT), 1, tmp_path / "runs").folder
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    for table, seeds in (("table4", "1 2"), ("linear_weight", "1")):
        result = call(table, corpus, tmp_path, "--rows", "mix2 mix5", "--seeds", seeds, "--", *SHORT)
        assert result.returncode != 0 and "failed: mix5 on toy, seed 1" in result.stderr, result.stdout + result.stderr
    actual = results.load(tmp_path / "results" / "table4.json")
    assert {(f["name"], f["seed"]) for f in actual} == {("lin", 1), ("lin", 2), ("mix2", 1)} and len(actual) == 8
    assert all("--kernels" in f["provenance"]["config"] and f["provenance"]["seconds"] > 0 for f in actual)
    assert all(f["valid_curve"] and f["parameters"] for f in actual)
    weights = results.load(tmp_path / "results" / "linear_weight.json")
    assert [(f["name"], f["seed"]) for f in weights] == [("mix2", 1)]
    assert all(f["baseline"].startswith("seed 1, commit ") and f["details"]["lines"] > 1 for f in actual)
    sentences = {path.relative_to(tmp_path / "results").parts[:3] for path in tmp_path.glob("results/table4/**/*.md")}
    assert sentences == {("table4", "toy", "cpu")}
    [text] = [path.read_text() for path in tmp_path.glob("results/table4/toy/cpu/3xlin*/seed1.md")]
    assert "mix2 right, lin wrong" in text and "seed 2" not in text
    assert (tmp_path / "results" / "linear_weight-toy-cpu.svg").is_file()
    # another lin to compare with makes figures of their own
    result = call("table4", corpus, tmp_path, "--rows", "mix2", "--seeds", "2 1", "--", *SHORT)
    assert result.returncode == 0, result.stdout + result.stderr
    again = results.load(tmp_path / "results" / "table4.json")
    assert len(again) == 16 and [f for f in again if f["baseline"].startswith("seed 1")] == actual
    [checkpoint] = tmp_path.glob("runs/toy/cpu/3xlin*/seed1/checkpoint_best.pt")
    checkpoint.write_bytes(checkpoint.read_bytes()[:5000])
    [lin] = (tmp_path / "runs" / "toy" / "cpu").glob("lin_*")
    shutil.rmtree(lin)
    result = call("linear_weight", corpus, tmp_path, "--rows", "mix2", "--", *SHORT)  # needs no lin
    assert "training" not in result.stdout
    assert f"{checkpoint.name} is missing or damaged; move" in result.stdout and result.returncode != 0
    assert "failed: mix2 on toy, seed 1" in result.stderr and "Traceback" not in result.stderr


def test_clusters_need_words(corpus, monkeypatch):
    mixtures.check_clusters(Corpus.at(corpus))
    monkeypatch.setattr(mixtures, "SIZE", 1000)
    with pytest.raises(ValueError, match="Table 4, whose clusters are of 1000; give a larger text"):
        mixtures.check_clusters(Corpus.at(corpus))


def test_lin_alone_has_no_linear_weight(corpus, tmp_path):
    result = call("linear_weight", corpus, tmp_path, "--rows", "lin")
    assert result.returncode != 0 and "Traceback" not in result.stderr
    assert "--rows lin has no mixture; choose from mos" in result.stderr
