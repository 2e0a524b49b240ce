"""The translation model through fairseq's own commands, and its decoding against full forward passes."""

import math
from argparse import Namespace

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.sequence_generator import SequenceGenerator
from fairseq_commands import ALL_SENTENCES, awaited, fairseq, later, logged, mt_training

import fairseq_kernels.fairseq_plugin  # noqa: F401
from fairseq_kernels import KERNELS
from fairseq_kernels.models import KernelTransformer

# data, options
MODELS = {
    "log": ("mt_data", "--kernels", "log"),
    "mixture, decoder's shared": ("mt_data", "--kernels", "2xlin,rbf", "--share-decoder-input-output-embed"),
    "all shared": ("mt_joined_data", "--kernels", "mog,lin", "--share-all-embeddings", "--output-bias", "prior"),
    "all shared untied": ("mt_joined_data", "--kernels", "lin,hpb", "--share-all-embeddings", "--untied-projections"),
}


@pytest.fixture(scope="module")
def trainings(request, tmp_path_factory):
    """One of each of MODELS, and of the stock model, queued."""
    folder = tmp_path_factory.mktemp("translation")
    queued = {}
    for name, (data, *options) in MODELS.items():
        data = request.getfixturevalue(data)
        queued[name] = folder / name, later(*mt_training(data, folder / name, *options))
    stock = mt_training(
        request.getfixturevalue("mt_data"), folder / "stock", arch="transformer_iwslt_de_en",
        criterion="label_smoothed_cross_entropy",
    )  # fmt: skip
    queued["stock"] = folder / "stock", later(*stock)
    return queued


@pytest.fixture
def model_of(trainings):
    return lambda name: awaited(*trainings[name])


def load(trained):
    """The model in evaluation mode, its configuration and task."""
    [model], cfg, task = load_model_ensemble_and_task([str(trained.last)])
    return model.eval(), cfg, task


def build(cfg, task, kernels, **options):
    """A new model of the same sizes."""
    torch.manual_seed(0)
    values = {**cfg.model, "kernels": kernels, "kernel_params": None, "output_bias": "false", **options}
    return KernelTransformer.build_model(Namespace(**values), task).eval()


def batches(task, split="valid"):
    task.load_dataset(split)
    return list(task.get_batch_iterator(task.dataset(split), max_sentences=8).next_epoch_itr(shuffle=False))


def log_probabilities(model, batch):
    with torch.no_grad():
        return model.get_normalized_probs(model(**batch["net_input"]), log_probs=True)


# training


@pytest.mark.parametrize("name", MODELS)
def test_train(name, model_of):
    """The loss falls, the saved model has the loss that was logged, and matrices are shared as told."""
    trained = model_of(name)
    epochs, valid = logged(trained.result, "train"), logged(trained.result, "valid")[-1]
    assert epochs[-1]["nll_loss"] < epochs[0]["nll_loss"]
    assert valid["loss"] > valid["nll_loss"]  # smoothed
    model, _, task = load(trained)
    loss, tokens = 0.0, 0
    for batch in batches(task):
        real = batch["target"].ne(task.target_dictionary.pad())
        loss -= log_probabilities(model, batch).gather(2, batch["target"].unsqueeze(2)).squeeze(2)[real].sum().item()
        tokens += real.sum().item()
    assert loss / tokens / math.log(2) == pytest.approx(valid["nll_loss"], abs=1e-3)

    weight, layer = model.decoder.output_projection.weight, model.decoder.output_projection
    options = MODELS[name]
    assert (weight is model.decoder.embed_tokens.weight) == any("share" in str(option) for option in options)
    assert (weight is model.encoder.embed_tokens.weight) == ("--share-all-embeddings" in options)
    assert len(layer.matrices()) == (2 if "--untied-projections" in options else 1)
    assert (layer.bias is None) == ("--output-bias" not in options)


def test_stock_weights_load_into_a_mixture(model_of):
    """Encoder, decoder and projection matrix; the maps of the mixture start anew."""
    _, cfg, task = load(model_of("log"))
    ours = build(cfg, task, "lin,log", output_bias="true")
    state = torch.load(model_of("stock").last, weights_only=True)["model"]
    ours.load_state_dict(dict(state))
    actual = ours.state_dict()
    assert all(actual[name].equal(value) for name, value in state.items())


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_checkpoint_of_other_dictionaries_is_refused(side, model_of):
    """In a line that has both sizes."""
    trained = model_of("log")
    model, _, _ = load(trained)
    state = torch.load(trained.last, weights_only=True)["model"]
    for name in (f"{side}.embed_tokens.weight", f"{side}.output_projection.weight"):
        if name in state:
            state[name] = state[name][:8]
    with pytest.raises(SystemExit, match="8 words.* 24"):
        model.load_state_dict(state)


# architectures


@pytest.mark.parametrize("arch", ["kernel_transformer", "kernel_transformer_iwslt_de_en"])
def test_layers_to_keep(arch, model_of, tmp_path):
    """As fairseq reads them from the command line, for models trained with LayerDrop."""
    state = torch.load(model_of("log").last, weights_only=True)
    state["cfg"]["model"]["_name"] = state["cfg"]["model"]["arch"] = arch
    torch.save(state, tmp_path / "checkpoint.pt")
    layers = {"decoder_layers_to_keep": "1", "encoder_layers_to_keep": "0"}
    [model], _, _ = load_model_ensemble_and_task([str(tmp_path / "checkpoint.pt")], arg_overrides=layers)
    assert len(model.encoder.layers) == len(model.decoder.layers) == 1


# decoding in Python


def rescored(model, batch, sentence, tokens):
    """Log-probabilities (T, V) of a hypothesis by one full forward pass."""
    inputs = {key: batch["net_input"][key][sentence : sentence + 1] for key in ("src_tokens", "src_lengths")}
    previous = torch.cat([tokens[-1:], tokens[:-1]]).unsqueeze(0)  # </s> first
    with torch.no_grad():
        return model.get_normalized_probs(model(**inputs, prev_output_tokens=previous), log_probs=True)[0]


@pytest.mark.parametrize("kernels", [*KERNELS, "3xlin,log", "lin,mog,hpb,wav"])
def test_beam_search_is_the_full_forward(kernels, model_of):
    """Scores found with incremental state are those of a full forward pass over the hypothesis."""
    _, cfg, task = load(model_of("log"))
    model = build(cfg, task, kernels, output_bias="true", untied_projections="mog," in kernels)
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=3, max_len_a=0, max_len_b=7)
    batch = batches(task)[0]
    actual = generator.generate([model], batch)
    assert len(actual) == len(batch["id"]) and all(len(hypotheses) == 3 for hypotheses in actual)
    for sentence, hypotheses in enumerate(actual):
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"]
            log_p = rescored(model, batch, sentence, tokens)
            expected = log_p.gather(1, tokens.unsqueeze(1)).squeeze(1)
            # the last word is forced to be </s> at the length limit, with its own probability
            torch.testing.assert_close(hypothesis["positional_scores"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernels", ["lin", "log", "rbf", "3xlin,log"])
def test_temperature_acts_on_the_final_distribution(kernels, model_of):
    """p_T(v) is proportional to p(v)^(1/T), whatever the kernel."""
    _, cfg, task = load(model_of("log"))
    model = build(cfg, task, kernels)
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=2, max_len_a=0, max_len_b=6, temperature=3)
    batch = batches(task)[0]
    for sentence, hypotheses in enumerate(generator.generate([model], batch)):
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"]
            p = rescored(model, batch, sentence, tokens).exp() ** (1 / 3)
            expected = (p / p.sum(1, keepdim=True)).log().gather(1, tokens.unsqueeze(1)).squeeze(1)
            torch.testing.assert_close(hypothesis["positional_scores"], expected, rtol=1e-4, atol=1e-4)


# decoding by fairseq's commands


def hypotheses(result):
    """(sentence, score, text) of every hypothesis."""
    lines = [line[2:].split("\t") for line in result.out.splitlines() if line.startswith("H-")]
    return [(int(number), float(score), text) for number, score, text in lines]


GENERATION = {
    "beam": ("--beam", 3, "--nbest", 2),
    "sampling": ("--sampling", "--temperature", 0.5, "--beam", 2, "--nbest", 2),
    "ensemble of kernels": ("--beam", 2),
}


@pytest.mark.parametrize("how", GENERATION)
def test_generate(how, model_of, mt_data):
    """A translation or more of every sentence; an ensemble may have different kernels."""
    paths = [str(model_of(name).last) for name in ("log", "mixture, decoder's shared")]
    path = ":".join(paths if "ensemble" in how else paths[1:])
    result = fairseq(
        "generate", mt_data, "--path", path, "--gen-subset", "test", "--batch-size", 8, *ALL_SENTENCES,
        "--max-len-b", 12, *GENERATION[how],
    )  # fmt: skip
    actual = hypotheses(result)
    assert sorted({number for number, _, _ in actual}) == list(range(21))
    assert len(actual) == 21 * (1 if "ensemble" in how else 2)
    assert all(math.isfinite(score) and score < 0 for _, score, _ in actual)
    assert "BLEU4 = " in result.out


