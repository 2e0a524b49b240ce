"""Causal language models of transformers with a kernel head, against the same models with their own."""

import copy
import inspect

import pytest
import torch
from layer_checks import Memory

transformers = pytest.importorskip("transformers")
from fairseq_kernels.huggingface import from_pretrained, replace_head, with_kernel_head  # noqa: E402

V = 50
SIZES = {"vocab_size": V, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES.update({"bos_token_id": None, "eos_token_id": None, "pad_token_id": None})
HOSTS = {
    "Llama": SIZES,
    "Mixtral": {**SIZES, "num_key_value_heads": 2, "num_local_experts": 2, "output_router_logits": True},
    "GPTNeoX": {**SIZES, "hidden_dropout": 0.0, "attention_dropout": 0.0},  # its head is called embed_out
    "GPT2": {"vocab_size": V, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "resid_pdrop": 0.0}
    | {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None},
}


def host(name="Llama", tied=True):
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**HOSTS[name], tie_word_embeddings=tied)
    return transformers.AutoModelForCausalLM.from_config(config)


def labelled(rows=3, length=12):
    """Words and labels, of which each row has another number."""
    ids = torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(2))
    labels = ids.clone()
    for row in range(rows):
        labels[row, : 2 * row] = -100
    return ids, labels


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", HOSTS)
def test_lin_is_the_hosts_own_head(name, tied):
    stock = host(name, tied)
    model = replace_head(copy.deepcopy(stock))
    ids, labels = labelled()
    for skip in (None, False):
        expected, output = stock(ids, labels=labels), model(ids, labels=labels, skip_logits=skip)
        assert ("logits" in output) == (skip is False)
        for loss in (expected.loss, output.loss):
            loss.backward()
        torch.testing.assert_close(output.loss, expected.loss)
        gradients = ([parameter.grad for parameter in m.parameters()] for m in (model, stock))
        torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-4)
        stock.zero_grad(), model.zero_grad()
    others = {"ignore_index": 7, "labels": labels.masked_fill(labels < 0, 7)}
    for more in (others, {"shift_labels": labels.roll(2, 1)}, {"num_items_in_batch": 10}):
        losses = [each(ids, **{"labels": labels, **more}).loss for each in (model, stock)]
        torch.testing.assert_close(*losses)
    names = list(inspect.signature(stock.forward).parameters)
    positional = [{"input_ids": ids, "labels": labels}.get(name) for name in names[: names.index("labels") + 1]]
    stock.eval(), model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, stock(ids).logits.log_softmax(-1))
        assert "logits" in model(ids, labels=labels) and "logits" not in model(ids, labels=labels, skip_logits=True)
        expected, output = (m(ids, labels=labels, return_dict=False) for m in (stock, model))
        assert len(output) == len(expected)
        for values, others in zip(output, expected):  # but for the cache
            if isinstance(values, torch.Tensor):
                torch.testing.assert_close(values, others.log_softmax(-1) if values.dim() == 3 else others)
        torch.testing.assert_close(model.train()(*positional).loss, expected[0])
    model.eval()
    generated = [m.generate(ids[:1], max_new_tokens=8, do_sample=False) for m in (stock, model)]
    assert generated[0].equal(generated[1])
    assert generated[1].equal(model.generate(ids[:1], max_new_tokens=8, do_sample=False, use_cache=False))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", HOSTS)
def test_a_mixture_is_saved_loaded_and_resized(name, tied, tmp_path):
    options = {"kernels": "2xlin,log", "kernel_params": "log.gamma=learned", "bias": True}
    model = replace_head(host(name, tied), **options).eval()
    ids, labels = labelled()
    loss = model(ids, labels=labels).loss
    model.save_pretrained(tmp_path)
    again = from_pretrained(tmp_path)
    torch.testing.assert_close(again(ids, labels=labels).loss, loss, atol=0, rtol=0)
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
    built = with_kernel_head(type(host(name)))(again.config)
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
    base = replace_head(host(tied=False), kernels="lin,log", bias=True)
    model = copy.deepcopy(base)
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
    again = peft.PeftModel.from_pretrained(base, tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(again(input_ids=ids).logits, adapted(input_ids=ids).logits)


def test_a_host_that_changes_its_logits_is_refused():
    config = transformers.Gemma2Config(**SIZES, num_key_value_heads=2, head_dim=4)
    with pytest.raises(ValueError, match="final_logit_softcapping"):
        replace_head(transformers.Gemma2ForCausalLM(config))
    config.final_logit_softcapping = None
    for scale in ("logit_scale", "logits_scaling"):
        config.update({scale: 0.5})
        with pytest.raises(ValueError, match=scale):
            replace_head(transformers.Gemma2ForCausalLM(config))
        config.update({scale: 1.0})
    replace_head(transformers.Gemma2ForCausalLM(config))
