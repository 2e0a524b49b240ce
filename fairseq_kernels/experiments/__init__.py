"""The papers' tables: what their rows are, training and evaluating them, searching hyper-parameters, the report."""

import os

from ..errors import explain_interruptions

explain_interruptions()
# torch asks for GPUs without starting CUDA, which trainings, as forked processes, could not use then
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
