"""FSDP2 in two processes on the CPU: a layer that is a unit of its own, and one of the root's."""

import copy
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from forked_python import forked_python
from torch import distributed, nn

from fairseq_kernels import GeneralizedSoftmax

V, D = 19, 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embedding, self.body = nn.Embedding(V, D), nn.Linear(D, D)
        self.head = GeneralizedSoftmax(D, V, "2xlin,rbf")  # FSDP2 takes no scalars, as learned values are

    def features(self, words):
        return self.body(self.embedding(words)).tanh()

    def forward(self, words):
        weights = words / V, torch.linspace(1, 2, V)  # of tokens and of classes
        return self.head.nll(self.features(words), words.roll(1, 1), 3, 0.1, "sum", weights[0], False, weights[1])


def soft(model, words):
    features = model.features(words)
    return model.head.distill(features, features.detach() + 1, nn.Linear(D, V).requires_grad_(False), 2.0).sum()


def shard(model, *units):
    for unit in units:
        distributed.fsdp.fully_shard(model.get_submodule(unit))  # "" is the model
    return model


def trained(model, words, loss):
    """All parameters after three updates, with the loss averaged over the processes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        torch.manual_seed(step)
        optimizer.zero_grad(), loss(model, words).backward(), optimizer.step()
    return [getattr(p, "full_tensor", lambda p=p: p)().detach() for p in model.parameters()]


def in_one_of_two_processes(rank, file):
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    words = torch.randint(V, (4, 10), generator=torch.Generator().manual_seed(3))
    cases = {
        "own unit": (("head", ""), lambda model, words: model(words)),
        "root": (("",), lambda model, words: model(words)),
        "called outside": (("embedding", "body", "head"), lambda model, words: Model.forward(model, words)),
        "soft targets": (("embedding", "body", "head"), soft),
    }
    for name, (units, loss) in cases.items():
        plain = trained(Model(), words, lambda model, words, loss=loss: loss(model, words) / 2)
        sharded = trained(shard(Model(), *units), words[2 * rank : 2 * rank + 2], loss)
        torch.testing.assert_close(sharded, plain, atol=1e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")
    with torch.device("meta"):
        head = shard(GeneralizedSoftmax(D, V, "2xlin,rbf"), "")
    head.to_empty(device="cpu").reset_parameters()  # as models that don't fit one process are begun
    assert 0.9 < (D / 3) ** 0.5 * head.latent_projection.full_tensor().abs().max() <= 1
    with pytest.raises(ValueError, match=r"fully_shard\(layer\)"):
        shard(Model(), "").head.nll(torch.randn(3, D), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="FSDP1"):
        distributed.fsdp.FullyShardedDataParallel(Model(), device_id=torch.device("cpu"), use_orig_params=True)(words)
    if find_spec("transformers") is None:
        return
    from test_huggingface import host, labelled, replace_head

    model = replace_head(host(tied=False), kernels="lin,log", bias=True)
    ids, labels = labelled(4)
    loss = lambda model, rows: model(ids[rows], labels=labels[rows], num_items_in_batch=10).loss  # noqa: E731
    plain = trained(copy.deepcopy(model), slice(0, 4), lambda model, rows: loss(model, rows) / 2)
    sharded = trained(shard(model, "lm_head", "model", ""), slice(2 * rank, 2 * rank + 2), loss)
    torch.testing.assert_close(sharded, plain, atol=1e-5, rtol=1e-4)


@pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="this torch has no FSDP2 on the CPU")
def test_two_processes_train_as_one(tmp_path):
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [forked_python(), __file__, tmp_path / "meeting"]
    both = [subprocess.Popen([*command, rank], stderr=subprocess.PIPE, text=True, env=paths) for rank in "01"]
    for process in both:
        assert process.wait(300) == 0, process.stderr.read()


if __name__ == "__main__":
    in_one_of_two_processes(int(sys.argv[2]), sys.argv[1])
    distributed.destroy_process_group()
