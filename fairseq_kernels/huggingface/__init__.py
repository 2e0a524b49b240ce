"""Models of Hugging Face's transformers, from version 5, whose head is a generalized softmax: causal language models,
and encoder-decoder models such as T5, BART, Marian and Whisper.

    model = replace_head(AutoModelForCausalLM.from_pretrained(name), kernels="3xlin,log", bias=True)
    Trainer(model, arguments, train_dataset=data).train()
    model.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)    # after the import of this module

The model keeps its forward, with one difference: in training with labels the loss comes from the head's ``nll`` and
``logits`` are None, so that no tensor of tokens x words is made. ``skip_logits=False`` computes them anyway,
``skip_logits=True`` omits them in evaluation, too. Logits are normalised log-probabilities.

A folder that ``save_pretrained`` wrote has the model type ``fairseq_kernels``. So without this module transformers
refuses it, where it would else load another head without a word.
"""

import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from .config import with_kernel_head_config
from .head import KernelHead
from .model import replace_head, with_kernel_head
from .saved import SavedConfig, from_pretrained

__all__ = ["KernelHead", "SavedConfig", "from_pretrained", "replace_head", "with_kernel_head"]


def __getattr__(name: str):
    """A class with a kernel head by its host's name, as pickle looks for it."""
    host = getattr(transformers, name, None)
    if isinstance(host, type) and issubclass(host, PreTrainedModel):
        return with_kernel_head(host)
    if isinstance(host, type) and issubclass(host, PreTrainedConfig):
        return with_kernel_head_config(host)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
