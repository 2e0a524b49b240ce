"""Tables of trainings of seconds: their records against fairseq's own commands, and rows that are trained once."""

import json
import math
import re
import shutil
import subprocess
import sys

import numpy
import pytest
import torch
import yaml
from fairseq_commands import LM_TASK, SIZES, fairseq, readme_s_kernel, script
from forked_python import forked_python
from table_commands import SHORT, call, environment, succeeded

from fairseq_kernels.analysis import word_similarity
from fairseq_kernels.analysis.top10_error import top10_error
from fairseq_kernels.experiments import cli, statistics, tables
from fairseq_kernels.experiments.corpus import Corpus
from fairseq_kernels.experiments.run import Run
from fairseq_kernels.experiments.statistics import bleu_counts
from fairseq_kernels.experiments.tables import ROOT, words_of
from fairseq_kernels.whole_files import read_records

# the best checkpoint isn't the last one
OPTIONS = [*SHORT, "--log-interval", "5", "--warmup-updates", "1", "--maximize-best-checkpoint-metric"]


def records(folder, table):
    return read_records(folder / "results" / f"{table}.json")


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """Table 3's lin and mix2, then Table 1's unigram and lin."""
    folder = tmp_path_factory.mktemp("finished")
    succeeded(call("table3", corpus, folder, "--rows", "lin mix2", "--", *OPTIONS))
    return folder, succeeded(call("table1", corpus / "data-bin", folder, "--rows", "unigram lin", "--", *OPTIONS))


@pytest.fixture(scope="module")
def mix2(finished):
    folder, _ = finished
    return records(folder, "table3")[1]


def test_a_record_tells_how_it_was_made(mix2, corpus):
    run, made = mix2["run"], mix2["made"]
    assert (run["row"], run["corpus"], run["profile"], run["seed"]) == ("mix2", "toy", "cpu", 1)
    assert run["settings"]["kernels"] == "3xlin,log" and run["settings"]["max_update"] == "10"
    command = ["bash", "scripts/train_lm.sh", "data/toy", *words_of({"profile": "cpu", **run["settings"], "seed": 1})]
    assert made["argv"] == command and "--pi-variance-weight" in command
    assert "--lr 0.008" in made["arguments"] and "--save-dir" not in made["arguments"]
    assert made["data"] == Corpus.at(corpus).fingerprint and re.fullmatch(r"[0-9a-f]{12}\+?", made["commit"])
    assert made["seconds"] > 0 and made["versions"]["torch"] and made["machine"]["threads"] == 1
    curve = dict(mix2["curves"]["valid"])
    assert made["updates"] < 10 and curve[made["updates"]] == max(curve.values())
    assert [update for update, _ in mix2["curves"]["train"]] == [5, 10]


def test_a_record_agrees_with_the_lines_and_the_model(mix2, finished, corpus):
    """Perplexity is that of the lines' tokens and nats; parts are sums of them; parameters are the model's."""
    folder, _ = finished
    [run] = folder.glob("runs/toy/cpu/mix2-*/seed1")
    lines = json.loads((run / "lines.json").read_text())
    for split in ("valid", "test"):
        [figure] = [each for each in mix2["metrics"] if (each["split"], each["metric"]) == (split, "ppl")]
        tokens, nats = map(sum, zip(*lines[split]))
        assert len(lines[split]) == {"valid": 40, "test": 41}[split] and tokens == figure["tokens"]
        assert math.exp(nats / tokens) == pytest.approx(figure["value"], rel=1e-4)
        parts = (lines[split][:10], lines[split][10:]) if split == "valid" else (lines[split],)
        assert mix2["parts"][split] == [[pytest.approx(sum(kind)) for kind in zip(*part)] for part in parts]
    state = torch.load(run / "checkpoint_best.pt", weights_only=True)["model"]
    named = [value.numel() for name, value in state.items() if value.dim() and "version" not in name]
    assert mix2["made"]["parameters"] == sum(named)
    epochs = re.findall(r" \| train \| .* \| ppl ([\d.]+) .*num_updates (\d+)", (run / "train.log").read_text())
    assert (str(mix2["made"]["train_ppl"]), str(mix2["made"]["updates"])) in epochs
    updates = [update for update, _ in mix2["curves"]["valid"]]
    assert updates == sorted(updates) and updates[-1] == 10 and set(mix2["curves"]["weights"]) == {
        "pi_lin1", "pi_lin2", "pi_lin3", "pi_log",
    }  # fmt: skip
    weights = [each["value"] for each in mix2["metrics"] if re.match("pi_(lin|log)", each["metric"])]
    assert sum(weights) == pytest.approx(1, abs=0.01)


def test_perplexity_is_fairseq_s(mix2, finished, corpus):
    folder, _ = finished
    [best] = folder.glob("runs/toy/cpu/mix2-*/seed1/checkpoint_best.pt")
    blocks = ("--sample-break-mode", "none", "--tokens-per-sample", 35, "--batch-size", 1)
    result = fairseq("eval_lm", corpus / "data-bin", *LM_TASK[:2], "--path", best, "--gen-subset", "test", *blocks)
    [value] = re.findall(r"Perplexity: ([\d.]+)", result.text)
    [figure] = [each["value"] for each in mix2["metrics"] if (each["split"], each["metric"]) == ("test", "ppl")]
    assert figure == pytest.approx(float(value), abs=0.006)


def test_tables_share_trainings(finished):
    """Table 1's lin is Table 3's; the unigram needs none. Figures are told on the screen."""
    folder, result = finished
    unigram, lin = records(folder, "table1")
    assert unigram["made"]["argv"] == "bash scripts/table.sh table1 data/toy --rows unigram".split()
    assert unigram["run"]["row"] == "unigram" and unigram["curves"] == {} and unigram["metrics"][0]["value"] > 5
    assert lin == records(folder, "table3")[0]
    valid, test = lin["metrics"][:2]
    said = f"lin on toy, seed 1: valid ppl {valid['value']:.6g}, test ppl {test['value']:.6g}"
    assert {said, f"figures: {folder}/results/table1.json"} <= set(result.stdout.splitlines())
    [log] = folder.glob("runs/toy/cpu/lin-*/seed1/train.log")
    assert log.read_text().count("done training") == 1


def test_a_failing_row_stops_no_other(corpus, tmp_path):
    """Two dimensions are too few for mog. What is a user's in these folders stays."""
    for name in ("runs", "results"):
        (tmp_path / name / "workflows").mkdir(parents=True)
        (tmp_path / name / "workflows" / "mine").touch()
    result = call("table1", corpus, tmp_path, "--rows", "mog lin", "--", *SHORT, "--decoder-out-embed-dim", "2")
    assert result.returncode == 1 and "table1.sh: error: failed: mog on toy, seed 1 (" in result.stderr
    assert re.search(r"mog on toy, seed 1: failed: .*embed_dim >= 4", result.stdout), result.stdout
    assert [record["run"]["row"] for record in records(tmp_path, "table1")] == ["lin"]
    assert len(list(tmp_path.glob("*/workflows/mine"))) == 2 and "Traceback" not in result.stdout + result.stderr


def test_measures(finished, corpus, tmp_path):
    """Of the trained models, in their records; they need no other training."""
    folder, _ = finished
    simlex = tmp_path / "SimLex-999.txt"
    simlex.write_text("word1\tword2\tPOS\tSimLex999\nw1\tw2\tN\t1.5\nw1\tw3\tN\t9\nw2\tw5\tN\t3\n")
    result = call("spherical_table", corpus, folder, "--rows", "log-softmax", "--simlex", simlex, "--", *OPTIONS)
    [record] = records(folder, "spherical_table") if not succeeded(result).returncode else []
    values = {(each["split"], each["metric"]): each["value"] for each in record["metrics"]}
    [best] = folder.glob("runs/toy/cpu/lin-*/seed1/checkpoint_best.pt")
    assert values["test", "top10_error"] == round(top10_error(corpus / "data-bin", best, "test"), 4) > 0
    similarity = word_similarity.simlex(corpus / "data-bin", best, word_similarity.read_pairs(simlex))
    assert values["SimLex-999", "simlex"] == round(similarity["correlation"], 4)
    assert record["run"]["row"] == "log-softmax"


def test_what_mixtures_do(finished, corpus):
    """Table 4 and the weight of lin, of trained models: differences from lin, and where the weight goes."""
    folder, _ = finished
    for name in ("table4", "linear_weight"):
        succeeded(call(name, corpus, folder, "--rows", "mix2", "--", *OPTIONS))
    lin, mix2 = records(folder, "table4")
    assert lin["run"]["baseline"] == mix2["run"]["baseline"] == "seed 1" and "analysis" in mix2["made"]
    values = {each["metric"]: each for each in mix2["metrics"]}
    plain = [each["metric"] for each in lin["metrics"]]
    assert set(values) - set(plain) == {"cluster_gain_beyond_random"}
    [weight] = records(folder, "linear_weight")
    shares = {metric["metric"]: metric["value"] for metric in weight["metrics"]}
    assert 0.5 < shares["mean"] < 1 and shares["at word 0"] != shares["at word 1"]  # three of four components
    [sentences] = (folder / "results" / "table4").glob("toy/cpu/mix2-*/seed1.md")
    assert "mix2 of seed 1 right, lin of seed 1 wrong" in sentences.read_text()


def test_a_cluster_s_profile_and_a_home_that_cant_be_written(corpus, tmp_path):
    """Snakemake's own says where rows run, and it has a cache in the home, as a container's may be. In the default
    folders."""
    (tmp_path / "profile").mkdir()
    slurm = (ROOT / "configs" / "slurm" / "config.yaml").read_text()
    (tmp_path / "profile" / "config.yaml").write_text(re.sub("executor: slurm|jobs: 20", "", slurm) + "cores: 1\n")
    here = ["--profile", "cpu", "--rows", "unigram", "--workflow-profile", tmp_path / "profile"]
    command = ["bash", ROOT / "scripts" / "table1.sh", corpus, *here]
    variables = {**environment(), "HOME": "/proc/nowhere"}
    succeeded(subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True))
    assert records(tmp_path / "checkpoints", "table1") and [*tmp_path.glob("checkpoints/tables/toy/cpu/unigram-*")]


def test_a_kernel_of_one_s_own(corpus, tmp_path, monkeypatch):
    """In a table, and in single evaluations; a table trains anew when it is changed. A mistyped reference is told."""
    own = readme_s_kernel(tmp_path / "own_kernels")
    (tmp_path / "mine.yaml").write_text("{title: a, source: b, rows: [{name: own, options: --kernels laplace}]}")
    monkeypatch.setattr(tables, "TABLES", tmp_path)
    monkeypatch.setattr(sys, "executable", forked_python())
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    places = ["--save-dir", tmp_path / "runs", "--results", tmp_path / "results", "--user-dir", own]
    cli.table_command("mine", *map(str, [corpus, "--profile", "cpu", *places, "--", *SHORT]))
    [record] = records(tmp_path, "mine")
    [best] = tmp_path.glob("runs/toy/cpu/own-*/seed1/checkpoint_best.pt")
    code, out, err = script("evaluate_lm", corpus, best, "--user-dir", own)
    assert code == 0 and record["made"]["argv"][-2:] == ["--user-dir", own.name], err
    again = Corpus.at(corpus), "own", "cpu", 1, record["run"]["settings"], tmp_path, str(own)
    assert Run(*again).key == record["run"]["key"]
    (own / "more.py").write_text("#")
    assert Run(*again).key != record["run"]["key"]
    (tmp_path / "mine.yaml").write_text("{title: a, reference: lni, rows: [{name: own, options: --kernels laplace}]}")
    with pytest.raises(ValueError, match="row 'lni' is not in mine; choose from own"):
        tables.load_table("mine")
    [value] = [each["value"] for each in record["metrics"] if each["split"] == "test"]
    assert float(re.search(r"test perplexity ([\d.]+)", out)[1]) == pytest.approx(value, abs=0.06)


def test_a_grid(corpus, tmp_path):
    """Its best point is published by --publish alone."""
    here = ("--kernel", "pow", "--rows", "pow.p=0.5 pow.p=2", "--", *SHORT)
    (tmp_path / "runs").mkdir()
    searched = tmp_path / "runs" / "searched.yaml"
    searched.write_text("swb/cpu/log: {kernel_params: log.p=4}\n")
    result = succeeded(call("grid_search", corpus, tmp_path, *here))
    points = records(tmp_path, "search_pow")
    best = min(points, key=lambda record: min(ppl for _, ppl in record["curves"]["valid"]))["run"]["row"]
    found = {name: entry["kernel_params"] for name, entry in yaml.safe_load(searched.read_text()).items()}
    assert len(points) == 2 and found == {"swb/cpu/log": "log.p=4", "toy/cpu/pow": best}
    assert f"toy/cpu/pow: {best} is the best" in result.stdout


@pytest.fixture(scope="module")
def translation(mt_data, mt_text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("translation")
    data = shutil.copytree(mt_data, folder / "toymt" / "data-bin").parent
    shutil.copy(mt_text / "test.en", data / "test.ref.en")
    sizes = [*map(str, SIZES["transformer"]), "--max-update", "30", "--lr", "0.01", "--warmup-updates", "5"]
    sizes += ["--validate-interval", "15", "--save-interval", "15"]  # an epoch is one update
    succeeded(call("table1", data, folder, "--rows", "lin", "--", *sizes))
    return data, folder


def test_bleu_is_fairseq_s(translation):
    """And that of the sentences' counts."""
    data, folder = translation
    [record] = records(folder, "table1")
    tokenised, detokenised = record["metrics"][:2]
    [best] = folder.glob("runs/toymt/cpu/lin-*/seed1/checkpoint_best.pt")
    how = ("--gen-subset", "test", "--beam", 5, "--batch-size", 8, "--remove-bpe")
    result = fairseq("generate", data / "data-bin", "--path", best, *how)
    [value] = re.findall(r"BLEU4 = ([\d.]+)", result.text)
    assert tokenised["metric"] == "bleu" and tokenised["value"] == pytest.approx(float(value), abs=0.011)
    assert detokenised["metric"] == "sacrebleu" and "case:lc" in detokenised["signature"]
    said = rf"test BLEU4 {tokenised['value']:.1f} .*sacreBLEU {detokenised['value']:.1f} .*{best}.test.gen"
    assert re.search(said, script("evaluate_mt", data, best)[1])
    (data / "test.en").write_text("\u2581a piece\n\n\u2581v1\n")  # by sentencepiece: pieces without one are joined
    assert script("evaluate_mt", data, best)[0] == 0
    assert not re.search(r"^H-\d+\t\S+\t.* ", best.with_name(f"{best.name}.test.gen").read_text(), re.M)
    sums = bleu_counts(numpy.array(record["parts"]["test"])).sum(0)
    assert len(record["parts"]["test"]) == 21 and statistics.bleu(sums) == pytest.approx(tokenised["value"], abs=0.02)
    values = {metric["metric"]: metric["value"] for metric in record["metrics"]}
    shorter = min(1, math.exp(1 - sums[1] / sums[0]))
    assert values["bleu1"] == pytest.approx(100 * sums[2] / sums[6] * shorter, abs=0.02)
    assert values["bleu2"] <= values["bleu1"] and values["ppl"] == min(ppl for _, ppl in record["curves"]["valid"])
