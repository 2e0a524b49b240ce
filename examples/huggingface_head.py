"""A causal language model of Hugging Face's transformers whose head is a generalized softmax.

    pip install '.[examples]'
    python examples/huggingface_head.py --kernels 3xlin,log --updates 100
    python examples/huggingface_head.py --kernels lin --step 8 --updates 300

Nothing is downloaded: a small Llama, made from its configuration, learns the bytes of Python's own documentation, of
which a twentieth is held out. Any causal language model, a pretrained one too, is made ready by the same line.
"""

import argparse
import math
import tempfile
from pydoc_data.topics import topics

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from fairseq_kernels.huggingface import from_pretrained, replace_head

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--kernels", default="3xlin,log")
parser.add_argument("--step", type=float, default=1, help="the head's, for kernels of the inner product")
parser.add_argument("--no-prior", action="store_true", help="start the biases from 0, not from the bytes' frequencies")
parser.add_argument("--updates", type=int, default=100)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(args.seed)
text = torch.tensor(list("\n".join(topics[name] for name in sorted(topics)).encode()))
lines = [{"input_ids": line, "labels": line} for line in text[: len(text) // 128 * 128].view(-1, 128)]
held_out, lines = lines[::20], [line for place, line in enumerate(lines) if place % 20]

config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    bos_token_id=None, eos_token_id=None, initializer_range=64**-0.5,
)  # fmt: skip
prior = None if args.no_prior else lines
model = replace_head(LlamaForCausalLM(config), args.kernels, prior, bias=True, step=args.step)

with tempfile.TemporaryDirectory() as folder:
    options = TrainingArguments(
        folder, max_steps=args.updates, per_device_train_batch_size=8, gradient_accumulation_steps=2,
        learning_rate=0.003, report_to=[], save_strategy="no", seed=args.seed,
    )  # fmt: skip
    trainer = Trainer(model, options, train_dataset=lines, eval_dataset=held_out)
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
    print(f"{args.updates} updates, {loss / math.log(2):.3f} bits a byte of the held-out text")

    model.eval()
    prompt = torch.tensor([list(b"The statement ")], device=model.device)
    print(bytes(model.generate(prompt, max_new_tokens=60, do_sample=False)[0].tolist()).decode(errors="replace"))
    model.save_pretrained(folder)
    again = from_pretrained(folder).to(model.device).eval()
with torch.no_grad():
    torch.testing.assert_close(again(prompt).logits, model(prompt).logits)
print("saved, loaded again: the same distribution")
