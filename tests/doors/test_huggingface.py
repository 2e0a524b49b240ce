"""Models of transformers with a kernel head, against the same models with their own."""

import copy
import inspect
import json
import pickle
import subprocess
import sys

import pytest
import torch
from layer_checks import Memory

transformers = pytest.importorskip("transformers")
from accelerate.hooks import ModelHook, add_hook_to_module  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from fairseq_kernels import word_prior  # noqa: E402
from fairseq_kernels.huggingface import from_pretrained, replace_head  # noqa: E402

V = 50
SIZES = {"vocab_size": V, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES.update({"bos_token_id": None, "eos_token_id": None, "pad_token_id": None})
FEW = {**SIZES, "num_key_value_heads": 2, "head_dim": 4}
MAMBA = {f"mamba_{name}": size for name, size in {"d_ssm": 16, "n_heads": 4, "d_head": 4, "n_groups": 1}.items()}
TWO_SIDES = {"vocab_size": V, "d_model": 16, "max_position_embeddings": 64, "dropout": 0.0, "pad_token_id": 1}
TWO_SIDES.update({"decoder_start_token_id": 2, "eos_token_id": 2, "bos_token_id": 0, "forced_eos_token_id": None})
TWO_SIDES.update({f"{side}_{name}": size for side in ("encoder", "decoder")
                  for name, size in {"layers": 1, "attention_heads": 2, "ffn_dim": 32}.items()})  # fmt: skip
SPEECH = {**TWO_SIDES, "num_mel_bins": 8, "max_source_positions": 8, "max_target_positions": 64}
HOSTS = {
    "Llama": SIZES,
    "Mixtral": {**FEW, "num_local_experts": 2, "output_router_logits": True},
    "GPTNeoX": {**SIZES, "hidden_dropout": 0.0, "attention_dropout": 0.0},  # its head is called embed_out
    "GPT2": {"vocab_size": V, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "resid_pdrop": 0.0}
    | {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None},
    "Gemma2": {**FEW, "final_logit_softcapping": 3.0},
    "T5": {"vocab_size": V, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
    | {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1},
}
FAMILIES = {
    **HOSTS, "Qwen3": FEW, "Phi3": FEW, "Olmo2": FEW, "Bart": TWO_SIDES, "Marian": TWO_SIDES, "Whisper": SPEECH,
    "Gemma3Text": {**FEW, "final_logit_softcapping": 4.0}, "Gemma4Text": {**FEW, "final_logit_softcapping": 4.0},
    "NanoChat": {**FEW, "final_logit_softcapping": 2.0}, "Granite": {**FEW, "logits_scaling": 4.0},
    "RecurrentGemma": {**FEW, "num_hidden_layers": 3, "logits_soft_cap": 5.0, "attention_window_size": 8},
    "Cohere": {**FEW, "logit_scale": 0.3}, "FalconH1": {**FEW, **MAMBA, "mamba_d_state": 8, "lm_head_multiplier": 0.1},
    "Mamba2": {**SIZES, "num_hidden_layers": 1, "num_heads": 4, "head_dim": 8, "state_size": 8, "n_groups": 1}
    | {"chunk_size": 8},
}  # fmt: skip
SETTINGS = {"Gemma2": ("cap", 3.0), "RecurrentGemma": ("cap", 5.0), "Granite": ("lin", 0.25), "FalconH1": ("lin", 0.1)}


def host(name="Llama", tied=True):
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**FAMILIES[name], tie_word_embeddings=tied)
    kinds = ("CausalLM", "Seq2SeqLM", "SpeechSeq2Seq")
    auto = getattr(transformers, f"AutoModelFor{kinds[('Bart', 'Marian', 'T5').count(name) + 2 * (name == 'Whisper')]}")
    return auto.from_config(config)


def labelled(rows=3, length=12):
    """Words and labels, of which each row has another number."""
    ids = torch.randint(3, V, (rows, length), generator=torch.Generator().manual_seed(2))
    labels = ids.clone()
    for row in range(rows):
        labels[row, : 2 * row] = -100
    return ids, labels


@pytest.mark.parametrize("name, tied", [*zip(FAMILIES, [False] * 99), *zip([*HOSTS, "Marian"], [True] * 99)])
def test_every_family_keeps_its_loss(name, tied, tmp_path):
    """In training and evaluation: loss, gradients, log-probabilities and what is generated, also after it was saved;
    the head has the model's factor or cap, a mixture too."""
    stock = host(name, tied)
    with torch.no_grad():
        stock.get_output_embeddings().weight.mul_(5)  # so that a cap shows
    for bias in [value for buffer, value in stock.named_buffers() if buffer == "final_logits_bias"]:
        torch.nn.init.normal_(bias)
    model, mixed = (replace_head(copy.deepcopy(stock), kernels) for kernels in ("lin", "2xlin,log"))
    replace_head(replace_head(model, step=2.0))  # what the second takes the place of has the host's function already
    for each in (model, mixed) if name in SETTINGS else ():
        kernel = each.get_output_embeddings().kernels[0]
        assert (kernel.name, kernel.value("c" if kernel.name == "cap" else "scale")) == SETTINGS[name]
    ids, labels = labelled()
    inputs = {"input_features": torch.randn(3, 8, 16)} if name == "Whisper" else {"input_ids": ids}
    for training in (True, False):
        results = []
        for each in (model.train(training), stock.train(training)):
            each.zero_grad()
            loss = each(**inputs, labels=labels).loss
            loss.backward()
            results.append((loss, [value.grad for key, value in each.named_parameters() if key != "lm_head.bias"]))
        torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)
    model.save_pretrained(tmp_path)
    again, options = from_pretrained(tmp_path), {"max_new_tokens": 6, "do_sample": False}
    two_sides = stock.config.is_encoder_decoder
    with torch.no_grad():
        expected, output, other = (each.eval()(**inputs, labels=labels).logits for each in (stock, model, again))
        torch.testing.assert_close(output, expected.log_softmax(-1), atol=1e-4, rtol=1e-4)
        assert other.equal(output) and type(again) is type(model)
        options.update({"num_beams": 2} if two_sides else {})
        generated = [each.generate(**inputs, **options) for each in (stock, again)]
        assert generated[0].equal(generated[1])
        again.resize_token_embeddings(V + 7)
        assert again(**inputs, labels=labels).logits.shape[-1] == V + 7


@pytest.mark.parametrize("name", [name for name in HOSTS if name != "T5"])
def test_every_way_to_call_a_model(name):
    stock = host(name, tied=False)
    model = replace_head(add_hook_to_module(copy.deepcopy(stock), ModelHook()))  # as device_map has it
    ids, labels = labelled()
    for skip in (None, False):
        expected, output = stock(ids, labels=labels), model(ids, labels=labels, skip_logits=skip)
        assert ("logits" in output) == (skip is False)
        torch.testing.assert_close(output.loss, expected.loss)
    others = {"ignore_index": 7, "labels": labels.masked_fill(labels < 0, 7)}
    for more in (others, {"shift_labels": labels.roll(2, 1)}, {"num_items_in_batch": 10}):
        losses = [each(ids, **{"labels": labels, **more}).loss for each in (model, stock)]
        torch.testing.assert_close(*losses)
    names = list(inspect.signature(stock.forward).parameters)
    positional = [{"input_ids": ids, "labels": labels}.get(name) for name in names[: names.index("labels") + 1]]
    stock.eval(), model.eval()
    with torch.no_grad():
        assert "logits" in model(ids, labels=labels) and "logits" not in model(ids, labels=labels, skip_logits=True)
        expected, output = (m(ids, labels=labels, return_dict=False) for m in (stock, model))
        assert len(output) == len(expected)
        for values, others in zip(output, expected):  # but for the cache
            if isinstance(values, torch.Tensor):
                torch.testing.assert_close(values, others.log_softmax(-1) if values.dim() == 3 else others)
        torch.testing.assert_close(model.train()(*positional).loss, expected[0])
    generated = [model.eval().generate(ids[:1], max_new_tokens=8, do_sample=False, use_cache=c) for c in (True, False)]
    assert generated[0].equal(generated[1])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", ["Llama", "GPT2"])
def test_a_mixture_is_saved_loaded_and_resized(name, tied, tmp_path):
    options = {"kernels": "2xlin,log", "kernel_params": "log.gamma=learned", "bias": True}
    model = replace_head(host(name, tied), **options).eval()
    start = model.get_output_embeddings().latent_projection.clone()
    model.post_init()  # as some libraries call it once more
    ids, labels = labelled()
    assert model.get_output_embeddings().latent_projection.equal(start)
    loss = model(ids, labels=labels).loss
    model.save_pretrained(tmp_path)
    for auto in [*[transformers.AutoModelForPreTraining] * (name == "GPT2"), AutoModelForCausalLM]:
        again = auto.from_pretrained(tmp_path)
        torch.testing.assert_close(again(ids, labels=labels).loss, loss, atol=0, rtol=0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other(ids, labels=labels).loss.equal(loss)
    load = f"from transformers import AutoModelForCausalLM as A; A.from_pretrained({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", load], capture_output=True, text=True)
    assert done.returncode == 1 and "model type `fairseq_kernels`" in done.stderr
    values = json.loads((tmp_path / "config.json").read_text())  # as version 0.3 has written it
    values["model_type"] = values.pop("host_model_type")
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert from_pretrained(tmp_path)(ids, labels=labels).loss.equal(loss)
    torch.testing.assert_close(again.train()(ids, labels=labels).loss, loss)
    with torch.no_grad():
        before = again.eval()(ids).logits
        again.resize_token_embeddings(V + 7)
        after = again(ids).logits
        assert after.shape[-1] == V + 7
        torch.testing.assert_close(after[..., :V].log_softmax(-1), before)
        again.resize_token_embeddings(V)
        torch.testing.assert_close(again(ids).logits, before)
    assert (again.get_output_embeddings().weight is again.get_input_embeddings().weight) == tied
    built = AutoModelForCausalLM.from_config(model.config)
    assert built.get_output_embeddings().component_names() == ["lin1", "lin2", "log"]


def trained(model, accumulate, folder, **options):
    """The model after one update by SGD with eight texts, in batches of 8 / ``accumulate``; and its Trainer."""
    ids, labels = labelled(8, 20)
    data = [{"input_ids": row, "labels": target} for row, target in zip(ids, labels)]
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=1, per_device_train_batch_size=8 // accumulate, gradient_accumulation_steps=accumulate,
        learning_rate=1.0, optim="sgd", lr_scheduler_type="constant", max_grad_norm=0.0, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, logging_steps=1, train_sampling_strategy="sequential", **options,
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=data, eval_dataset=data)
    trainer.train()
    return model, trainer


@pytest.mark.parametrize("tied, bf16", [(True, False), (False, False), (False, True)])
def test_trainer_accumulates_as_with_the_hosts_head(tied, bf16, tmp_path):
    close = {"atol": 2e-2, "rtol": 2e-2} if bf16 else {"atol": 2e-6, "rtol": 1e-4}
    start = host(tied=tied)
    stock, trainer = trained(copy.deepcopy(start), 1, tmp_path, bf16=bf16)
    logged = [trainer.state.log_history[0]["loss"], trainer.evaluate()["eval_loss"]]
    for accumulate in (1, 4):
        model, trainer = trained(replace_head(copy.deepcopy(start)), accumulate, tmp_path, bf16=bf16)
        for expected, parameter, before in zip(stock.parameters(), model.parameters(), start.parameters()):
            torch.testing.assert_close(parameter - before, expected - before, **close)
        losses = [trainer.state.log_history[0]["loss"], trainer.evaluate()["eval_loss"]]
        torch.testing.assert_close(losses, logged, atol=2e-2 if bf16 else 2e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_makes_no_logits_of_all_tokens(dtype):
    model = replace_head(host(), kernels="lin,log", bias=True, memory_budget=1 << 14).to(dtype)
    ids, labels = labelled(8, 60)
    with Memory() as memory:
        loss = model(ids, labels=labels).loss
        loss.backward()
    assert memory.numel < ids.numel() * V
    full = model(ids, labels=labels, skip_logits=False)
    assert full.logits.shape == (*ids.shape, V)
    torch.testing.assert_close(loss, full.loss.to(loss.dtype), atol=1e-2 if dtype == torch.bfloat16 else 1e-5, rtol=0)


def test_peft_trains_and_saves_the_head_beside_an_adapter(tmp_path):
    peft = pytest.importorskip("peft")
    replace_head(host(tied=False), kernels="lin,log", bias=True).save_pretrained(tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    config = peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_head"], task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(model, config)
    ids, labels = labelled()
    optimizer = torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], lr=1.0)
    start = adapted(input_ids=ids, labels=labels).loss
    start.backward(), optimizer.step()
    assert adapted(input_ids=ids, labels=labels).loss < start
    with adapted.disable_adapter():
        torch.testing.assert_close(adapted(input_ids=ids, labels=labels).loss, start)
    adapted.eval().save_pretrained(tmp_path)
    again = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(again(input_ids=ids).logits, adapted(input_ids=ids).logits)


def test_the_prior_and_the_step():
    """The bias has the labels' frequencies; a step keeps what an untied head computes, and a tied embedding."""
    _, labels = labelled()
    prior = word_prior(labels, V)
    for given in (prior, [{"labels": labels[:1].tolist()}, labels[1:]]):
        head = replace_head(host(tied=False), prior=given).lm_head
        torch.testing.assert_close(head(torch.zeros(16)).exp(), prior.float())
    for given, said in ({"input_ids": labels}, "no labels, but input_ids.*DataLoader"), ((labels,), "tuple.*not word"):
        with pytest.raises(ValueError, match=said):
            replace_head(host(), prior=[given])
    twice = replace_head(replace_head(host("Gemma2"), prior=prior))
    torch.testing.assert_close(twice.lm_head.bias, prior.log().float())
    features = torch.randn(3, 16)
    for tied, factor in ((False, 1.0), (True, 4.0)):
        stock = host(tied=tied)
        model = replace_head(copy.deepcopy(stock), step=4.0)
        assert (model.lm_head.weight is model.get_input_embeddings().weight) == tied
        torch.testing.assert_close(model.lm_head(features), (factor * stock.lm_head(features)).log_softmax(-1))
        assert torch.equal(*(each.get_input_embeddings().weight for each in (model, stock)))


def test_what_is_refused():
    """Models that predict no next word, or do more to their logits than a factor, a cap and a bias, or have another
    loss; a model in other hands must be given itself."""

    class Squared(transformers.LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output.logits = output.logits**2
            return output

    with_z_loss, hooked, config = host(), host(), transformers.LlamaConfig(**SIZES)
    own = with_z_loss.loss_function
    with_z_loss.loss_function = lambda logits, **more: own(logits, **more) + logits.logsumexp(-1).pow(2).mean() / 1e4
    hooked.lm_head.register_forward_hook(lambda module, given, output: 2 * output)
    masked = transformers.BertForMaskedLM(transformers.BertConfig(**SIZES))
    none = (masked, transformers.LlamaForSequenceClassification(config), transformers.LlamaModel(config))
    for model, said in (
        *((model, f"{type(model).__name__} has no head that predicts the next word") for model in none),
        (with_z_loss, "LlamaForCausalLM is not supported: its loss is not the cross-entropy"),
        (hooked, "its head isn't a matrix and a bias alone"),
        (torch.compile(host()), "OptimizedModule has no head .* before PEFT or torch.compile"),
        (Squared(config), "Squared is not supported: .* 1 to 1, -1 to 1, 5 to 25"),
    ):
        with pytest.raises(ValueError, match=said):
            replace_head(model)
