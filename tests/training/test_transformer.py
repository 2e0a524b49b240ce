"""The translation model through fairseq's own commands, and its decoding against full forward passes."""

import math
from argparse import Namespace
from functools import partial

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.sequence_generator import SequenceGenerator
from fairseq_commands import ALL_SENTENCES, fairseq, mt_training, trainings
from trained_models import batches, load

import fairseq_kernels.fairseq_plugin  # noqa: F401
from fairseq_kernels.models import KernelTransformer

MODELS = {"log": ("--kernels", "log"), "mixture": ("--kernels", "2xlin,rbf", "--share-decoder-input-output-embed")}


@pytest.fixture(scope="module")
def model_of(mt_data, tmp_path_factory):
    """One of each of MODELS."""
    return trainings(tmp_path_factory.mktemp("translation"), partial(mt_training, mt_data), MODELS)


@pytest.fixture
def built(model_of):
    """A new model of the trained ones' sizes by its kernels and options, its task, and a batch."""
    trained = model_of("log")
    _, task = load(trained.folder)
    settings = torch.load(trained.last, weights_only=True)["cfg"]["model"]

    def build(kernels, **options):
        torch.manual_seed(0)
        values = {**settings, "kernels": kernels, "kernel_params": None, "output_bias": "false", **options}
        return KernelTransformer.build_model(Namespace(**values), task).eval(), task, batches(task)[0]

    return build


def test_layers_to_keep(model_of):
    """As fairseq reads them from the command line, for models trained with LayerDrop."""
    layers = {"decoder_layers_to_keep": "1", "encoder_layers_to_keep": "0"}
    [model], _, _ = load_model_ensemble_and_task([str(model_of("log").last)], arg_overrides=layers)
    assert len(model.encoder.layers) == len(model.decoder.layers) == 1


def rescored(model, batch, sentence, tokens):
    """Log-probabilities (T, V) of a hypothesis by one full forward pass."""
    inputs = {key: batch["net_input"][key][sentence : sentence + 1] for key in ("src_tokens", "src_lengths")}
    previous = torch.cat([tokens[-1:], tokens[:-1]]).unsqueeze(0)  # </s> first
    with torch.no_grad():
        return model.get_normalized_probs(model(**inputs, prev_output_tokens=previous), log_probs=True)[0]


@pytest.mark.parametrize("kernels, temperature", [("log", 1), ("lin,mog,hpb,wav", 1), ("lin", 3), ("3xlin,log", 3)])
def test_beam_search_is_the_full_forward(kernels, temperature, built):
    """Scores found with incremental state are those of a full forward pass over the hypothesis. A temperature T acts on
    the final distribution: p_T(v) is proportional to p(v)^(1/T), whatever the kernel."""
    model, task, batch = built(kernels, output_bias="true", untied_projections="mog," in kernels)
    limits = {"max_len_a": 0, "max_len_b": 7, "temperature": temperature}
    actual = SequenceGenerator([model], task.target_dictionary, beam_size=3, **limits).generate([model], batch)
    assert len(actual) == len(batch["id"]) and all(len(hypotheses) == 3 for hypotheses in actual)
    for sentence, hypotheses in enumerate(actual):
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"]
            log_p = (rescored(model, batch, sentence, tokens) / temperature).log_softmax(1)
            expected = log_p.gather(1, tokens.unsqueeze(1)).squeeze(1)
            # the last word is forced to be </s> at the length limit, with its own probability
            torch.testing.assert_close(hypothesis["positional_scores"], expected, rtol=1e-4, atol=1e-4)


def test_an_ensemble_of_different_kernels(model_of, mt_data):
    """A translation of every sentence."""
    path = ":".join(str(model_of(name).last) for name in MODELS)
    search = ("--gen-subset", "test", "--batch-size", 8, "--beam", 2, "--max-len-b", 12, *ALL_SENTENCES)
    result = fairseq("generate", mt_data, "--path", path, *search)
    actual = [line[2:].split("\t") for line in result.out.splitlines() if line.startswith("H-")]
    assert sorted(int(number) for number, _, _ in actual) == list(range(21))
    assert all(math.isfinite(float(score)) and float(score) < 0 for _, score, _ in actual)
    assert "BLEU4 = " in result.out
