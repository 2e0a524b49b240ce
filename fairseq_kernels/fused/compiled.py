"""Element-wise work in one pass over memory on a GPU, by ``torch.compile``; eager on the CPU, whose caches do it."""

import functools
import logging
import os
from typing import Callable

import torch
from torch.utils._pytree import tree_leaves

logger = logging.getLogger(__name__)


def compiled_on_cuda(function: Callable) -> Callable:
    """Compiles ``function`` for calls with CUDA tensors, at the first one; ``FAIRSEQ_KERNELS_FUSE=0`` never does.

    Where compilation fails (no Triton, an unsupported device) it says so once and stays eager: slower, not wrong.
    """
    compiled = None

    @functools.wraps(function)
    def call(*args):
        nonlocal compiled
        if not any(torch.is_tensor(leaf) and leaf.is_cuda for leaf in tree_leaves(args)):
            return function(*args)
        if compiled is None:
            off = os.environ.get("FAIRSEQ_KERNELS_FUSE", "1") == "0"
            # chunks differ in size: shapes are variables of one kernel, not constants of many
            compiled = function if off else torch.compile(function, dynamic=True)
        try:
            return compiled(*args)
        except torch._dynamo.exc.TorchDynamoException as error:  # raised before anything has run
            compiled, reason = function, str(error).strip().splitlines()[0]
            logger.warning("%s runs without torch.compile, slower: %s", function.__name__, reason)
            return function(*args)

    return call
