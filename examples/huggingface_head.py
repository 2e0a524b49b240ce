"""A causal language model of Hugging Face's transformers whose head is a generalized softmax.

    pip install '.[examples]'
    python examples/huggingface_head.py --kernels 3xlin,log --updates 100

Nothing is downloaded: a small Llama, made from its configuration, learns the bytes of Python's own documentation. The
head gives log-probabilities, so ``generate`` works; the loss goes through ``nll``, which never makes logits of all
positions; the head's matrix is tied with the embeddings by transformers' own rule.
"""

import argparse
import math
import tempfile
from pydoc_data.topics import topics

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_outputs import CausalLMOutputWithPast

from fairseq_kernels import GeneralizedSoftmax


class KernelLlama(LlamaForCausalLM):
    """``config.kernels`` names the mixture."""

    def __init__(self, config):
        super().__init__(config)
        self.lm_head = GeneralizedSoftmax(config.hidden_size, config.vocab_size, kernels=config.kernels)
        self.post_init()  # ties the new head

    def _init_weights(self, module):
        if isinstance(module, GeneralizedSoftmax):  # of a pretrained model's checkpoint, which has none
            module.reset_parameters()
        else:
            super()._init_weights(module)

    def forward(self, input_ids=None, labels=None, **options):
        if labels is None:
            return super().forward(input_ids, **options)
        hidden = self.model(input_ids, **options).last_hidden_state
        loss = self.lm_head.nll(hidden[:, :-1], labels[:, 1:], ignore_index=-100, reduction="mean")
        return CausalLMOutputWithPast(loss=loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", default="3xlin,log")
    parser.add_argument("--updates", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(1)
    text = torch.tensor(list("\n".join(topics[name] for name in sorted(topics)).encode()))
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=128, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
        initializer_range=64**-0.5,  # of the shared matrix, too: 0.02 would be small for a head of so few dimensions
        kernels=args.kernels,
    )  # fmt: skip
    model = KernelLlama(config)
    model.lm_head.set_log_prior(torch.bincount(text, minlength=256))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    for update in range(1, args.updates + 1):
        starts = torch.randint(len(text) - 128, (16,))
        batch = torch.stack([text[start : start + 128] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 20 == 0:
            print(f"update {update} of {args.updates}, {loss / math.log(2):.2f} bits a byte", flush=True)

    prompt = torch.tensor([list(b"The statement ")])
    model.eval()
    print(bytes(model.generate(prompt, max_new_tokens=60, do_sample=False)[0].tolist()).decode(errors="replace"))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = KernelLlama.from_pretrained(folder).eval()
    with torch.no_grad():
        torch.testing.assert_close(again(batch, labels=batch).loss, model(batch, labels=batch).loss)
    print("saved, loaded again: the same loss")


if __name__ == "__main__":
    main()
