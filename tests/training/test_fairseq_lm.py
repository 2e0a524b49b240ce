"""Language models through fairseq's own commands: training, its logs and checkpoints, evaluation, generation."""

import math
import socket

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data.data_utils import load_indexed_dataset
from fairseq.distributed import ModuleProxyWrapper
from fairseq_commands import (
    LM_TASK,
    SIZES,
    USER_DIR,
    fairseq,
    later,
    lm_training,
    logged,
    start,
    succeeded,
)
from torch import distributed
from trained_models import load, loss_of, padded_batch, parameters

import fairseq_kernels.fairseq_plugin  # noqa: F401
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


# training and evaluation

MODELS = {
    "lstm": (
        *("kernel_lstm_lm_swb", "--kernels", "lin,log,pow,pol,rbf,ssg,mog,hpb,wav,sig,abs"),
        *("--label-smoothing", 0.1),
    ),
    "lstm shared untied": (
        *("kernel_lstm_lm", "--kernels", "lin,2xwav", "--share-decoder-input-output-embed", "--untied-projections"),
        *("--output-bias", "prior", "--kernel-params", "wav.a=learned,wav.scale=learned:10"),
    ),
    "lstm no bias, other output size": (
        *("kernel_lstm_lm", "--kernels", "pol", "--output-bias", "false", "--decoder-out-embed-dim", 8),
    ),
    "transformer shared": (
        *("kernel_transformer_lm_gpt", "--kernels", "ssg,sig", "--share-decoder-input-output-embed"),
        *("--output-bias", "prior", "--kernel-params", "ssg.floor=learned", "--pi-variance-weight", 1),
    ),
}


@pytest.fixture(scope="module")
def trainings(lm_data, tmp_path_factory):
    """One of each of MODELS, queued."""
    folder = tmp_path_factory.mktemp("models")
    return {
        name: (folder / name, later(*lm_training(lm_data, folder / name, *options, arch=arch)))
        for name, (arch, *options) in MODELS.items()
    }


@pytest.mark.parametrize("model", MODELS)
def test_train(model, trainings):
    """The loss falls, and the saved model has the perplexity that was logged."""
    folder, queued = trainings[model]
    result, options = succeeded(queued.result()), MODELS[model]
    epochs, valid = logged(result, "train"), logged(result, "valid")[-1]
    assert epochs[-1]["nll_loss"] < epochs[0]["nll_loss"] < 6
    assert valid["ppl"] == pytest.approx(2 ** valid["nll_loss"], rel=2e-3)  # logged to 3 decimals
    assert (valid["loss"] > valid["nll_loss"]) == ("--label-smoothing" in options or "--pi-variance-weight" in options)
    assert any(key.startswith("pi_") for key in valid) == ("," in options[2])  # mixtures only
    assert loss_of(*load(folder)) == pytest.approx(valid["nll_loss"], abs=1e-3)


@pytest.mark.parametrize("model", ["mixture_lm", "transformer_lm"])
def test_eval_lm(model, lm_data, request):
    """fairseq-eval-lm finds the perplexity that training logged."""
    trained = request.getfixturevalue(model)
    options = ("--gen-subset", "valid", *LM_TASK[2:], "--batch-size", 8)
    result = fairseq("eval_lm", lm_data, "--path", trained.last, *options)
    actual = float(result.out.split("Loss (base 2): ")[1].split(",")[0])
    assert actual == pytest.approx(logged(trained.result, "valid")[-1]["nll_loss"], abs=1e-3)


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
    for kind in ("train_inner", "train", "valid"):
        line = logged(mixture_lm.result, kind)[-1]
        weights = [line[f"pi_{name}"] for name in ("lin1", "lin2", "log")]
        assert sum(weights) == pytest.approx(1, abs=2e-4)  # each rounded to 4 decimals
        assert {"loss", "nll_loss", "ppl"} <= set(line)
        # 1e4 times the same number, which is rounded to 4 decimals
        assert line["pi_variance_pp2"] == pytest.approx(1e4 * line["pi_variance"], abs=0.51)
        assert 0 < line["pi_variance"] < 2 / 9  # the most for three weights


def test_stock_criterion_validates_the_present_parameters(lm_data, tmp_path):
    """Trained by stock cross_entropy, whose validation decodes: the logged loss is that of the epoch's checkpoint."""
    result = fairseq(*lm_training(lm_data, tmp_path, "--kernels", "log", criterion="cross_entropy"))
    valid = logged(result, "valid")
    assert len(valid) >= 2
    assert valid[-1]["loss"] == pytest.approx(loss_of(*load(tmp_path)), abs=1e-3)


# the criterion


@pytest.mark.parametrize("trained", [True, False], ids=["mixture", "single"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_stock_criterions_give_the_same_loss(trained, smoothing, mixture_lm):
    """cross_entropy and label_smoothed_cross_entropy, on the same model: loss, gradients and logs."""
    model, task = load(mixture_lm.folder)
    model = model if trained else build(task, "log")
    batch = padded_batch(task)
    stock = (
        LabelSmoothedCrossEntropyCriterion(task, False, smoothing) if smoothing else CrossEntropyCriterion(task, False)
    )
    results = []
    for criterion in (KernelMixtureCrossEntropy(task, False, smoothing, 0.0), stock):
        loss, sample_size, log = criterion(model.train(), batch)
        results.append((loss, sample_size, torch.autograd.grad(loss, list(model.parameters())), log))
        with torch.no_grad():
            torch.testing.assert_close(criterion(model.eval(), batch)[0], loss.detach(), rtol=1e-5, atol=0)
    (ours, size, gradients, log), (plain, stock_size, stock_gradients, stock_log) = results
    assert size == stock_size and log["ntokens"] == stock_log["ntokens"]
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=0)  # float32, summed over some 100 tokens
    torch.testing.assert_close(gradients, stock_gradients, rtol=1e-3, atol=1e-4)
    if smoothing:
        torch.testing.assert_close(log["nll_loss"], stock_log["nll_loss"], rtol=1e-5, atol=0)
    each, _, _ = KernelMixtureCrossEntropy(task, False, smoothing, 0.0)(model, batch, reduce=False)
    assert each.shape == (batch["target"].numel(),)
    torch.testing.assert_close(each.sum(), ours, rtol=1e-5, atol=0)
    assert each.view_as(batch["target"])[batch["target"].eq(task.target_dictionary.pad())].eq(0).all()


def test_variance_of_the_mixture_weights(mixture_lm):
    """rho times the sum over tokens, padding left out, of the population variance of their K weights."""
    model, task = load(mixture_lm.folder)
    batch = padded_batch(task)
    plain, _, _ = KernelMixtureCrossEntropy(task, False, 0.0, 0.0)(model, batch)
    loss, _, log = KernelMixtureCrossEntropy(task, False, 0.0, 3.0)(model, batch)
    features, _ = model.decoder.extract_features(batch["net_input"]["src_tokens"])
    layer, pad = model.decoder.output_projection, task.target_dictionary.pad()
    variance, means, tokens = 0.0, torch.zeros(3), 0
    for h, y in zip(features.flatten(0, 1), batch["target"].flatten()):
        if y != pad:
            pi = torch.softmax(layer.prior_projection.T @ h, 0)
            variance += ((pi - 1 / 3) ** 2).sum() / 3
            means, tokens = means + pi, tokens + 1
    torch.testing.assert_close(loss, plain + 3 * variance, rtol=1e-5, atol=0)
    torch.testing.assert_close(log["pi_variance"], variance.detach(), rtol=1e-4, atol=0)
    torch.testing.assert_close(torch.stack([log[f"pi_{n}"] for n in ("lin1", "lin2", "log")]), means.detach())
    assert tokens == log["ntokens"]


# checkpoints


# stock models' checkpoints


def test_stock_lstm_weights_load_into_a_mixture(stock_lm):
    """The LSTM and the projection matrix; the maps of the mixture start anew."""
    stock, task = load(stock_lm.folder)
    ours = build(task, "lin,log", output_bias="false").eval()
    ours.load_state_dict(parameters(stock_lm.folder))
    tokens = padded_batch(task)["net_input"]["src_tokens"]
    with torch.no_grad():
        stock.decoder.fc_out = torch.nn.Identity()
        expected = stock.decoder(tokens)[0]
        torch.testing.assert_close(ours.decoder.extract_features(tokens)[0], expected, rtol=1e-5, atol=1e-5)
    assert ours.decoder.output_projection.weight.equal(parameters(stock_lm.folder)["decoder.fc_out.weight"])


def test_stock_lstm_that_shares_its_embeddings(stock_lm):
    """It has no fc_out: its matrix is taken for both, also where ours doesn't share."""
    _, task = load(stock_lm.folder)
    stock = {key: value for key, value in parameters(stock_lm.folder).items() if "fc_out" not in key}
    for shares in (False, True):
        ours = build(task, "lin", share_decoder_input_output_embed=shares)
        ours.load_state_dict(dict(stock))
        for module in (ours.decoder.embed_tokens, ours.decoder.output_projection):
            assert module.weight.equal(stock["decoder.embed_tokens.weight"])


def test_embeddings_shared_unlike_the_checkpoint_s(stock_lm, caplog):
    """Refused; a finetuning takes the output's, and says so."""
    _, task = load(stock_lm.folder)
    ours = build(task, "lin", share_decoder_input_output_embed=True)
    with pytest.raises(SystemExit, match="the checkpoint doesn't share input and output embeddings"):
        ours.load_state_dict(parameters(stock_lm.folder))
    ours.finetuned = True
    ours.load_state_dict(parameters(stock_lm.folder))
    assert ours.decoder.embed_tokens.weight.equal(parameters(stock_lm.folder)["decoder.fc_out.weight"])
    assert "its output's are taken for both" in caplog.text


def test_senses_dont_go_on_from_a_stock_matrix(stock_lm, lm_data, tmp_path):
    """They are more than its words; a finetuning would start them anew."""
    kerbs = ("--output-layer", "kerbs", "--criterion", "kerbs_cross_entropy", "--restore-file", stock_lm.last)
    refused = start("train", *lm_training(lm_data, tmp_path, *kerbs)[1:]).wait()
    assert refused.code and "is another one" in refused.err, refused.text[-2000:]


def test_training_starts_from_another_output_layer(mixture_lm, lm_data, tmp_path):
    """2xlin,log gives 2xlin its matrix and bias, C and M of other sizes start anew. Without --finetune-from-model other
    kernels refuse a checkpoint, that of a finetuning too."""
    options = ("--kernels", "2xlin", "--max-update", 1, "--lr", 0)
    result = fairseq(*lm_training(lm_data, tmp_path, *options, "--finetune-from-model", mixture_lm.last))
    for name in ("weight", "bias"):
        key = f"decoder.output_projection.{name}"
        assert parameters(tmp_path)[key].equal(parameters(mixture_lm.folder)[key])
    said = "from the checkpoint bias, weight; start values: latent_projection, prior_projection; "
    assert said in result.text
    for folder, restored in ((tmp_path, ()), (tmp_path / "other", ("--restore-file", mixture_lm.last))):
        other = start("train", *lm_training(lm_data, folder, "--kernels", "pow", *restored)[1:]).wait()
        assert other.code and "by --finetune-from-model a training may begin" in other.err, other.text[-2000:]


def test_kerbs_and_other_layers_start_from_each_other(mixture_lm, lm_data, tmp_path):
    """The LSTM is taken; senses are more than words, so the matrix starts anew. No averages are said to be taken."""
    begin = ("--max-update", 1, "--lr", 0)
    kerbs = ("--output-layer", "kerbs", "--criterion", "kerbs_cross_entropy", "--kerbs-reallocate-every", 4)
    there = fairseq(*lm_training(lm_data, tmp_path / "kerbs", *kerbs, *begin, "--finetune-from-model", mixture_lm.last))
    back = fairseq(*lm_training(lm_data, tmp_path / "lin", "--kernels", "lin", *begin,
                                "--finetune-from-model", tmp_path / "kerbs" / "checkpoint_last.pt"))  # fmt: skip
    for result, start_values in ((there, "allocation.usage"), (back, "weight")):
        [line] = [line for line in result.text.splitlines() if "output layer: from the checkpoint" in line]
        taken, anew, _ = line.split("; ")
        assert "weight" not in taken and "allocation" not in taken and start_values in anew
    folders = (mixture_lm.folder, tmp_path / "kerbs", tmp_path / "lin")
    lstm = [parameters(folder)["decoder.lstm.weight_ih_l0"] for folder in folders]
    assert lstm[0].equal(lstm[1]) and lstm[0].equal(lstm[2])


# decoding


@pytest.mark.parametrize("model", ["mixture_lm", "transformer_lm"])
def test_decoding_step_by_step_is_the_full_forward(model, request):
    """With incremental state, a token at a time and reordered as beam search does: the scores of whole sequences."""
    model, _ = load(request.getfixturevalue(model).folder)
    torch.manual_seed(0)
    tokens = torch.randint(4, 24, (3, 7))
    order = torch.tensor([2, 0, 0])
    with torch.no_grad():
        state, steps = {}, []
        for end in range(1, 8):
            if end == 4:
                model.decoder.reorder_incremental_state_scripting(state, order)
                tokens, steps = tokens[order], [step[order] for step in steps]
            steps.append(model.decoder(tokens[:, :end], incremental_state=state)[0][:, -1])
        full, _ = model.decoder(tokens)
    torch.testing.assert_close(torch.stack(steps, 1), full, rtol=1e-5, atol=1e-5)


def test_from_pretrained(mixture_lm, lm_data):
    """In a Python program: load a trained model, score sentences and continue them."""
    hub = KernelLSTMLanguageModel.from_pretrained(str(mixture_lm.folder), "checkpoint_best.pt", str(lm_data))
    hub.eval()
    [model], task = hub.models, hub.task
    sentence = "w1 w2 w3 w8"
    scored = hub.score(sentence)
    tokens = task.dictionary.encode_line(sentence, append_eos=True, add_if_not_exist=False).long()
    inputs = torch.cat([tokens[-1:], tokens[:-1]]).unsqueeze(0)
    with torch.no_grad():
        expected = model(inputs)[0][0].gather(1, tokens.unsqueeze(1)).squeeze(1)
    # fairseq's hub scores the words, not the </s> behind them
    torch.testing.assert_close(scored["positional_scores"], expected[:-1], rtol=1e-5, atol=1e-5)
    continued = hub.sample("w1 w2", beam=2, max_len_b=6)
    assert continued.startswith("w1 w2")


# fairseq-hydra-train


@pytest.mark.parametrize("model", ["kernel_lstm_lm", "kernel_transformer_lm"])
def test_hydra_train(model, lm_data, tmp_path):
    """From one YAML; the same options as flags give the same losses."""
    sizes = {
        "kernel_lstm_lm": {"decoder_hidden_size": 16, "decoder_out_embed_dim": 16},
        "kernel_transformer_lm": {
            "decoder_input_dim": 16,
            "decoder_output_dim": 16,
            "decoder_ffn_embed_dim": 16,
            "decoder_attention_heads": 2,
        },  # fmt: skip
    }[model]
    sizes |= {"decoder_embed_dim": 16, "decoder_layers": 2, "dropout": 0.0}
    lines = "\n".join(f"  {key}: {value}" for key, value in sizes.items())
    (tmp_path / "tiny.yaml").write_text(
        f"""# @package _global_
common: {{user_dir: {USER_DIR}, cpu: true, seed: 3, log_format: json, log_interval: 5}}
checkpoint: {{save_dir: {tmp_path}/hydra, no_epoch_checkpoints: true}}
task: {{_name: language_modeling, data: {lm_data}, sample_break_mode: complete, tokens_per_sample: 12}}
dataset: {{batch_size: 16, required_batch_size_multiple: 1}}
criterion: {{_name: kernel_mixture_cross_entropy, pi_variance_weight: 0.1, label_smoothing: 0.05}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: fixed}}
optimization: {{max_update: 20, lr: [0.01]}}
model:
  _name: {model}
  kernels: lin,rbf
  kernel_params: "rbf.gamma=learned"
  output_bias: prior
  untied_projections: true
{lines}
"""
    )
    by_yaml = fairseq("hydra_train", "--config-dir", tmp_path, "--config-name", "tiny", cwd=tmp_path)
    ours = [line["loss"] for line in logged(by_yaml, "valid")]
    assert len(ours) >= 2 and ours[-1] < ours[0]
    assert parameters(tmp_path / "hydra")["decoder.output_projection.untied_weights.0"].shape == (24, 16)
    if model == "kernel_lstm_lm":
        flags = ("--kernels", "lin,rbf", "--kernel-params", "rbf.gamma=learned", "--output-bias", "prior")
        flags = (*flags, "--untied-projections", "--pi-variance-weight", 0.1, "--label-smoothing", 0.05)
        by_flags = fairseq(*lm_training(lm_data, tmp_path / "flags", *flags, arch=model))
        assert ours == [line["loss"] for line in logged(by_flags, "valid")]


# several processes


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


TWO_PROCESSES = (
    *LM_TASK, "--arch", "kernel_lstm_lm", *SIZES["lstm"], "--kernels", "2xlin,rbf",
    "--kernel-params", "rbf.gamma=learned", "--share-decoder-input-output-embed",
    "--criterion", "kernel_mixture_cross_entropy", "--pi-variance-weight", 0.5, "--label-smoothing", 0.1,
    "--optimizer", "sgd", "--lr", 0.5, "--max-update", 4, "--log-format", "json", "--no-epoch-checkpoints",
    "--batch-size", 8,
)  # fmt: skip


@pytest.fixture(scope="module")
def one_process(lm_data, tmp_path_factory):
    """Update i takes the batches that two processes take in their update i."""
    folder = tmp_path_factory.mktemp("one")
    return folder, fairseq("train", lm_data, *TWO_PROCESSES, "--update-freq", 2, "--save-dir", folder)


@pytest.mark.parametrize("started", ["by fairseq", "by hand", "by torchrun"])
def test_two_processes_train_as_one(started, one_process, lm_data, tmp_path):
    """Gradients of two processes with a batch each are those of one process on both batches."""
    options, port = (lm_data, *TWO_PROCESSES, "--find-unused-parameters", "--save-dir", tmp_path), free_port()
    if started == "by fairseq":
        processes = [start("train", *options, "--distributed-world-size", 2)]
    elif started == "by hand":
        address = ("--distributed-no-spawn", "--distributed-init-method", f"tcp://127.0.0.1:{port}")
        own = [(*address, "--distributed-world-size", 2, "--distributed-rank", rank) for rank in (0, 1)]
        processes = [start("train", *options, *each) for each in own]
    else:
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        processes = [start("train", *options, environment={**shared, "RANK": rank}) for rank in ("0", "1")]
    results = [process.wait() for process in processes]
    assert not any(result.code for result in results), [result.text[-2000:] for result in results]
    folder, one = one_process
    for key in ("loss", "nll_loss", "pi_rbf", "pi_variance_pp2"):
        assert logged(results[0], "train")[-1][key] == pytest.approx(logged(one, "train")[-1][key], rel=2e-3), key
    expected = parameters(folder)
    for name, value in parameters(tmp_path).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6)  # sums in another order


def test_two_processes_go_on(lm_data, tmp_path):
    """From their checkpoint; and with a single batch, so that one of them only fills up."""
    options = (*LM_TASK, "--arch", "kernel_lstm_lm", *SIZES["lstm"], "--kernels", "lin", "--batch-size", 1000)
    options += ("--criterion", "kernel_mixture_cross_entropy", "--optimizer", "adam", "--lr", 0.01)
    options += ("--log-format", "json", "--no-epoch-checkpoints", "--distributed-world-size", 2, "--save-dir", tmp_path)
    options += ("--num-workers", 0)  # for each epoch's data a process would be spawned, which imports torch and fairseq
    for epochs in (1, 3):
        result = fairseq("train", lm_data, *options, "--max-epoch", epochs)
    losses = [line["loss"] for line in logged(result, "valid")]
    assert len(losses) == 2 and losses[1] < losses[0]
    last = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    assert last["extra_state"]["train_iterator"]["epoch"] == 4


def test_retained_dropout_is_between_the_layers_too(mixture_lm):
    """--retain-dropout, with which fairseq-generate samples from models."""
    _, task = load(mixture_lm.folder)
    batch = padded_batch(task)["net_input"]
    for retained in (False, True):
        model = build(task, "lin").eval()
        model.decoder.lstm.dropout = 0.5
        model.make_generation_fast_(retain_dropout=retained)
        assert torch.equal(model(**batch)[0], model(**batch)[0]) != retained


def test_torch_s_own_wrapper_with_unused_parameters(mixture_lm):
    """Under DistributedDataParallel(find_unused_parameters=True) the loss is computed where it looks."""
    model, task = load(mixture_lm.folder)
    batch = padded_batch(task)
    criterion = KernelMixtureCrossEntropy(task, False, 0.1, 0.5)
    expected = torch.autograd.grad(criterion(model.train(), batch)[0], list(model.parameters()))
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    try:
        wrapped = ModuleProxyWrapper(
            torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True, broadcast_buffers=False)
        )
        for _ in range(2):
            model.zero_grad()
            criterion(wrapped, batch)[0].backward()
            torch.testing.assert_close([p.grad for p in model.parameters()], list(expected))
    finally:
        distributed.destroy_process_group()
