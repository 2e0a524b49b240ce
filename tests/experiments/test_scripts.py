"""scripts/train_lm.sh, train_mt.sh, evaluate_lm.sh and evaluate_mt.sh: one training and its evaluation by hand."""

import re
import shlex

import pytest
from fairseq.data.data_utils import load_indexed_dataset
from fairseq_commands import USER_DIR, script
from table_commands import SMALL

from fairseq_kernels.experiments.commands import check_options
from fairseq_kernels.experiments.corpus import Corpus
from fairseq_kernels.experiments.profiles import profiles
from fairseq_kernels.experiments.run import news, training
from fairseq_kernels.experiments.tables import load_table, names, settings_of
from fairseq_kernels.output_layers.table import LAYERS

ROOT = USER_DIR.parent
SCRIPTS = sorted({path.stem for path in (ROOT / "scripts").glob("*.sh")} - {"common", "evaluate", "test", "train"})


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_needs_no_setting_up(name):
    code, out, err = script(name, "--help", PYTHON_BIN="/nonexistent")
    if name not in (*names(), "figure1", "quickstart", "report", "setup"):  # these need nothing, or a table's data
        assert script(name) == (2, out, "")
    assert code == 0 and "bash scripts/" in out and "PYTHON_BIN" not in err
    assert not any(line.startswith("#") for line in out.splitlines())
    assert name not in names() or load_table(name).title in out
    assert script(name, "-h", PYTHON_BIN="/nonexistent") == (code, out, err)


@pytest.mark.parametrize("kind", ["lm", "mt"])
def test_fairseq_reads_the_settings_of_each_profile_with_each_layer(kind, lm_data, mt_data, tmp_path):
    corpus = Corpus.at({"lm": lm_data, "mt": mt_data}[kind])
    for profile in profiles(kind):
        for layer in ({"stock": True}, *({"output_layer": name} for name in LAYERS)):
            arguments = training(corpus, profile, {**layer, "lr": "0.123"}, tmp_path, str(USER_DIR))
            settings = settings_of(arguments[1:])
            assert settings["lr"] == "0.123" and ("kernel" in settings["arch"]) == ("stock" not in layer)
            check_options(arguments)


@pytest.mark.parametrize("settings, said", [
    ({"max_epoch": "4"}, "update 60 of 200, training perplexity 64.0, 0:00:56 left"),
    ({"max_epoch": "4", "max_update": "90"}, "update 60 of 90, training perplexity 64.0, 0:00:12 left"),
    ({}, "update 60, training perplexity 64.0"),
])  # fmt: skip
def test_progress(settings, said):
    """The last updates' alone, at the mean pace but for the first line's, and what this package warns of."""
    log = "now | train_inner | epoch 002:     10 / 50 loss=6, ppl=64.0, wps=9, ups={}, wpb=4, num_updates={}, lr=1\n"
    warnings = "now | WARNING | fairseq_kernels.a | take care\nnow | WARNING | fairseq | no\n"
    lines = log.format(0.10, 10) + warnings + log.format(10, 35) + log.format(1.43, 60)
    assert [*news(lines, settings, [])] == ["take care", said]


def test_a_training(lm_data, tmp_path):
    """The command alone; lines of progress, one of the result, and where the log is."""
    options = ("--profile", "cpu", *SMALL, "--log-interval", 1, "--max-update", 4, "--save-dir", tmp_path)
    code, shown, err = script("train_lm", lm_data, *options, "--kernels", "3xlin,log", "--dry-run")
    assert code == 0 and shown.startswith(f"fairseq-train {lm_data} --user-dir ") and not any(tmp_path.iterdir()), err
    assert settings_of(shlex.split(shown)[2:])["kernels"] == "3xlin,log"
    code, out, err = script("train_lm", lm_data, *options)
    assert code == 0, err
    assert "update 4 of 4, training perplexity " in out
    last = rf"valid perplexity [\d.]+ after 4 updates \(log: {tmp_path}/train.log\)"
    assert re.fullmatch(last, out.splitlines()[-1])


def test_all_words_are_evaluated(lm_data, tmp_path):
    """Of a transformer that takes shorter blocks than the evaluation's: in its own; longer ones are refused."""
    small = ["--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8, "--decoder-attention-heads", 2, "--max-update", 2]
    small = ["--arch", "kernel_transformer_lm", *small, "--tokens-per-sample", 20, "--profile", "cpu"]
    code, _, err = script("train_lm", lm_data, *small, "--save-dir", tmp_path)
    assert code == 0, err
    evaluation = ["evaluate_lm", lm_data, tmp_path / "checkpoint_best.pt", "--gen-subset", "valid"]
    code, out, err = script(*evaluation)
    words = load_indexed_dataset(str(lm_data / "valid"))
    assert code == 0 and f"({words.sizes.sum():,} words with line ends) (log: {tmp_path}/" in out, out + err
    code, out, err = script(*evaluation, "--tokens-per-sample", 35)
    assert code == 1 and not out and "Traceback" not in err


def test_a_diverged_training_is_no_success(lm_data, tmp_path):
    diverging = ["--profile", "cpu", "--lr", 1e30, "--clip-norm", 0, "--max-update", 2]
    code, out, err = script("train_lm", lm_data, *diverging, "--save-dir", tmp_path)
    assert code == 1 and "diverged" in err and "lower --lr" in err, out + err


@pytest.mark.parametrize("line, said", [
    ("train_lm {lm} --kernles lin --save-dir {tmp}/a", ["--kernles", "did you mean --kernels?"]),
    ("train_lm {lm} --kernels lni --save-dir {tmp}/a", ["lni", "did you mean lin?"]),
    ("train_lm {lm} --profile cpu", ["required: --save-dir"]),
    ("train_lm {lm} --save-dri {tmp}/a", ["train_lm.sh: error: unknown option --save-dri; did you"]),
    ("train_lm {tmp}/nowhere --save-dir {tmp}/a", ["nowhere", "data-prep"]),
    ("train_lm {mt} --save-dir {tmp}/a", ["dict.txt"]),
    ("evaluate_lm {lm} {tmp}/none.pt", ["none.pt", "No such file"]),
    ("evaluate_mt {mt} {tmp}/text.pt", ["no reference ", "test.ref.en"]),
    ("table table1 {lm} --row lin", ["table1.sh: error: unknown option --row; did you mean --rows?"]),
    ("table table1 {lm} --rows 'lin nil'", ["'nil'", "table1", "unigram"]),
    ("table table1 {lm} -- --lr 1 --kernels=log", ["--kernels after --"]),
    ("table table1 {lm} -- --dropuot 0", ["--dropuot", "did you mean --dropout?"]),
    ("grid_search {lm} --kernel lin", ["'search_lin'", "search_log"]),
    ("grid_search '{tmp}/no data' --kernel log", ["/no data"]),
])  # fmt: skip
def test_one_clear_line(line, said, lm_data, mt_data, tmp_path):
    places = {"lm": lm_data, "mt": mt_data, "tmp": tmp_path}
    (tmp_path / "text.pt").write_text("no checkpoint")
    code, out, err = script(*shlex.split(line.format(**places)))
    last = err.strip().splitlines()[-1]
    assert code > 0 and "Traceback" not in err and all(part in last for part in said), out + err
