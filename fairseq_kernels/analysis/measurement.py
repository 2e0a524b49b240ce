"""Time and memory of a piece of work, measured in a process of its own; and what a result was made with."""

import ctypes
import importlib.metadata
import multiprocessing
import platform
import re
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Callable, Dict, List, Optional

import torch

# the files that make a result what it is
USED = ("fairseq_kernels", "configs", "scripts", "data-prep", "examples", ":!configs/searched.yaml")


def measured(build: Callable[[], Callable], steps: int, threads: Optional[int], device: str, imports=()) -> Dict:
    """Runs ``build()()`` once to warm up and ``steps`` times in a new process, alone. On CPU it needs Linux.
    Processes share the modules ``imports``.

    Returns:
        ``seconds`` of each step, and ``mebibytes``: the peak of the process' resident set (on CUDA, of torch's
        allocations) over its level just before the steps. Attributes of the step come on top, or in their place.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "fairseq_kernels", *imports])
    with ProcessPoolExecutor(1, context) as process:
        return process.submit(_measure, build, steps, threads, device).result()


def _measure(build, steps, threads, device):
    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(1)
    step = build()
    step()
    if device == "cpu":
        ctypes.CDLL(None).malloc_trim(0)  # what earlier steps freed counts when it is needed again
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        level = resident("VmRSS")
    else:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        level = torch.cuda.memory_allocated()
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    peak = resident("VmHWM") if device == "cpu" else torch.cuda.max_memory_allocated()
    return {"seconds": seconds, "mebibytes": (peak - level) / 2**20, **vars(step)}


def resident(field: str) -> int:
    """``VmRSS`` or ``VmHWM``, the resident set or its peak, in bytes."""
    [kibibytes] = re.findall(rf"{field}:\s*(\d+)", Path("/proc/self/status").read_text())
    return 1024 * int(kibibytes)


def commit() -> Optional[str]:
    """The repository's commit, with "+" after it if files that results come from have changed since."""
    where = {"cwd": Path(__file__).parents[2], "stderr": subprocess.DEVNULL, "text": True}
    commands: List = [("git", "rev-parse", "--short=12", "HEAD"), ("git", "status", "--porcelain", "--", *USED)]
    try:
        head, changed = (subprocess.check_output(command, **where).strip() for command in commands)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changed else "")


def provenance(threads: Optional[int] = None) -> Dict:
    """Commit, day, versions and machine, for a result's record."""
    versions = {"python": platform.python_version()}
    for package in ("torch", "fairseq-fixed", "ve-fairseq", "numpy", "liger-kernel", "cut-cross-entropy"):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    told = Path("/proc/cpuinfo")  # Linux has the CPU's name there
    names = re.findall(r"model name\s*: (.*)", told.read_text()) if told.exists() else []
    machine = {
        "processor": names[0] if names else platform.machine(),
        "threads": threads or torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
    }
    return {"commit": commit(), "date": time.strftime("%Y-%m-%d"), "versions": versions, "machine": machine}
