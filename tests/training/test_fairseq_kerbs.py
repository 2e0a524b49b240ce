"""KerBS through fairseq's own commands: training, logs, resuming, input embeddings, decoding, analysis, mistakes."""

import itertools
import json
import sys

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data import Dictionary
from fairseq_commands import lm_training, logged, mt_training, script, trainings
from trained_models import batches, decodes_step_by_step, figures, load, parameters, scores

from fairseq_kernels.analysis import kerbs_senses

KERBS = ("--output-layer", "kerbs", "--kerbs-reallocate-every", 4, "--kerbs-share", 0.1, "--kerbs-rate", 0.2)
TRANSLATION = "kernel_transformer_iwslt_de_en"
MODELS = {
    "prior": ("kernel_lstm_lm_swb", "--kerbs-input", "prior", "--output-bias", "prior"),
    "posterior": ("kernel_lstm_lm", "--kerbs-input", "posterior", "--kerbs-kernel", "positive", "--senses", 60),
    "transformer": ("kernel_transformer_lm", "--kerbs-kernel", "none", "--label-smoothing", 0.1),
    "translation": (TRANSLATION, "--senses", "2x", "--kerbs-theta", 0.5),
}


@pytest.fixture(scope="module")
def model_of(lm_data, mt_data, tmp_path_factory):
    """One of each of MODELS."""

    def command(folder, arch, *options):
        train, data = (mt_training, mt_data) if arch == TRANSLATION else (lm_training, lm_data)
        return train(data, folder, *KERBS, *options, arch=arch, criterion="kerbs_cross_entropy")

    return trainings(tmp_path_factory.mktemp("kerbs"), command, MODELS)


@pytest.fixture
def model(request, model_of):
    return request.param, model_of(request.param)


def models(*names):
    return pytest.mark.parametrize("model", names or MODELS, indirect=True)


@models()
def test_training(model):
    """It learns, senses move, and the log says so."""
    name, trained = model
    lm, task = load(trained.folder)
    figures(trained, lm, task)
    line = logged(trained.result, "train_inner")[-1]
    assert line["senses_moved"] > 0 and ("mean_theta" in line) == (name != "transformer")
    assert "update 4: moved" in trained.result.text
    state = parameters(trained.folder)
    home = state["decoder.output_projection.sense_word"]
    assert not torch.equal(home, torch.arange(len(home)) % (1 + int(home.max())))
    batch = batches(task)[0]
    torch.testing.assert_close(scores(lm, batch).exp().sum(-1), torch.ones(batch["target"].shape))
    [staying], _, _ = load_model_ensemble_and_task([str(trained.last)], {"kerbs_reallocate_every": 0})
    assert staying.decoder.output_projection.weight.equal(lm.decoder.output_projection.weight)


@models("posterior", "prior")
def test_decoding_step_by_step_is_the_full_forward(model):
    """The input embedding needs the last context vector."""
    decodes_step_by_step(load(model[1].folder)[0])


def test_the_posterior_embeds_by_equation_6(model_of):
    """sum_j p(s = <i,j> | y = i, h) w_<i,j> with the previous context vector."""
    lm, _ = load(model_of("posterior").folder)
    layer, context = lm.decoder.output_projection, torch.randn(5, 16)
    words = torch.tensor([4, 5, 6, 7, 8])
    probabilities = torch.softmax(layer.sense_scores(context), dim=1)
    expected = []
    for row, word in zip(probabilities, words):
        own = layer.sense_word == word
        expected.append((row[own] / row[own].sum()) @ layer.weight[own])
    torch.testing.assert_close(lm.decoder.embed_tokens(words, context), torch.stack(expected))
    with torch.no_grad():  # in half precision, too, where one vector is 0 and others are long
        layer.weight[layer.sense_word == 5] = 0
        layer.weight[layer.sense_word == 6] *= 1000
    lm.half()
    assert lm.decoder.embed_tokens(words, 300 * context.half()).isfinite().all()


@models("prior")
def test_what_it_learned(model, lm_data, tmp_path):
    """scripts/kerbs_senses.sh: a table, its JSON and a plot."""
    _, trained = model
    code, out, err = script("kerbs_senses", lm_data, trained.last, "--out", tmp_path / "out")
    assert code == 0, err
    record = json.loads((tmp_path / "out" / "senses.json").read_text())
    assert sum(row["words"] for row in record["words_by_senses"]) == 24
    first, others = record["by_frequency"]
    assert (first["rank"], others["rank"]) == ("1 to 10", "11 to 20")  # but for fairseq's four
    layer = torch.load(trained.last, weights_only=True)["model"]
    names = ("weight", "sense_word", "theta", "allocation.occurrences")
    weight, home, theta, occurrences = (layer[f"decoder.output_projection.{name}"] for name in names)
    frequent = 4 + occurrences[4:].argsort(descending=True, stable=True)[:10]
    its = torch.isin(home, frequent)
    assert first["senses a word"] == int(its.sum()) / 10
    assert first["theta"] == pytest.approx(float(theta[its].mean()))
    words = Dictionary.load(str(lm_data / "dict.txt"))
    by_senses = {}  # the most frequent words first, eight at most of each number of senses
    for word in (4 + occurrences[4:].argsort(descending=True, stable=True)).tolist():
        by_senses.setdefault(int((home == word).sum()), []).append(words[word])
    chosen = [word for number in sorted(by_senses, reverse=True) for word in by_senses[number][:8]]
    assert list(dict.fromkeys(row["word"] for row in record["words"])) == chosen
    for word, rows in itertools.groupby(record["words"], key=lambda row: row["word"]):
        own, usage = home == words.index(word), []
        for row in rows:
            [sense] = (own & (theta == row["theta"])).nonzero()[0]
            similarity = torch.cosine_similarity(weight, weight[sense], dim=1).masked_fill(own, -1)
            nearest = words[home[similarity.argmax()]]
            assert row["neighbours"].split(", ")[0] == nearest and len(set(row["neighbours"].split(", "))) == 4
            usage.append(row["usage"])
        assert usage == sorted(usage, reverse=True) and word in out


@models("prior")
def test_senses_of_wrong_words(model, lm_data, monkeypatch, capsys):
    _, trained = model
    for arguments, said in ((("--words", "w1", "nowhere"), "nowhere"), (("--number", 0), "--number: '0'")):
        monkeypatch.setattr(sys, "argv", ["kerbs_senses", *map(str, (lm_data, trained.last, *arguments))])
        with pytest.raises(SystemExit) as end:
            kerbs_senses.main()
        out, err = capsys.readouterr()
        assert end.value.code and said in f"{end.value}{err}" and not out


@pytest.mark.parametrize("given", ["de", None])
def test_words_of_the_target_language(given, monkeypatch, tmp_path):
    """Of two dictionaries of one size; fairseq takes the languages from the files' names where none are given."""
    for language in ("de", "en"):
        (tmp_path / f"dict.{language}.txt").write_text(f"{language} 1\n")
    (tmp_path / "train.en-de.en.bin").touch()
    monkeypatch.setattr(kerbs_senses, "load", lambda checkpoint: {"cfg": {"task": {"target_lang": given}}})
    assert kerbs_senses.dictionary(tmp_path / "checkpoint_best.pt", tmp_path, 5).symbols[-1] == "de"
