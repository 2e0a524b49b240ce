"""Time and memory of a piece of work, measured in a process of its own; and what machine it ran on."""

import ctypes
import importlib.metadata
import multiprocessing
import os
import platform
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Callable, Dict, List, Optional

import torch

MIB = 1 << 20


def measured(
    build: Callable[..., Callable[[], None]], arguments: Dict, steps: int, threads: Optional[int], device: str
) -> Dict:
    """Runs ``build(**arguments)()`` once to warm up and ``steps`` times in a new process, alone.

    Returns:
        ``seconds`` of each step, and ``mebibytes``: the peak of the process' resident set (on CUDA, of torch's
        allocations) over its level just before the steps; None where the system doesn't tell.

    """
    context = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
    context.set_forkserver_preload(["torch", "fairseq_kernels"])
    with ProcessPoolExecutor(1, context) as process:
        return process.submit(_measure, build, arguments, steps, threads, device).result()


def _measure(build, arguments, steps, threads, device):
    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(1)
    step = build(**arguments)
    step()
    memory = CudaMemory() if device != "cpu" else ResidentMemory()
    seconds: List[float] = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "mebibytes": memory.above_start()}


class ResidentMemory:
    """Peak of the resident set since its construction, over the level then. Linux."""

    def __init__(self):
        with suppress(OSError, AttributeError):  # what earlier steps freed counts when it is needed again
            ctypes.CDLL(None).malloc_trim(0)
        self.level = None
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
            self.level = self._read("VmRSS")

    @staticmethod
    def _read(field: str) -> float:
        [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field)]
        return int(line.split()[1]) / 1024

    def above_start(self) -> Optional[float]:
        return None if self.level is None else self._read("VmHWM") - self.level


class CudaMemory:
    """Peak of torch's allocations on the GPU since its construction, over the level then."""

    def __init__(self):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        self.level = torch.cuda.memory_allocated()

    def above_start(self) -> float:
        return (torch.cuda.max_memory_allocated() - self.level) / MIB


def processor() -> str:
    """The CPU's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


# for git status: all but what experiments write, and new files where they would be used
OWN = ("--", ".", ":!results", ":!README.md", ":!configs/searched.yaml")
NEW = ("--", "fairseq_kernels", "configs", ":!configs/searched.yaml")


def commit() -> Optional[str]:
    """The repository's commit, with "+" after it if files have changed since, those aside that experiments write."""
    root = Path(__file__).resolve().parents[2]
    git = ["git", "-C", str(root)]
    try:
        head, changed, new = (
            subprocess.run([*git, *command], capture_output=True, text=True, check=True).stdout.strip()
            for command in (
                ["rev-parse", "--short=12", "HEAD"],
                ["status", "--porcelain", "-uno", *OWN],
                ["ls-files", "--others", "--exclude-standard", *NEW],
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changed or new else "")


def provenance(threads: Optional[int] = None) -> Dict:
    """Machine and versions, for a result's record."""
    versions = {}
    for package in ("torch", "fairseq-fixed", "ve-fairseq", "numpy"):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "commit": commit(),
        "processor": processor(),
        "threads": threads or torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
        "date": time.strftime("%Y-%m-%d"),
    }
