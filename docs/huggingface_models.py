"""Tries every class of transformers' mapping of causal language models that can be made tiny: does it have the same
loss with the kernel lin as with its own head, in evaluation and in training without dropout?

    python docs/huggingface_models.py

Prints the classes that are refused or differ, those whose factor or cap the head has taken over, and the counts.
"""

import collections
import copy
import signal
import warnings

import torch
import transformers
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from fairseq_kernels.huggingface import replace_head

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
SECONDS = 60  # for a model
SIZES = {  # by the names that configurations have for them
    50: "vocab_size",
    64: "max_position_embeddings n_positions",
    32: "intermediate_size ffn_dim n_inner d_ff decoder_ffn_dim",
    16: "hidden_size d_model n_embd dim emb_dim moe_intermediate_size word_embed_proj_dim",
    8: "kv_lora_rank q_lora_rank",
    4: "num_attention_heads n_head n_heads num_heads decoder_attention_heads head_dim rotary_dim qk_rope_head_dim "
    "qk_nope_head_dim v_head_dim",
    2: "num_hidden_layers n_layer n_layers num_layers decoder_layers num_key_value_heads num_local_experts num_experts "
    "n_routed_experts",
    1: "num_experts_per_tok n_group topk_group n_shared_experts",
    0.0: "dropout attention_dropout hidden_dropout resid_pdrop embd_pdrop attn_pdrop hidden_dropout_prob "
    "attention_probs_dropout_prob activation_dropout layerdrop decoder_layerdrop embed_dropout resid_dropout",
    None: "bos_token_id eos_token_id",
}
TINY = {name: size for size, names in SIZES.items() for name in names.split()} | {"pad_token_id": 0}


def tiny(config_class, model_class):
    """A model with few and small layers.

    Raises:
        Exception: of any kind: its configuration needs more than these sizes.
    """
    default = config_class()
    sizes = {name: size for name, size in TINY.items() if hasattr(default, name)}
    with torch.device("meta"):  # where a large one takes no memory
        parameters = sum(parameter.numel() for parameter in model_class(config_class(**sizes)).parameters())
    if parameters > 30_000_000:
        raise MemoryError("it stays large")
    torch.manual_seed(1)
    model = model_class(config_class(**sizes))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


@torch.no_grad()
def losses(model):
    words = torch.randint(3, 50, (2, 8), generator=torch.Generator().manual_seed(1))
    return torch.stack([model.train(training)(words, labels=words).loss.float() for training in (False, True)])


def attempt(config_class, model_class) -> str:
    """What comes of one class."""
    try:
        model = tiny(config_class, model_class)
        expected = losses(model)
        same_again = torch.equal(losses(model), expected)
        if not expected.isfinite().all() or not same_again:
            return "not made tiny"
    except Exception:
        return "not made tiny"
    try:
        own = replace_head(copy.deepcopy(model))
    except ValueError as error:
        print(f"{model_class.__name__}: refused: {error}")
        return "refused"
    if own.config.kernel_head["kernel_params"]:
        print(f"{model_class.__name__}: {own.config.kernel_head}")
    if torch.allclose(losses(own), expected, rtol=1e-4, atol=1e-5):
        return "the same loss"
    print(f"{model_class.__name__}: {expected.tolist()} became {losses(own).tolist()}")
    return "another loss"


def main() -> None:
    def too_long(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_long)
    counts: collections.Counter = collections.Counter()
    for config_class in MODEL_FOR_CAUSAL_LM_MAPPING:
        model_class = MODEL_FOR_CAUSAL_LM_MAPPING[config_class]
        for each in model_class if isinstance(model_class, tuple) else (model_class,):
            signal.alarm(SECONDS)
            counts[attempt(config_class, each)] += 1
            signal.alarm(0)
    print(f"transformers {transformers.__version__}: {dict(counts)}")


if __name__ == "__main__":
    main()
