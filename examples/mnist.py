"""MNIST with the losses of de Brébisson & Vincent (2016), Tables 1 and 2, over this package's output layers.

    python examples/mnist.py MNIST_FOLDER --results results/mnist.json

MNIST_FOLDER has the four *-ubyte files. scripts/report.sh --publish makes a table of the results. The network is the
paper's (section 4.1): two layers of convolution and pooling with 30 and 60 maps of 5 x 5, 500 units, rectifiers, He's
start; minibatches of 200, Nesterov momentum 0.9, a learning rate that is halved after 5 epochs without gain, and early
stopping, both by the loss of the validation set. Max pooling is over 2 x 2. Each loss has the learning rate of
LEARNING_RATES whose two neighbours are worse on the validation set (seed 0). A run found in the results is not run
again. Several of these commands, of different --losses, may write to one file.
"""

import argparse
import copy
import hashlib
import math
import time
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from torch import nn

from fairseq_kernels import GeneralizedSoftmax, SphericalSoftmax, SquaredError, TaylorSoftmax
from fairseq_kernels.analysis.measurement import provenance
from fairseq_kernels.experiments.tables import load_table, publish
from fairseq_kernels.whole_files import read_records

UNITS, CLASSES, BATCH = 500, 10, 200
LEARNING_RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
IMAGES = "train-images-idx3-ubyte", "t10k-images-idx3-ubyte"
LABELS = "train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"
LAYERS = {
    "squared-error": lambda: SquaredError(UNITS, CLASSES),
    "softmax": lambda: GeneralizedSoftmax(UNITS, CLASSES, kernels="lin"),
    "abs": lambda: GeneralizedSoftmax(UNITS, CLASSES, kernels="abs"),
    "spherical": lambda: SphericalSoftmax(UNITS, CLASSES),
    "taylor": lambda: TaylorSoftmax(UNITS, CLASSES),
}


def read(folder: Path, name: str) -> torch.Tensor:
    """The tensor of bytes in an IDX file: images (N, 1, 28, 28) / 255 in float32, or labels (N,)."""
    data = np.fromfile(folder / name, dtype=np.uint8)
    dimensions = data[3]
    shape = data[4 : 4 + 4 * dimensions].view(">i4").tolist()
    values = torch.from_numpy(data[4 + 4 * dimensions :]).view(*shape)
    return values.long() if dimensions == 1 else values.unsqueeze(1).float() / 255


def splits(folder: Path, kind: str, seed: int):
    """Pairs of images and labels for training (50,000), validation (10,000) and test (10,000)."""
    images, labels = ([read(folder, name) for name in names] for names in (IMAGES, LABELS))
    tests = len(labels[1])
    images, labels = torch.cat(images), torch.cat(labels)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator)
    if kind == "official":
        first = len(labels) - tests
        order = torch.cat([order[order < first], torch.arange(first, len(labels))])
    return [(images[rows], labels[rows]) for rows in order.split([len(labels) - 2 * tests, tests, tests])]


def network() -> nn.Sequential:
    """Images (N, 1, 28, 28) to context vectors (N, 500)."""
    model = nn.Sequential(
        *(nn.Conv2d(1, 30, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(30, 60, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(960, UNITS), nn.ReLU()),
    )
    for module in model:
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)
    return model.to(memory_format=torch.channels_last)  # a quarter faster on a CPU


def output_layer(name: str):
    layer = LAYERS[name]()
    if name != "abs":  # the paper starts at 0, where |o| has no gradient
        nn.init.zeros_(layer.weight)
    return layer


@torch.no_grad()
def evaluate(model, layer, images, labels):
    """The mean training loss, and log-probabilities (N, 10)."""
    features = torch.cat([model(part) for part in images.split(1000)])
    return layer.nll(features, labels, reduction="mean").item(), layer(features)


def nll_at(log_p, labels, temperature: float) -> float:
    """Mean negative log-likelihood in nats where log-probabilities are divided by a temperature."""
    return nn.functional.cross_entropy(log_p / temperature, labels).item()


def train(data, name: str, learning_rate: float, seed: int, epochs: int):
    """Metrics of the best epoch, and the curve of validation losses."""
    (images, labels), valid, test = data
    torch.manual_seed(seed)
    model, layer = network(), output_layer(name)
    parameters = [*model.parameters(), *layer.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=learning_rate, momentum=0.9, nesterov=True)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=4)
    best, state, best_epoch, curve = float("inf"), None, 0, []
    for epoch in range(1, epochs + 1):
        for rows in torch.randperm(len(images)).split(BATCH):
            loss = layer.nll(model(images[rows]), labels[rows], reduction="mean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        loss, _ = evaluate(model, layer, *valid)
        if not math.isfinite(loss):  # diverged
            break
        curve.append(round(loss, 5))
        plateau.step(loss)
        if loss < best:
            best, best_epoch, state = loss, epoch, copy.deepcopy((model.state_dict(), layer.state_dict()))
        if epoch >= best_epoch + 10:
            break
    if state is None:
        return best, {}, curve
    model.load_state_dict(state[0])
    layer.load_state_dict(state[1])
    (_, log_valid), (loss, log_test) = evaluate(model, layer, *valid), evaluate(model, layer, *test)
    temperature = min(np.geomspace(0.25, 4, 241).tolist(), key=lambda t: nll_at(log_valid, valid[1], t))
    metrics = {
        "loss": loss,
        "nll": nll_at(log_test, test[1], 1),
        "nll_at_temperature": nll_at(log_test, test[1], temperature),
        "temperature": temperature,
        "error": 100 * (log_test.argmax(1) != test[1]).double().mean().item(),
        "epochs": best_epoch,
    }
    return best, metrics, curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--results", type=Path, required=True, help="records of the runs, added to as they come")
    parser.add_argument("--losses", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--splits", nargs="+", choices=("official", "random"), default=["official", "random"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(1, 11)))
    parser.add_argument("--epochs", type=int, default=100, help="at most")
    args = parser.parse_args()
    table = load_table("mnist")
    data = hashlib.sha256(b"".join((args.data / name).read_bytes() for name in (*IMAGES, *LABELS)))

    def run(name: str, profile: str, seed: int, learning_rate: float):
        """The record of a training on the official split or a random one, or of a search for the learning rate."""
        settings = {"loss": name, "lr": str(learning_rate)}
        identity = {"row": name, "corpus": "mnist", "profile": profile, "seed": seed, "settings": settings}
        for record in read_records(args.results):
            if record["run"] == identity:
                return record
        started = time.time()
        parts = splits(args.data, "random" if profile == "random" else "official", seed)
        best, metrics, curve = train(parts, name, learning_rate, seed, args.epochs)
        made = {"argv": table.command.split(), "data": data.hexdigest()[:12], **provenance()}
        made["seconds"] = round(time.time() - started)
        figures = [{"split": "valid", "metric": "loss", "value": best}] if curve else []  # JSON has no infinity
        if profile != "search":
            figures += [{"split": "test", "metric": metric, "value": value} for metric, value in metrics.items()]
        record = {"run": identity, "made": made, "metrics": figures, "curves": {"valid": curve}}
        with FileLock(f"{args.results}.lock"):
            publish(args.results, [record], [row.name for row in table.rows])
        print(name, profile, f"seed {seed}, lr {learning_rate}:", f"valid loss {best:.5f}", metrics, flush=True)
        return record

    for name in args.losses:
        best, chosen = None, 3  # 0.03
        while best != chosen:
            best = chosen
            near = range(max(best - 1, 0), min(best + 2, len(LEARNING_RATES)))
            metrics = {n: run(name, "search", 0, LEARNING_RATES[n])["metrics"] for n in near}
            chosen = min(near, key=lambda n: metrics[n][0]["value"] if metrics[n] else math.inf)
        for split in args.splits:
            for seed in args.seeds:
                run(name, split, seed, LEARNING_RATES[best])


if __name__ == "__main__":
    main()
