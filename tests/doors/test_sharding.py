"""FSDP2 in two processes on the CPU: a layer that is a unit of its own, and one of the root's."""

import copy
import subprocess
import sys
from pathlib import Path

import torch
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
        return self.head.nll(self.features(words), words.roll(1, 1))


def outside(model, words):
    """The body's forward, then the head's loss: neither is called in another module's."""
    return model.head.nll(model.features(words), words.roll(1, 1))


def soft(model, words):
    features = model.features(words)
    return model.head.distill(features, features.detach() + 1, nn.Linear(D, V).requires_grad_(False)).sum()


def shard(model, *units):
    for unit in units:
        distributed.fsdp.fully_shard(getattr(model, unit) if unit else model)
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
        "outside": (("embedding", "body", "head"), outside),
        "soft targets": (("embedding", "body", "head"), soft),
    }
    for name, (units, loss) in cases.items():
        plain = trained(Model(), words, lambda model, words, loss=loss: loss(model, words) / 2)
        sharded = trained(shard(Model(), *units), words[2 * rank : 2 * rank + 2], loss)
        for got, expected in zip(sharded, plain):
            torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
        print(name, "as one process")
    head = shard(Model(), "").head
    try:
        head.nll(torch.randn(3, D), torch.zeros(3, dtype=torch.long))
    except ValueError as error:
        print(error)
    whole = distributed.fsdp.FullyShardedDataParallel(Model(), device_id=torch.device("cpu"), use_orig_params=True)
    try:
        whole(words)
    except ValueError as error:
        print(error)
    try:
        from test_huggingface import host, replace_head
        from test_huggingface import words as labelled
    except ImportError:
        return
    model = replace_head(host(tied=False), kernels="lin,log", bias=True)
    ids, labels = labelled(4)
    loss = lambda model, rows: model(ids[rows], labels=labels[rows], num_items_in_batch=10).loss  # noqa: E731
    plain = trained(copy.deepcopy(model), slice(0, 4), lambda model, rows: loss(model, rows) / 2)
    sharded = trained(shard(model, "lm_head", "model", ""), slice(2 * rank, 2 * rank + 2), loss)
    for got, expected in zip(sharded, plain):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
    print("a model of transformers as one process")


def test_two_processes(tmp_path):
    command = [sys.executable, __file__, tmp_path / "meeting"]
    paths = {"PYTHONPATH": ":".join(map(str, sys.path))}
    both = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=paths)
        for rank in (0, 1)
    ]
    for process in both:
        out, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert out.count("as one process") >= 4
        assert "fully_shard(layer)" in out and "FSDP1" in out


if __name__ == "__main__":
    in_one_of_two_processes(int(sys.argv[2]), Path(sys.argv[1]))
    distributed.destroy_process_group()
