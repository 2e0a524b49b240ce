"""A causal language model of Hugging Face's transformers whose head is a generalized softmax.

    pip install '.[examples]'
    python examples/huggingface_head.py --kernels 3xlin,log --updates 100

Nothing is downloaded: a small Llama, made from its configuration, learns the bytes of Python's own documentation. Any
causal language model, a pretrained one too, is made ready by the same line.
"""

import argparse
import math
import tempfile
from pydoc_data.topics import topics

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from fairseq_kernels import word_prior
from fairseq_kernels.huggingface import from_pretrained, replace_head

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--kernels", default="3xlin,log")
parser.add_argument("--updates", type=int, default=100)
args = parser.parse_args()
torch.manual_seed(1)
text = torch.tensor(list("\n".join(topics[name] for name in sorted(topics)).encode()))
lines = [{"input_ids": line, "labels": line} for line in text[: len(text) // 128 * 128].view(-1, 128)]

config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, initializer_range=64**-0.5,
)  # fmt: skip
model = replace_head(LlamaForCausalLM(config), kernels=args.kernels, bias=True)
model.lm_head.set_prior(word_prior(text, 256))  # the biases start from the bytes' frequencies

with tempfile.TemporaryDirectory() as folder:
    options = TrainingArguments(
        folder, max_steps=args.updates, per_device_train_batch_size=8, gradient_accumulation_steps=2,
        learning_rate=0.003, report_to=[], save_strategy="no",
    )  # fmt: skip
    loss = Trainer(model, options, train_dataset=lines).train().training_loss
    print(f"{args.updates} updates, {loss / math.log(2):.2f} bits a byte")

    model.eval()
    prompt = torch.tensor([list(b"The statement ")], device=model.device)
    print(bytes(model.generate(prompt, max_new_tokens=60, do_sample=False)[0].tolist()).decode(errors="replace"))
    model.save_pretrained(folder)
    again = from_pretrained(folder).to(model.device).eval()
with torch.no_grad():
    torch.testing.assert_close(again(prompt).logits, model(prompt).logits)
print("saved, loaded again: the same distribution")
