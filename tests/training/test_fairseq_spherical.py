"""The spherical family through fairseq's own commands: training, logs, evaluation, decoding, mistakes."""

from argparse import Namespace
from typing import NamedTuple

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq_commands import (
    Trained,
    awaited,
    fairseq,
    later,
    lm_training,
    logged,
    mt_training,
)
from trained_models import batches, load, loss_of, padded_batch, scores

from fairseq_kernels.analysis.top10_error import top10_error as measure_top10_error
from fairseq_kernels.models import (
    KernelLSTMLanguageModel,
    KernelTransformer,
    KernelTransformerLanguageModel,
    output_layer_config,
)
from fairseq_kernels.output_layers.table import LAYERS

KernelMixtureCrossEntropy = CRITERION_REGISTRY["kernel_mixture_cross_entropy"]
LogSphericalSoftmax = CRITERION_REGISTRY["log_spherical_softmax"]
LogTaylorSoftmax = CRITERION_REGISTRY["log_taylor_softmax"]

TRANSLATION = "kernel_transformer_iwslt_de_en"


class Model(NamedTuple):
    layer: str
    arch: str
    options: tuple = ()


MODELS = {
    "taylor lstm": Model("taylor", "kernel_lstm_lm"),
    "spherical lstm": Model("spherical", "kernel_lstm_lm_swb", ("--output-bias", "false", "--epsilon", 0.1)),
    "taylor transformer": Model("taylor", "kernel_transformer_lm_gpt", ("--share-decoder-input-output-embed",)),
    "spherical transformer": Model("spherical", "kernel_transformer_lm"),
    "taylor translation": Model("taylor", TRANSLATION, ("--output-bias", "true")),
    "spherical translation": Model("spherical", TRANSLATION),
    "squared error lstm": Model("squared-error", "kernel_lstm_lm"),
    "bound transformer": Model("softmax-bound", "kernel_transformer_lm"),
}


def spherical_training(name, data, folder, *options):
    """fairseq-train on one of MODELS."""
    model = MODELS[name]
    train = mt_training if model.arch == TRANSLATION else lm_training
    return train(
        data, folder, "--label-smoothing", 0, "--output-layer", model.layer, *model.options, *options, arch=model.arch,
        criterion=LAYERS[model.layer].criterion,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trainings(lm_data, mt_data, tmp_path_factory):
    """One of each of MODELS, queued."""
    folder, queued = tmp_path_factory.mktemp("spherical"), {}
    for name, model in MODELS.items():
        data = mt_data if model.arch == TRANSLATION else lm_data
        queued[name] = folder / name, later(*spherical_training(name, data, folder / name))
    return queued


@pytest.fixture
def model_of(trainings):
    return lambda name: awaited(*trainings[name])


def top10_error(model, task):
    """The share of validation tokens whose word is not among the ten of the highest log-probabilities."""
    missed, tokens = 0, 0
    for batch in batches(task):
        real = batch["target"].ne(task.target_dictionary.pad())
        likeliest = scores(model, batch).topk(10).indices
        missed += likeliest.ne(batch["target"].unsqueeze(2)).all(2)[real].sum().item()
        tokens += real.sum().item()
    return missed / tokens


# training and evaluation


@pytest.mark.parametrize("name", MODELS)
def test_train(name, model_of):
    """The loss falls; the saved model has the perplexity and the top-10 error that validation logged. Training logs
    no perplexity where the loss is another one."""
    trained = model_of(name)
    epochs, valid = logged(trained.result, "train"), logged(trained.result, "valid")
    assert epochs[-1]["loss"] < epochs[0]["loss"] < 8
    assert valid[-1]["ppl"] == pytest.approx(2 ** valid[-1]["nll_loss"], rel=2e-3)  # logged to 3 decimals
    is_nll = MODELS[name].layer in ("taylor", "spherical")
    assert (valid[-1]["loss"] == valid[-1]["nll_loss"]) == is_nll
    assert all(("nll_loss" in line) == ("ppl" in line) == is_nll for line in epochs)
    model, task = load(trained.folder)
    assert loss_of(model, task) == pytest.approx(valid[-1]["nll_loss"], abs=1e-3)
    assert 0 < valid[-1]["top10_error"] < 1
    assert valid[-1]["top10_error"] == pytest.approx(top10_error(model, task), abs=1e-4)
    if isinstance(model, KernelLSTMLanguageModel):
        measured = measure_top10_error(task.args.data, trained.last, "valid")
        task.args.sample_break_mode = "none"  # blocks across sentences, unlike validation's
        assert measured == pytest.approx(top10_error(model, task), abs=1e-4)
    assert all("top10_error" not in line for line in epochs)
    layer, options = model.decoder.output_projection, MODELS[name].options
    assert (layer.bias is None) == ("false" in options)
    assert (layer.weight is model.decoder.embed_tokens.weight) == ("--share-decoder-input-output-embed" in options)


def test_epsilon_is_the_option_s(model_of):
    """0.0198 by default; a checkpoint's model has the one it was trained with."""
    assert load(model_of("spherical lstm").folder)[0].decoder.output_projection.epsilon == 0.1
    assert load(model_of("spherical transformer").folder)[0].decoder.output_projection.epsilon == 0.0198


@pytest.mark.parametrize("name", ["taylor lstm", "spherical lstm", "spherical transformer", "spherical translation"])
def test_stock_criterion_gives_the_same_loss(name, model_of):
    """cross_entropy on the same model: loss, gradients and logs, in training and validation."""
    model, task = load(model_of(name).folder)
    batch, results = padded_batch(task), []
    own = {"taylor": LogTaylorSoftmax, "spherical": LogSphericalSoftmax}[MODELS[name].layer](task, False)
    for criterion in (own, CrossEntropyCriterion(task, False)):
        loss, sample_size, log = criterion(model.train(), batch)
        actual = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        with torch.no_grad():
            torch.testing.assert_close(criterion(model.eval(), batch)[0], loss.detach(), rtol=1e-5, atol=0)
        results.append((loss, actual, sample_size, log["ntokens"]))
    (ours, actual, *sizes), (stock, stock_actual, *stock_sizes) = results
    torch.testing.assert_close(ours, stock, rtol=1e-5, atol=0)
    torch.testing.assert_close(actual, stock_actual, rtol=1e-3, atol=1e-4)
    assert sizes == stock_sizes
    each, _, _ = own(model, batch, reduce=False)
    torch.testing.assert_close(each.sum(), ours, rtol=1e-5, atol=0)
    assert each.view_as(batch["target"])[batch["target"].eq(task.target_dictionary.pad())].eq(0).all()


# the start


@pytest.mark.parametrize("layer", ["taylor", "spherical", "squared-error", "softmax-bound"])
@pytest.mark.parametrize(
    "name,model",
    [
        ("taylor lstm", KernelLSTMLanguageModel),
        ("spherical transformer", KernelTransformerLanguageModel),
        ("spherical translation", KernelTransformer),
    ],
)
def test_a_new_model_is_the_prior(name, model, layer, model_of):
    """By default its words have their shares of the training data, </s> counted, one added to each count."""
    _, task = load(model_of(name).folder)
    saved = torch.load(model_of(name).last, weights_only=True)["cfg"]["model"]
    new = model.build_model(Namespace(**{**saved, "output_layer": layer, "output_bias": None}), task).eval()
    pad = task.target_dictionary.pad()
    counts = torch.ones(len(task.target_dictionary), dtype=torch.float64)
    for batch in batches(task, "train"):
        target = batch["target"].flatten()
        counts += torch.bincount(target[target != pad], minlength=len(counts))
    actual = scores(new, padded_batch(task)).double()
    prior = (counts / counts.sum()).log()
    torch.testing.assert_close(actual, prior.expand_as(actual), rtol=1e-4, atol=1e-4)


def test_a_model_that_is_read_counts_no_text(model_of, monkeypatch):
    monkeypatch.setattr(output_layer_config, "training_counts", None)
    load(model_of("taylor lstm").folder)


# top10_error of kernel mixtures


@pytest.fixture(scope="module")
def mixture(lm_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture-top10")
    options = ("--kernels", "lin,log", "--report-top10-error", "--max-update", 10)
    return Trained(folder, fairseq(*lm_training(lm_data, folder, *options)))


def test_mixtures_report_the_top10_error(mixture):
    """In validation, that of the log-probabilities; where it isn't asked for there is none."""
    valid = logged(mixture.result, "valid")[-1]
    model, task = load(mixture.folder)
    assert 0 < valid["top10_error"] < 1
    assert valid["top10_error"] == pytest.approx(top10_error(model, task), abs=1e-4)
    assert all("top10_error" not in line for line in logged(mixture.result, "train"))
    with torch.no_grad():
        logs = [
            KernelMixtureCrossEntropy(task, False, 0.0, 0.0, *asked)(model, batches(task)[0])[2]
            for asked in ((), (True,))
        ]
    assert ["top10_errors" in log for log in logs] == [False, True]


# mistakes

TAYLOR, SPHERICAL, SQUARED = (("--output-layer", layer) for layer in ("taylor", "spherical", "squared-error"))
# criterion, options, and what the line must say


def test_a_criterion_refuses_other_models(model_of):
    """Also where another program has built both."""
    model, task = load(model_of("taylor lstm").folder)
    with pytest.raises(SystemExit, match="doesn't fit.*--output-layer taylor"):
        LogSphericalSoftmax(task, False)(model, padded_batch(task))


