"""Runs fairseq's commands as a user does, each in a process of its own, by ``forked_python``.

``fairseq("train", DATA, "--arch", ...)`` is ``fairseq-train DATA --arch ... --user-dir fairseq_kernels``, and
``fairseq("kernels", ...)`` is ``python -m fairseq_kernels ...``.
"""

import json
import os
import re
import subprocess
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

from forked_python import forked_python

USER_DIR = Path(__file__).resolve().parent.parent / "fairseq_kernels"
NEEDS_USER_DIR = ("train", "validate", "eval_lm", "generate", "interactive")
LIMIT = 300  # seconds; a command of the tests takes one or two where nothing else runs

two_at_a_time = ThreadPoolExecutor(2)


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """What the user sees, without the printed configuration."""
        return "\n".join(line for line in (self.out + self.err).splitlines() if "'common'" not in line)


CONSOLE_SCRIPT = """import sys
from fairseq_cli.{name} import cli_main
sys.argv[0] = "fairseq-{dashed}"
sys.exit(cli_main())
"""
KILLED = """import os
from fairseq.trainer import Trainer
train_step = Trainer.train_step

def step(self, *args, **kwargs):
    if self.get_num_updates() + 1 == {update}:
        os.kill(os.getpid(), 9)
    return train_step(self, *args, **kwargs)

Trainer.train_step = step
"""


class Command:
    """A started command; ``wait`` gives its result. It is killed, as by the system, when training is about to make the
    update ``kill_at``."""

    def __init__(self, name, arguments, stdin="", kill_at: Optional[int] = None, cwd=None, environment=()):
        program = CONSOLE_SCRIPT.format(name=name, dashed=name.replace("_", "-"))
        if kill_at is not None:
            program = KILLED.format(update=kill_at) + program
        start = ["-m", "fairseq_kernels"] if name == "kernels" else ["-c", program]
        self.folder = tempfile.TemporaryDirectory()
        text, self.out, self.err = (Path(self.folder.name, stream) for stream in ("in", "out", "err"))
        text.write_text(stdin)
        command = [forked_python(), *start, *map(str, arguments)]
        how = {"cwd": cwd, "env": {**os.environ, **dict(environment)}}
        with open(text) as given, open(self.out, "w") as out, open(self.err, "w") as err:
            self.process = subprocess.Popen(command, stdin=given, stdout=out, stderr=err, **how)

    def wait(self) -> Result:
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with self.folder:
            return Result(self.process.returncode, self.out.read_text(), self.err.read_text())


def start(name, *arguments, **how) -> Command:
    if name in NEEDS_USER_DIR:
        own = () if "--user-dir" in arguments else ("--user-dir", USER_DIR)
        arguments = (*arguments, *own, "--cpu")
    return Command(name, arguments, **how)


def later(name, *arguments, **how) -> "Future[Result]":
    """Queues a command whose result is asked for later."""
    forked_python()  # here, not in both threads
    return two_at_a_time.submit(lambda: start(name, *arguments, **how).wait())


def succeeded(result: Result) -> Result:
    assert result.code == 0, f"ended with {result.code}:\n{result.text[-2000:]}"
    return result


def fairseq(name, *arguments, **how) -> Result:
    """Runs a command that must succeed."""
    return succeeded(start(name, *arguments, **how).wait())


# by default fairseq-train and fairseq-generate leave out the sentences that don't fill a batch of a multiple of 8
ALL_SENTENCES = ("--required-batch-size-multiple", 1)
# language modelling: blocks of whole sentences, of different lengths
LM_TASK = ("--task", "language_modeling", "--sample-break-mode", "complete", "--tokens-per-sample", 12)
SIZES = {
    "lstm": ("--decoder-embed-dim", 16, "--decoder-hidden-size", 16, "--decoder-out-embed-dim", 16,
             "--decoder-layers", 2, "--dropout", 0, "--decoder-dropout-in", 0, "--decoder-dropout-out", 0),
    "transformer_lm": ("--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 16, "--decoder-attention-heads", 2,
                       "--decoder-layers", 2, "--dropout", 0),
    "transformer": ("--encoder-embed-dim", 16, "--encoder-ffn-embed-dim", 16, "--encoder-attention-heads", 2,
                    "--encoder-layers", 1, "--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 16,
                    "--decoder-attention-heads", 2, "--decoder-layers", 2, "--dropout", 0),
}  # fmt: skip


def training(data, save_dir, *options) -> tuple:
    """fairseq-train on a tiny scale: 20 updates, the last checkpoint kept, log lines in JSON."""
    return (
        "train", data, "--save-dir", save_dir, "--optimizer", "adam", "--lr", 0.01, *ALL_SENTENCES, "--batch-size", 16,
        "--max-update", 20, "--no-epoch-checkpoints", "--log-format", "json", "--log-interval", 5, "--seed", 3,
        *options,
    )  # fmt: skip


def lm_training(data, save_dir, *options, arch="kernel_lstm_lm_swb", criterion="kernel_mixture_cross_entropy") -> tuple:
    size = SIZES["transformer_lm" if "transformer" in arch else "lstm"]
    return training(data, save_dir, *LM_TASK, "--arch", arch, "--criterion", criterion, *size, *options)


def mt_training(
    data, save_dir, *options, arch="kernel_transformer_iwslt_de_en", criterion="kernel_mixture_cross_entropy"
) -> tuple:
    criterion = ("--criterion", criterion, "--label-smoothing", 0.1)
    return training(data, save_dir, "--arch", arch, *criterion, *SIZES["transformer"], *options)


def logged(result: Result, kind: str) -> List[Dict[str, float]]:
    """Every log line of a kind ("train", "train_inner", "valid"): its values, without the kind as prefix."""
    lines = re.findall(rf"(?:\| {kind} \||\[{kind}\]\[INFO\] -) (\{{.*\}})", result.out)  # the latter under hydra
    records = [json.loads(line) for line in lines]
    return [{key.removeprefix(f"{kind}_"): float(value) for key, value in record.items()} for record in records]


class Trained(NamedTuple):
    folder: Path
    result: Result

    @property
    def last(self) -> Path:
        return self.folder / "checkpoint_last.pt"


def awaited(folder: Path, queued: "Future[Result]") -> Trained:
    """A queued training that must succeed."""
    return Trained(folder, succeeded(queued.result()))


def trainings(folder, command, models):
    """Queues ``command(FOLDER / NAME, *OPTIONS)`` of each of the models. The function that gives one by its name."""
    queued = {name: (folder / name, later(*command(folder / name, *own))) for name, own in models.items()}
    return lambda name: awaited(*queued[name])


def readme_s_kernel(folder: Path) -> Path:
    """README's kernel, ``laplace``, in a new folder for ``--user-dir``."""
    blocks = (USER_DIR.parent / "README.md").read_text().split("```python\n")[1:]
    [lines] = [block.split("```")[0] for block in blocks if "register_kernel" in block]
    folder.mkdir()
    (folder / "__init__.py").write_text(lines)
    return folder


def script(name, *arguments, **environment) -> Tuple[int, str, str]:
    """``bash scripts/NAME.sh ARGUMENTS``: its exit status, and what it wrote to stdout and stderr."""
    command = ["bash", USER_DIR.parent / "scripts" / f"{name}.sh", *map(str, arguments)]
    environment = {**os.environ, "PYTHON_BIN": forked_python(), **environment}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    return result.returncode, result.stdout, result.stderr
