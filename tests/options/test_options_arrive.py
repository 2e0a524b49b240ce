"""Options reach what they are of, in this process and without a training."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary, indexed_dataset
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY
from fairseq.models.lstm_lm import LSTMLanguageModel

import fairseq_kernels.fairseq_plugin  # noqa: F401
from fairseq_kernels import AllocationSettings, GeneralizedSoftmax, register_output_layer
from fairseq_kernels.models import KernelLSTMLanguageModel
from fairseq_kernels.models.kernel_lstm_lm import KernelLSTMLanguageModelConfig
from fairseq_kernels.models.output_layer_config import OutputLayerConfig, build_output_layer, with_defaults
from fairseq_kernels.output_layers.table import LAYERS


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
    return build_output_layer(cfg, where or task(dictionary), 8)


def test_memory_and_epsilon(dictionary):
    assert layer(dictionary, output_layer="spherical", epsilon=0.5).epsilon == 0.5
    assert layer(dictionary, output_layer="spherical").epsilon == 0.0198  # the paper's
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


def test_a_layer_registered_again(dictionary, monkeypatch):
    """As a module of --user-dir that is imported twice: the last one counts."""
    monkeypatch.setitem(LAYERS, "own", None)
    first, last = (register_output_layer("own")(type("Own", (GeneralizedSoftmax,), {})) for _ in range(2))
    assert type(layer(dictionary, output_layer="own")) is last is not first


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
    plain = layer(dictionary, output_layer="kerbs")  # as docs/kernels.md has the defaults
    assert plain.allocation.settings == AllocationSettings(500, 0.01, 1, 4, 0.005, 0.5, 0.1)
    assert plain.num_senses == 30 and not plain.positive_only and plain.theta.eq(0).all()


@pytest.mark.parametrize("source, target", [("de", "en"), ("en", "de"), (None, None)])
def test_the_prior_is_of_the_target_in_either_direction(source, target, dictionary, tmp_path):
    """One binarised pair serves both: its files are named after the direction of the preparation; or a text alone."""
    sentences = {"de": [[4, 4, 4, 5, 2]], "en": [[8, 8, 2], [9, 2]], None: [[7, 2]]}
    for language, lines in sentences.items():
        prefix = tmp_path / (f"train.de-en.{language}" if language else "train")
        builder = indexed_dataset.make_builder(f"{prefix}.bin", impl="mmap", vocab_size=len(dictionary))
        for line in lines:
            builder.add_item(torch.tensor(line))
        builder.finalize(f"{prefix}.idx")
    both = task(dictionary, source_lang=source, target_lang=target)
    both.cfg.data = f"{tmp_path}:{tmp_path}"  # epochs take them in turn
    own = layer(dictionary, both, output_bias="prior")
    counts = torch.ones(len(dictionary))
    for word in (word for line in sentences[target] for word in line):
        counts[word] += 2
    torch.testing.assert_close(own.bias.detach(), (counts / counts.sum()).log())


@pytest.mark.parametrize("name", ["kernels", "taylor", "spherical", "squared-error", "softmax-bound"])
def test_without_training_data_the_prior_is_the_dictionary_s(name, dictionary):
    """A new layer of the spherical family is the prior by default."""
    counts = torch.tensor(dictionary.count) + 1.0
    own = layer(dictionary, output_layer=name, output_bias="prior" if name == "kernels" else None)
    torch.testing.assert_close(own(torch.zeros(1, 8))[0].exp(), counts / counts.sum(), rtol=1e-4, atol=1e-6)


def model(dictionary, **options):
    sizes = {f"decoder_{size}": 16 for size in ("embed_dim", "hidden_size", "out_embed_dim")}
    cfg = KernelLSTMLanguageModelConfig(**{**sizes, "max_target_positions": None, **options})
    return KernelLSTMLanguageModel.build_model(cfg, task(dictionary))


SHARED, UNTIED = {"share_decoder_input_output_embed": True}, {"kernels": "2xlin", "untied_projections": True}


@pytest.mark.parametrize("options", [{}, SHARED, UNTIED])
def test_start_and_step(dictionary, options):
    """The same layer as scale and start of 0.3 gave; embeddings that share the matrix keep their values. The start is
    uniform in ±0.1 as fairseq's LSTM has it, unless shared with the embeddings, which are normal."""
    decoders = []
    start = {} if options is SHARED else {"output_start": 4.0}
    for given in ({**start, "output_step": 8.0}, {"kernel_params": "lin.scale=8", "output_init": 0.5}, {}):
        torch.manual_seed(0)
        decoders.append(model(dictionary, **given, **options).decoder)
    own, former, plain = (decoder.output_projection for decoder in decoders)
    for matrix, half in zip(plain.matrices(), former.matrices()):
        assert torch.equal(half, matrix / 2)
        assert options is SHARED or 0.09 < matrix.abs().max() <= 0.1 and 0.04 < matrix.std() < 0.08
    assert (plain.weight is decoders[2].embed_tokens.weight) == (options is SHARED)
    assert torch.equal(own.weight, (plain if options is SHARED else former).weight)
    with torch.no_grad():
        former.weight.copy_(own.weight)
    features = torch.randn(5, 16)
    assert torch.equal(own(features), former(features))
    with pytest.raises(SystemExit, match="--output-start 4.0 doesn't fit shared embeddings"):
        model(dictionary, output_start=4.0, **SHARED)


def test_dropout(dictionary):
    """Behind the embedded words, and behind each layer of the LSTM: between them, too."""
    decoder = model(dictionary, decoder_layers=3, decoder_dropout_in=0.25, decoder_dropout_out=0.5).decoder
    assert decoder.dropout_in_module.p == 0.25 and decoder.dropout_out_module.p == 0.5
    assert decoder.lstm.dropout == 0.5 and decoder.lstm.num_layers == 3
    assert model(dictionary, decoder_layers=1, decoder_dropout_out=0.5).decoder.lstm.dropout == 0
    decoder = model(dictionary, decoder_layers=2, dropout=0.125).decoder
    assert decoder.dropout_in_module.p == decoder.dropout_out_module.p == decoder.lstm.dropout == 0.125
    decoder = model(dictionary, decoder_layers=2, dropout=0.125, decoder_dropout_out=0.0).decoder
    assert decoder.dropout_in_module.p == 0.125 and decoder.dropout_out_module.p == 0


def test_sizes(dictionary):
    own = model(dictionary, decoder_hidden_size=24, decoder_out_embed_dim=8).decoder
    assert own.lstm.hidden_size == 24 and own.lstm.input_size == 16 and own.output_projection.embed_dim == 8
    assert model(dictionary, decoder_hidden_size=None).decoder.lstm.hidden_size == 16  # the embeddings'
    assert model(dictionary, max_target_positions=77).decoder.max_target_positions == 77
    assert model(dictionary).decoder.max_target_positions == 100_000  # in effect any number


def sizes(arch, *names, **given):
    args = Namespace(**given)
    ARCH_CONFIG_REGISTRY[arch](args)
    return [getattr(args, name) for name in names]


@pytest.mark.parametrize(
    "arch", [a for model in ("transformer", "transformer_lm") for a in ARCH_MODEL_INV_REGISTRY[model] if a != model]
)
def test_stock_architectures_have_a_twin(arch):
    """kernel_NAME has NAME's settings, but for the adaptive softmax, in whose place the kernels are."""
    stock, ours = Namespace(), Namespace()
    ARCH_CONFIG_REGISTRY[arch](stock)
    ARCH_CONFIG_REGISTRY[f"kernel_{arch}"](ours)
    assert ours.adaptive_softmax_cutoff is None
    adaptive = {key for key in vars(stock) if "adaptive_softmax" in key or key.startswith("tie_adaptive")}
    others = {key: value for key, value in vars(stock).items() if key not in adaptive}
    assert {key: value for key, value in vars(ours).items() if key in others} == others
    model = "kernel_transformer_lm" if "_lm" in arch else "kernel_transformer"
    assert f"kernel_{arch}" in ARCH_MODEL_INV_REGISTRY[model]


def test_the_paper_s_architectures():
    """Switchboard: 2 layers of 512, dropout 0.1 on the embedded words. IWSLT: 512, 1024, 4 heads, 6 + 6 layers."""
    names = ("layers", "embed_dim", "hidden_size", "out_embed_dim", "dropout_in", "dropout_out")
    assert sizes("kernel_lstm_lm_swb", *(f"decoder_{x}" for x in names)) == [2, 512, 512, 512, 0.1, 0.0]
    for side in ("encoder", "decoder"):
        names = [f"{side}_{x}" for x in ("embed_dim", "ffn_embed_dim", "attention_heads", "layers")]
        assert sizes("kernel_transformer_iwslt_de_en", *names) == [512, 1024, 4, 6]
        assert sizes("kernel_transformer_small", *names) == [256, 512, 4, 3]
        assert sizes("kernel_transformer_small", *names, **{names[0]: 8, names[3]: 1}) == [8, 512, 4, 1]


def test_an_lstm_s_default_sizes_are_fairseq_s(dictionary):
    """Those of lstm_lm, with its number of parameters; the bias is a parameter of the output layer."""
    stock = Namespace(criterion="cross_entropy")
    ARCH_CONFIG_REGISTRY["lstm_lm"](stock)
    stock.tokens_per_sample = 5
    stock_task = SimpleNamespace(**vars(task(dictionary)), dictionary=dictionary)
    theirs = LSTMLanguageModel.build_model(stock, stock_task)
    ours = KernelLSTMLanguageModel.build_model(KernelLSTMLanguageModelConfig(max_target_positions=5), task(dictionary))
    counts = [sum(value.numel() for value in own.parameters()) for own in (theirs, ours)]
    assert counts[0] == counts[1]
    assert ours.decoder.dropout_in_module.p == theirs.decoder.dropout_in_module.p == 0.1
