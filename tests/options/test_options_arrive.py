"""Options of the command line and of the profiles reach what they are of, in this process and without a training."""

import math
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import Dictionary, indexed_dataset
from fairseq.logging import metrics

import fairseq_kernels.fairseq_plugin  # noqa: F401
from fairseq_kernels.experiments import evaluation, training, workflow
from fairseq_kernels.experiments.commands import Failed
from fairseq_kernels.experiments.data import Corpus
from fairseq_kernels.models import KernelLSTMLanguageModel
from fairseq_kernels.models.kernel_lstm_lm import KernelLSTMLanguageModelConfig
from fairseq_kernels.models.output_layer_config import OutputLayerConfig, build_output_layer, with_defaults

KernelMixtureCrossEntropy = CRITERION_REGISTRY["kernel_mixture_cross_entropy"]


@pytest.fixture
def dictionary():
    words = Dictionary()
    for word in "a b c d e f".split():
        words.add_symbol(word, 5)
    return words


def task(dictionary, **options):
    return SimpleNamespace(
        target_dictionary=dictionary, source_dictionary=dictionary, cfg=Namespace(data="", **options), args=None
    )


def layer(dictionary, where=None, **options):
    cfg = with_defaults(Namespace(**options), OutputLayerConfig)
    return build_output_layer(cfg, where or task(dictionary), dictionary, 8)


# the output layer


def test_memory(dictionary):
    assert layer(dictionary).memory_budget is None
    for name in ("kernels", "taylor", "kerbs"):
        assert layer(dictionary, output_layer=name, output_memory_mib=3).memory_budget == 3 << 20


def test_kernels(dictionary):
    own = layer(dictionary, kernels="2xlog", kernel_params="log.p=3", untied_projections=True, output_bias="false")
    assert own.component_names() == ["log1", "log2"] and own.kernels[1].value("p") == 3
    assert len(own.untied_weights) == 1 and own.bias is None
    assert layer(dictionary, output_bias=False).bias is None  # from Python
    assert layer(dictionary, latent_projection=True).latent_projection is not None  # as checkpoints of version 0.2
    assert isinstance(layer(dictionary, latent_projection="linear").latent_activation, torch.nn.Identity)
    assert layer(dictionary, latent_projection="False").latent_projection is None
    started = []
    for factor in (1.0, 4.0):
        torch.manual_seed(0)
        started.append(layer(dictionary, output_init=factor).weight)
    assert torch.equal(started[1], 4 * started[0])


def test_spherical(dictionary):
    assert layer(dictionary, output_layer="spherical", epsilon=0.5).function.epsilon == 0.5


def test_kerbs(dictionary):
    own = layer(
        dictionary, output_layer="kerbs", senses="2x", kerbs_kernel="positive", kerbs_theta=0.7, kerbs_min_senses=2,
        kerbs_max_senses=7, kerbs_share=0.25, kerbs_rate=0.125, kerbs_reallocate_every=9,
    )  # fmt: skip
    settings = own.allocation.settings
    assert (settings.every, settings.share, settings.rate) == (9, 0.25, 0.125)
    assert (settings.minimum, settings.maximum) == (2, 7)
    assert own.num_senses == 2 * len(dictionary) and own.positive_only and own.theta.eq(0.7).all()
    none = layer(dictionary, output_layer="kerbs", senses="14", kerbs_kernel="none", kerbs_reallocate_every=0)
    assert none.num_senses == 14 and none.theta is None and none.allocation is None and none.bias is None
    assert layer(dictionary, output_layer="kerbs", senses="1.5x").num_senses == 15


@pytest.mark.parametrize("source, target", [("de", "en"), ("en", "de")])
def test_the_prior_is_of_the_target_in_either_direction(source, target, dictionary, tmp_path):
    """One binarised pair serves both: its files are named after the direction of the preparation."""
    sentences = {"de": [[4, 4, 4, 5, 2]], "en": [[8, 8, 2], [9, 2]]}
    for language, lines in sentences.items():
        prefix = tmp_path / f"train.de-en.{language}"
        builder = indexed_dataset.make_builder(f"{prefix}.bin", impl="mmap", vocab_size=len(dictionary))
        for line in lines:
            builder.add_item(torch.tensor(line))
        builder.finalize(f"{prefix}.idx")
    both = task(dictionary, source_lang=source, target_lang=target)
    both.cfg.data = str(tmp_path)
    own = layer(dictionary, both, output_bias="prior")
    counts = torch.ones(len(dictionary))
    for word in (word for line in sentences[target] for word in line):
        counts[word] += 1
    torch.testing.assert_close(own.bias.detach(), (counts / counts.sum()).log())


def test_without_training_data_the_prior_is_the_dictionary_s(dictionary):
    counts = torch.tensor(dictionary.count) + 1.0
    own = layer(dictionary, output_bias="prior")
    torch.testing.assert_close(own.bias.detach(), (counts / counts.sum()).log())


# the language model


def model(dictionary, **options):
    sizes = {f"decoder_{size}": 16 for size in ("embed_dim", "hidden_size", "out_embed_dim")}
    cfg = KernelLSTMLanguageModelConfig(**{**sizes, "max_target_positions": None, **options})
    return KernelLSTMLanguageModel.build_model(cfg, task(dictionary))


def test_dropout(dictionary):
    """Behind the embedded words, and behind each layer of the LSTM: between them, too."""
    decoder = model(dictionary, decoder_layers=3, decoder_dropout_in=0.25, decoder_dropout_out=0.5).decoder
    assert decoder.dropout_in_module.p == 0.25 and decoder.dropout_out_module.p == 0.5
    assert decoder.lstm.dropout == 0.5 and decoder.lstm.num_layers == 3
    assert model(dictionary, decoder_layers=1, decoder_dropout_out=0.5).decoder.lstm.dropout == 0
    decoder = model(dictionary, decoder_layers=2, dropout=0.125).decoder
    assert decoder.dropout_in_module.p == decoder.dropout_out_module.p == decoder.lstm.dropout == 0.125


@pytest.mark.parametrize("untied", [False, True])
def test_start_of_the_projection_matrices(untied, dictionary):
    """Uniform in ±0.1 as fairseq's LSTM has them, unless shared with the embeddings, which are normal."""
    torch.manual_seed(0)
    own = model(dictionary, kernels="2xlog", untied_projections=untied).decoder.output_projection
    for matrix in own.matrices():
        assert 0.09 < matrix.abs().max() <= 0.1 and 0.04 < matrix.std() < 0.08
    shared = model(dictionary, share_decoder_input_output_embed=True).decoder
    assert shared.output_projection.weight is shared.embed_tokens.weight


def test_sizes(dictionary):
    own = model(dictionary, decoder_hidden_size=24, decoder_out_embed_dim=8).decoder
    assert own.lstm.hidden_size == 24 and own.lstm.input_size == 16 and own.output_projection.embed_dim == 8
    assert model(dictionary, max_target_positions=77).decoder.max_target_positions == 77
    assert model(dictionary).decoder.max_target_positions == 100_000  # in effect any number


# the criterion


@pytest.mark.parametrize("by_sentence, size", [(False, 5), (True, 2)])
def test_sentence_avg(by_sentence, size, dictionary):
    """The trainer divides by what it is told: words, or sentences."""
    target = torch.tensor([[4, 5, 2], [6, 2, 1]])
    sample = {"target": target, "ntokens": 5, "net_input": {"src_tokens": target}}
    criterion = KernelMixtureCrossEntropy(task(dictionary), by_sentence)
    _, sample_size, log = criterion(model(dictionary), sample)
    assert sample_size == log["sample_size"] == size
    assert log["ntokens"] == 5 and log["nsentences"] == 2


def test_variance_weight(dictionary):
    """rho times the variance of the words' mixture weights; padding has none."""
    target = torch.tensor([[4, 5, 2], [6, 2, 1]])
    sample = {"target": target, "ntokens": 5, "net_input": {"src_tokens": target}}
    own = model(dictionary, kernels="2xlin", dropout=0.0)
    losses = [KernelMixtureCrossEntropy(task(dictionary), False, 0.0, rho)(own, sample)[0] for rho in (0.0, 3.0)]
    features, _ = own.decoder.extract_features(target)
    variance = own.output_layer_module.observe(features)["pi_variance"]
    torch.testing.assert_close(losses[1] - losses[0], 3 * variance[target != 1].sum(), rtol=1e-4, atol=1e-6)


def test_logged_values():
    """Of two batches: the loss by what the trainer divided by, all else by words; base 2, as fairseq's."""
    batches = [
        {"loss": 6.0, "nll_loss": 4.0, "ntokens": 4, "nsentences": 2, "sample_size": 2, "pi_variance": 0.2},
        {"loss": 2.0, "nll_loss": 2.0, "ntokens": 2, "nsentences": 1, "sample_size": 1, "pi_variance": 0.4},
    ]
    with metrics.aggregate() as aggregated:
        KernelMixtureCrossEntropy.reduce_metrics([{**batch, "top10_errors": 3} for batch in batches])
    values = aggregated.get_smoothed_values()
    assert values["loss"] == pytest.approx(8 / 3 / math.log(2), abs=1e-3)
    assert values["nll_loss"] == pytest.approx(1 / math.log(2), abs=1e-3)
    assert values["ppl"] == pytest.approx(math.e, abs=0.01)
    assert values["pi_variance"] == 0.1 and values["pi_variance_pp2"] == 1000 and values["top10_error"] == 1


# scripts, on a machine with GPUs and on one without


@pytest.fixture
def corpora(tmp_path):
    """Folders with the names of binarised data, enough to make commands of."""
    folders = {}
    names_of = {"lm": ("dict.txt", "test.idx"), "mt": ("dict.de.txt", "dict.en.txt", "test.de-en.en.idx")}
    for kind, names in names_of.items():
        folders[kind] = tmp_path / kind
        (folders[kind] / "data-bin").mkdir(parents=True)
        for name in names:
            (folders[kind] / "data-bin" / name).touch()
    (folders["mt"] / "test.ref.en").touch()
    return {kind: Corpus.at(folder) for kind, folder in folders.items()}


@pytest.fixture
def evaluated(monkeypatch):
    """The arguments with which evaluations would call fairseq."""
    calls = []

    def run(command, parser, arguments, log):
        calls.append(arguments)
        perplexity = "Evaluated 1,234 tokens in 5s\nLoss (base 2): 5.0, Perplexity: 32.00\n"
        return nullcontext(f"{perplexity}Generate x: BLEU4 = 12.34, 1\n")

    monkeypatch.setattr(evaluation, "run", run)
    monkeypatch.setattr(evaluation, "load", {Path("a.pt"): {"cfg": {"task": {"tokens_per_sample": 70}}}}.get)
    monkeypatch.setattr(evaluation, "sacrebleu_of", lambda *_: (23.456, "signature"))
    return calls


def test_evaluation(corpora, evaluated, tmp_path):
    log = tmp_path / "log"
    assert evaluation.perplexity(corpora["lm"], "a.pt", "test", log) == [
        {"split": "test", "metric": "ppl", "value": 32.0, "words": 1234}
    ]
    tokenised, detokenised = evaluation.bleu(corpora["mt"], "a.pt", "test", log, ["--lenpen", "2"])
    assert tokenised == {"split": "test", "metric": "bleu", "value": 12.34}
    assert detokenised == {"split": "test", "metric": "sacrebleu", "value": 23.46, "signature": "signature"}
    perplexity, bleu = (" ".join(arguments) for arguments in evaluated)
    assert "--gen-subset test --sample-break-mode none --tokens-per-sample 35 --batch-size 32" in perplexity
    assert "--gen-subset test --remove-bpe=subword_nmt --beam 5 --max-tokens 8000" in bleu
    assert bleu.endswith("--lenpen 2")
    for words in (perplexity, bleu):
        assert "--required-batch-size-multiple 1 --distributed-world-size 1" in words and "--path a.pt" in words


def test_a_translation_without_target(corpora, tmp_path):
    (corpora["mt"].binarised / "test.de-en.en.idx").unlink()
    with pytest.raises(ValueError, match="has test in one language only; prepare it with both"):
        evaluation.bleu(corpora["mt"], "a.pt", "test", tmp_path / "log")


@pytest.mark.parametrize(
    "content", [{"cfg": {"task": {"tokens_per_sample": 20}}}, {"cfg": None, "args": Namespace(tokens_per_sample=20)}]
)
def test_blocks_are_no_longer_than_the_model_s(content, corpora, evaluated, monkeypatch, tmp_path):
    models = {Path("a.pt"): {"cfg": {"task": {"tokens_per_sample": 35}}}, Path("b.pt"): content}
    monkeypatch.setattr(evaluation, "load", models.get)
    evaluation.perplexity(corpora["lm"], "a.pt:b.pt", "test", tmp_path / "log")
    assert "--tokens-per-sample 20 " in " ".join(evaluated[0])


def test_subwords_are_joined_as_they_were_made(corpora, evaluated, tmp_path):
    (corpora["mt"].folder / "test.en").write_text("▁a ▁b c\n", encoding="utf-8")
    evaluation.bleu(corpora["mt"], "a.pt", "test", tmp_path / "log")
    (corpora["mt"].folder / "test.en").write_text("▁a ▁b c\n\nd▁@@ e\n", encoding="utf-8")
    evaluation.bleu(corpora["mt"], "a.pt", "test", tmp_path / "log")
    assert "--remove-bpe=sentencepiece" in evaluated[0] and "--remove-bpe=subword_nmt" in evaluated[1]


def test_a_model_that_gives_no_number_has_no_perplexity(corpora, monkeypatch, tmp_path):
    for value in ("nan", "inf"):
        text = f"Evaluated 12 tokens in 5s\nLoss (base 2): {value}, Perplexity: {value}\n"
        monkeypatch.setattr(evaluation, "run", lambda *_, text=text: nullcontext(text))
        monkeypatch.setattr(evaluation, "load", lambda _: {})
        with pytest.raises(Failed, match=f"perplexity {value} on test: the model is broken"):
            evaluation.perplexity(corpora["lm"], "a.pt", "test", tmp_path / "log")


@pytest.mark.parametrize("has_gpu", [False, True])
def test_device(has_gpu, corpora, evaluated, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert ("--cpu" in training.command(corpora["lm"], "cpu", (), tmp_path)) != has_gpu
    evaluation.perplexity(corpora["lm"], "a.pt", "test", tmp_path / "log")
    assert ("--cpu" in evaluated[0]) != has_gpu
    assert training.default_profile() == ("paper" if has_gpu else "cpu")


def test_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert workflow.gpus() == ["0", "1", "2"] and workflow.devices(4) == ["0", "1", "2", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert workflow.gpus() == ["4", "7"] and workflow.devices(1) == ["4"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert workflow.gpus() == workflow.devices(2) == []


def test_defaults_of_a_table(tmp_path):
    arguments = workflow.parse(["table1", str(tmp_path)])
    assert arguments.seeds == [1] and arguments.jobs == (len(workflow.gpus()) or workflow.cores())
    assert arguments.results == Path("checkpoints/results")
