"""Each output layer in turn."""

import pytest
import torch
from layer_checks import LAYERS, randomised


@pytest.fixture(params=LAYERS)
def layer(request):
    """A layer in float64, all parameters random, in chunks of two tokens."""
    torch.manual_seed(0)
    made = randomised(LAYERS[request.param]())
    made.memory_budget = 2 * made.work_space().numbers * 8
    return made
