"""Language models through fairseq's own commands: training, its logs and checkpoints, evaluation, generation."""

import math
import socket

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data.data_utils import load_indexed_dataset
from fairseq_commands import LM_TASK, fairseq, lm_training, logged, start
from trained_models import decodes_step_by_step, load, loss_of, padded_batch, parameters

import fairseq_kernels.fairseq_plugin  # noqa: F401
from fairseq_kernels import checkpoint
from fairseq_kernels.models import KernelLSTMLanguageModel
from fairseq_kernels.models.kernel_lstm_lm import KernelLSTMLanguageModelConfig

KernelMixtureCrossEntropy = CRITERION_REGISTRY["kernel_mixture_cross_entropy"]


def build(task, kernels, **options):
    """A new LSTM language model of the tests' size."""
    cfg = KernelLSTMLanguageModelConfig(
        kernels=kernels, decoder_embed_dim=16, decoder_hidden_size=16, decoder_out_embed_dim=16, decoder_layers=2,
        dropout=0.0, max_target_positions=None, **options,
    )  # fmt: skip
    return KernelLSTMLanguageModel.build_model(cfg, task)


def test_eval_lm_in_longer_blocks(mixture_lm, lm_data):
    """fairseq's default of 1,024 words, too, is no reason for it to leave out text and say "Perplexity: 1.00"."""
    test = load_indexed_dataset(str(lm_data / "test"))  # which holds the sizes' memory
    assert f"Evaluated {test.sizes.sum():,} tokens" in fairseq("eval_lm", lm_data, "--path", mixture_lm.last).text


@pytest.mark.parametrize("command", ["eval_lm", "validate"])
def test_a_broken_model_has_no_perplexity(command, mixture_lm, lm_data, tmp_path):
    state = torch.load(mixture_lm.last, weights_only=True)
    state["model"]["decoder.embed_tokens.weight"].fill_(math.nan)
    torch.save(state, tmp_path / "nan.pt")
    options = LM_TASK if command == "validate" else LM_TASK[2:]
    result = start(command, lm_data, "--path", tmp_path / "nan.pt", *options, "--batch-size", 8).wait()
    assert result.code == 1 and "ppl" not in result.text and "Perplexity" not in result.text
    assert result.err.splitlines()[-1].startswith("fairseq_kernels: error: the model gives NaN: its training diverged")


def test_training_log(mixture_lm):
    """Loss, perplexity, each component's mean weight under its kernel's name and pi's variance, in all log lines."""
    digits = []
    for kind in ("train_inner", "train", "valid"):
        line = logged(mixture_lm.result, kind)[-1]
        digits += [round(1e4 * line["pi_lin1"]) % 100, round(100 * line["pi_variance_pp2"]) % 100]
        weights = [line[f"pi_{name}"] for name in ("lin1", "lin2", "log")]
        assert sum(weights) == pytest.approx(1, abs=2e-4)  # each rounded to 4 decimals
        assert {"loss", "nll_loss", "ppl"} <= set(line)
        # 1e4 times the same number, which is rounded to 4 decimals
        assert line["pi_variance_pp2"] == pytest.approx(1e4 * line["pi_variance"], abs=0.51)
        assert 0 < line["pi_variance"] < 2 / 9  # the most for three weights
    assert any(digits[::2]) and any(digits[1::2])  # the third and fourth decimal, and the first and second


def test_a_criterion_of_fairseq_s(mixture_lm, lm_data, tmp_path):
    """Its validation decodes: the logged loss is that of the epoch's checkpoint. It saves no memory, which is said."""
    result = fairseq(*lm_training(lm_data, tmp_path, "--kernels", "log", criterion="cross_entropy"))
    valid = logged(result, "valid")
    assert len(valid) >= 2
    assert valid[-1]["loss"] == pytest.approx(loss_of(*load(tmp_path)), abs=1e-3)
    assert result.text.count("no memory is saved") == 1 and "no memory is saved" not in mixture_lm.result.text


def test_variance_of_the_mixture_weights(mixture_lm):
    """rho times the sum over tokens, padding left out, of the population variance of their K weights."""
    model, task = load(mixture_lm.folder)
    batch = padded_batch(task)
    plain, _, _ = KernelMixtureCrossEntropy(task, False, 0.0, 0.0)(model, batch)
    loss, _, log = KernelMixtureCrossEntropy(task, False, 0.0, 3.0)(model, batch)
    each, _, _ = KernelMixtureCrossEntropy(task, False, 0.0, 3.0)(model, batch, reduce=False)
    torch.testing.assert_close(each.sum(), loss, rtol=1e-5, atol=0)
    features, _ = model.decoder.extract_features(batch["net_input"]["src_tokens"])
    counted = batch["target"].ne(task.target_dictionary.pad())
    pi = torch.softmax(features[counted] @ model.decoder.output_projection.prior_projection, 1)
    variance = (pi - 1 / 3).square().mean(1).sum()
    torch.testing.assert_close(loss, plain + 3 * variance, rtol=1e-5, atol=0)
    torch.testing.assert_close(log["pi_variance"], variance.detach(), rtol=1e-4, atol=0)
    torch.testing.assert_close(torch.stack([log[f"pi_{n}"] for n in ("lin1", "lin2", "log")]), pi.sum(0).detach())
    assert counted.sum() == log["ntokens"]


def test_stock_lstm_that_shares_its_embeddings(stock_lm):
    """It has no fc_out: its matrix is taken for both, also where ours doesn't share."""
    _, task = load(stock_lm.folder)
    stock = {key: value for key, value in parameters(stock_lm.folder).items() if "fc_out" not in key}
    for shares in (False, True):
        ours = build(task, "lin", share_decoder_input_output_embed=shares)
        torch.nn.init.ones_(ours.output_layer_module.bias)  # as a prior
        ours.load_state_dict(dict(stock))
        assert not ours.output_layer_module.bias.any()  # the matrix was trained without one
        for module in (ours.decoder.embed_tokens, ours.decoder.output_projection):
            assert module.weight.equal(stock["decoder.embed_tokens.weight"])
    with pytest.raises(SystemExit, match="--output-step 2 is not the checkpoint's, whose shared embeddings"):
        build(task, "lin", share_decoder_input_output_embed=True, output_step=2.0).load_state_dict(dict(stock))
    # of two matrices finetuning takes the output's for both; nothing else does
    apart = {**stock, "decoder.output_projection.weight": 2 * stock["decoder.embed_tokens.weight"]}
    with pytest.raises(SystemExit, match="shares input and output embeddings, the checkpoint doesn't"):
        ours.load_state_dict(dict(apart))
    ours.finetuned = True
    ours.load_state_dict(dict(apart))
    assert ours.decoder.embed_tokens.weight.equal(apart["decoder.output_projection.weight"])


def test_training_starts_from_another_output_layer(mixture_lm, lm_data, tmp_path):
    """2xlin,log gives 2xlin its bias, and its matrix by the step; C and M of other sizes start anew. Without
    --finetune-from-model other kernels refuse a checkpoint, that of a finetuning too."""
    options = ("--kernels", "2xlin", "--output-step", 2, "--max-update", 1, "--lr", 0)
    result = fairseq(*lm_training(lm_data, tmp_path, *options, "--finetune-from-model", mixture_lm.last))
    for name, factor in (("weight", 2), ("bias", 1)):
        key = f"decoder.output_projection.{name}"
        assert (factor * parameters(tmp_path)[key]).equal(parameters(mixture_lm.folder)[key])
    said = "from the checkpoint bias, weight; start values: latent_projection, prior_projection; "
    assert said in result.text
    for folder, restored in ((tmp_path, ()), (tmp_path / "other", ("--restore-file", mixture_lm.last))):
        other = start("train", *lm_training(lm_data, folder, "--kernels", "pow", *restored)[1:]).wait()
        assert other.code and "--finetune-from-model" in other.err, other.text[-2000:]


@pytest.mark.parametrize("model", ["mixture_lm", "transformer_lm"])
def test_decoding_step_by_step_is_the_full_forward(model, request):
    decodes_step_by_step(load(request.getfixturevalue(model).folder)[0])


def test_retained_dropout_is_between_the_layers_too(mixture_lm):
    """--retain-dropout, with which fairseq-generate samples from models."""
    _, task = load(mixture_lm.folder)
    batch = padded_batch(task)["net_input"]
    for retained in (False, True):
        model = build(task, "lin").eval()
        model.decoder.lstm.dropout = 0.5
        model.make_generation_fast_(retain_dropout=retained)
        assert torch.equal(model(**batch)[0], model(**batch)[0]) != retained


TWO_PROCESSES = (
    "--kernels", "2xlin,rbf", "--kernel-params", "rbf.gamma=learned", "--share-decoder-input-output-embed",
    "--pi-variance-weight", 0.5, "--label-smoothing", 0.1, "--optimizer", "sgd", "--lr", 0.5, "--max-update", 4,
    "--batch-size", 8,
)  # fmt: skip


@pytest.fixture(scope="module")
def one_process(lm_data, tmp_path_factory):
    """Update i takes the batches that two processes take in their update i: the last one of an epoch of 15 has 3."""
    folder = tmp_path_factory.mktemp("one")
    return folder, fairseq(*lm_training(lm_data, folder, *TWO_PROCESSES, "--update-freq", 4))


@pytest.mark.parametrize("started", ["by fairseq", "by torchrun"])
def test_two_processes_train_as_one(started, one_process, lm_data, tmp_path):
    """Two processes with two batches each as one with all four; in the last update one of them has a single batch."""
    command = lm_training(lm_data, tmp_path, *TWO_PROCESSES, "--update-freq", 2, "--find-unused-parameters")
    if started == "by fairseq":
        processes = [start(*command, "--distributed-world-size", 2)]
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        processes = [start(*command, environment={**shared, "RANK": rank}) for rank in ("0", "1")]
    results = [process.wait() for process in processes]
    assert not any(result.code for result in results), [result.text[-2000:] for result in results]
    folder, one = one_process
    for key in ("loss", "nll_loss", "pi_rbf", "wpb"):
        assert logged(results[0], "train")[-1][key] == pytest.approx(logged(one, "train")[-1][key], rel=2e-3), key
    expected = parameters(folder)
    for name, value in parameters(tmp_path).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6)  # sums in another order


def test_two_processes_go_on(lm_data, tmp_path):
    """From their checkpoint; and with a single batch, so that one of them only fills up."""
    options = ("--kernels", "lin", "--batch-size", 1000, "--distributed-world-size", 2)
    options += ("--num-workers", 0)  # for each epoch's data a process would be spawned, which imports torch and fairseq
    results = [fairseq(*lm_training(lm_data, tmp_path, *options, "--max-epoch", epochs)) for epochs in (2, 3)]
    losses = [[line["loss"] for line in logged(result, "valid")] for result in results]
    assert list(map(len, losses)) == [2, 1] and losses[1][0] < losses[0][1] < losses[0][0]
    last = checkpoint.load(tmp_path / "checkpoint_last.pt")
    assert last["extra_state"]["train_iterator"]["epoch"] == 4
