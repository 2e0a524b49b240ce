"""Every output layer through fairseq-train: it learns, the saved model has the figures that were logged, and fairseq's
own criterions have the same loss."""

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq_commands import lm_training, mt_training, trainings
from trained_models import batches, figures, load, padded_batch, scores

from fairseq_kernels import KERNELS
from fairseq_kernels.analysis.top10_error import top10_error as measure_top10_error
from fairseq_kernels.output_layers.table import LAYERS

LSTM, TRANSFORMER, TRANSLATION = "kernel_lstm_lm_swb", "kernel_transformer_lm_gpt", "kernel_transformer_iwslt_de_en"
SHARED = "--share-decoder-input-output-embed"
# architecture, output layer, options
MODELS = {
    "all kernels": (LSTM, "kernels", "--kernels", ",".join(KERNELS), "--label-smoothing", 0.1),
    "untied": (LSTM, "kernels", "--kernels", "lin,2xwav", SHARED, "--untied-projections", "--output-bias", "prior",
               "--kernel-params", "wav.a=learned,wav.scale=learned:10"),
    "one kernel": (LSTM, "kernels", "--kernels", "pol", "--output-bias", "false", "--decoder-out-embed-dim", 8,
                   "--report-top10-error"),
    "transformer": (TRANSFORMER, "kernels", "--kernels", "ssg,sig", SHARED, "--output-bias", "prior",
                    "--kernel-params", "ssg.floor=learned", "--pi-variance-weight", 1),
    "translation": (TRANSLATION, "kernels", "--kernels", "2xlin,rbf", SHARED),
    "all shared": (TRANSLATION, "kernels", "--kernels", "lin,hpb", "--share-all-embeddings", "--untied-projections",
                   "--output-bias", "prior"),
    "taylor": (LSTM, "taylor"),
    "spherical": (LSTM, "spherical", "--output-bias", "false", "--epsilon", 0.1),
    "spherical translation": (TRANSLATION, "spherical"),
    "squared error": (LSTM, "squared-error"),
    "bound": ("kernel_transformer_lm", "softmax-bound"),
}  # fmt: skip


@pytest.fixture(scope="module")
def model_of(lm_data, mt_data, mt_joined_data, tmp_path_factory):
    """One of each of MODELS."""

    def command(folder, arch, layer, *options):
        data = lm_data
        if arch == TRANSLATION:
            data = mt_joined_data if "--share-all-embeddings" in options else mt_data
        train = mt_training if arch == TRANSLATION else lm_training
        plain = () if layer == "kernels" else ("--label-smoothing", 0)
        options = ("--output-layer", layer, *plain, *options)
        return train(data, folder, *options, arch=arch, criterion=LAYERS[layer].criterion)

    return trainings(tmp_path_factory.mktemp("layers"), command, MODELS)


def top10_error(model, task):
    """The share of validation tokens whose word is not among the ten of the highest log-probabilities."""
    missed, tokens = 0, 0
    for batch in batches(task):
        real = batch["target"].ne(task.target_dictionary.pad())
        likeliest = scores(model, batch).topk(10).indices
        missed += likeliest.ne(batch["target"].unsqueeze(2)).all(2)[real].sum().item()
        tokens += real.sum().item()
    return missed / tokens


@pytest.mark.parametrize("name", MODELS)
def test_train(name, model_of):
    """Training logs no perplexity where the loss is another one; matrices are shared as told."""
    trained, (arch, own, *options) = model_of(name), MODELS[name]
    model, task = load(trained.folder)
    epochs, valid = figures(trained, model, task)
    is_likelihood = own not in ("squared-error", "softmax-bound")
    assert all(("nll_loss" in line) == ("ppl" in line) == is_likelihood for line in epochs)
    criterion = torch.load(trained.last, weights_only=True)["cfg"]["criterion"]
    more = criterion.get("label_smoothing") or criterion.get("pi_variance_weight")
    assert not is_likelihood or (valid["loss"] > valid["nll_loss"]) == bool(more)
    assert any(key.startswith("pi_") for key in valid) == (own == "kernels" and "," in options[1])  # mixtures only
    assert ("top10_error" in valid) == (own != "kernels" or "--report-top10-error" in options)
    if "top10_error" in valid:
        assert 0 < valid["top10_error"] == pytest.approx(top10_error(model, task), abs=1e-4)
    assert all("top10_error" not in line for line in epochs)

    decoder, layer = model.decoder, model.decoder.output_projection
    assert (layer.weight is decoder.embed_tokens.weight) == any("share" in str(option) for option in options)
    if arch == TRANSLATION:
        assert (layer.weight is model.encoder.embed_tokens.weight) == ("--share-all-embeddings" in options)
    without = own == "kernels" and arch == TRANSLATION and "--output-bias" not in options  # as the stock model
    assert (layer.bias is None) == ("false" in options or without)
    assert own != "kernels" or (len(layer.matrices()) > 1) == ("--untied-projections" in options)


def test_the_analysis_of_the_top10_error(model_of):
    """In blocks across sentences, unlike validation's."""
    trained = model_of("taylor")
    model, task = load(trained.folder)
    measured = measure_top10_error(task.args.data, trained.last, "valid")
    task.args.sample_break_mode = "none"
    assert 0 < measured == pytest.approx(top10_error(model, task), abs=1e-4)


@pytest.mark.parametrize("name, smoothing", [
    ("untied", 0.0), ("untied", 0.1), ("one kernel", 0.1), ("taylor", 0.0), ("spherical", 0.0),
    ("spherical translation", 0.0),
])  # fmt: skip
def test_stock_criterions_give_the_same_loss(name, smoothing, model_of):
    """cross_entropy and label_smoothed_cross_entropy, on the same model: loss, gradients and logs."""
    model, task = load(model_of(name).folder)
    batch, layer = padded_batch(task), MODELS[name][1]
    own = CRITERION_REGISTRY[LAYERS[layer].criterion](task, False, *((smoothing, 0.0) if layer == "kernels" else ()))
    stock = CrossEntropyCriterion(task, False)
    if smoothing:
        stock = LabelSmoothedCrossEntropyCriterion(task, False, smoothing)
    results = []
    for criterion in (own, stock):
        loss, sample_size, log = criterion(model.train(), batch)
        gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        results.append((loss, sample_size, gradients, log))
        with torch.no_grad():
            torch.testing.assert_close(criterion(model.eval(), batch)[0], loss.detach(), rtol=1e-5, atol=0)
    (ours, size, gradients, log), (plain, stock_size, stock_gradients, stock_log) = results
    assert size == stock_size and log["ntokens"] == stock_log["ntokens"]
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=0)  # float32, summed over some 100 tokens
    torch.testing.assert_close(gradients, stock_gradients, rtol=1e-3, atol=1e-4)
    if smoothing:
        torch.testing.assert_close(log["nll_loss"], stock_log["nll_loss"], rtol=1e-5, atol=0)
    each, _, _ = own(model, batch, reduce=False)
    assert each.shape == (batch["target"].numel(),)
    torch.testing.assert_close(each.sum(), ours, rtol=1e-5, atol=0)
    assert each.view_as(batch["target"])[batch["target"].eq(task.target_dictionary.pad())].eq(0).all()
