"""What the preparations share: one-line errors, files that are whole or absent, progress, stamps, fairseq."""

import argparse
import contextlib
import ctypes
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

PROGRAM = "data-prep"  # the name in messages; run() sets it


# ------------------------------------------------------------------------------------- errors, signals


def fail(message):
    """Print ``PROGRAM: error: message`` as one line on stderr and exit with status 2."""
    say(f"{PROGRAM}: error: {' '.join(str(message).split())}")
    sys.exit(2)


def say(message):
    """Print a line on stderr, below a progress line that is not finished."""
    print("\n" * Progress.unfinished + message, file=sys.stderr, flush=True)
    Progress.unfinished = False


def run(main, program):
    """Call ``main()`` as the script ``program``; Ctrl-C and failing input or output end it with one line."""
    global PROGRAM
    PROGRAM = program
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception: children and .part files go too
    try:
        main()
    except KeyboardInterrupt:
        say(f"{PROGRAM}: interrupted: the same command goes on from the last whole stage")
        sys.exit(130)
    except OSError as error:
        fail(f"{error.filename or 'input/output'}: {error.strerror or error}")


class ArgumentParser(argparse.ArgumentParser):
    """argparse whose errors are one line, without the usage in front."""

    def error(self, message):
        fail(f"{message} (see --help)")


def positive_int(text):
    """argparse type: an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


# ------------------------------------------------------------------------------------ reading, writing


_locked = set()  # directories that this process has locked


def output_directory(path):
    """Create the output directory ``path`` where it does not exist, make sure it can be written, lock it.

    The lock is held until the process ends, so that two preparations cannot write over each other.
    """
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (FileExistsError, NotADirectoryError):
        fail(f"--out {path}: is, or lies in, a file: give a directory")
    except OSError as error:
        fail(f"--out {path}: cannot be written ({error.strerror}): give a directory you may write to")
    if fcntl and path.resolve() not in _locked:
        try:
            fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fail(f"--out {path}: another preparation is writing there: wait for it or give another directory")
        except OSError:
            pass  # a file system without locks
        _locked.add(path.resolve())
    return path


@contextlib.contextmanager
def atomic_write(path):
    """Text file that appears under its name only when the ``with`` block has ended well."""
    part = Path(f"{path}.part")
    try:
        with open(part, "w", encoding="utf-8", newline="\n") as file:
            yield file
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def read_lines(path, progress=None):
    """Yield ``(number, line)`` of a UTF-8 text file, from number 1, without line ends; streams.

    Args:
        progress: ``Progress`` in bytes, or None.
    """
    try:
        with open(path, "rb") as file:
            for number, raw in enumerate(file, start=1):
                if progress is not None:
                    progress.update(len(raw))
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        fail(f"{path}:{number}: not UTF-8 text: convert it, e.g. iconv -f latin1 -t utf-8")
    except OSError as error:
        fail(f"{path}: cannot be read ({error.strerror})")


def find_files(directory, pattern, skip_directories=()):
    """Sorted files below ``directory``, links followed, whose name matches the compiled ``pattern``."""
    found, visited = [], set()
    for parent, children, names in os.walk(directory, followlinks=True):
        real = os.path.realpath(parent)
        if real in visited:  # a link back up, or a second way to the same directory
            children[:] = []
            continue
        visited.add(real)
        children[:] = sorted(child for child in children if child not in skip_directories)
        found += [Path(parent, name) for name in names if pattern.fullmatch(name)]
    return sorted(found)


# -------------------------------------------------------------------------------------------- progress


class Progress:
    """Percentage on stderr: one line rewritten on a terminal, elsewhere a line every 10 s and at the end.

    Args:
        label: what is being done, e.g. ``"normalising"``.
        total: amount of work in any unit (bytes, lines).
    """

    unfinished = False  # whether the cursor is behind a line to be rewritten

    def __init__(self, label, total):
        self.label, self.total, self.done = label, max(total, 1), 0
        self.step = self.next = self.total / 200
        self.terminal = sys.stderr.isatty()
        self.start = self.shown = time.monotonic()

    def update(self, amount):
        """Add ``amount`` of finished work."""
        self.done += amount
        if self.done >= self.next:
            self.next = self.done + self.step
            if self.terminal or time.monotonic() - self.shown >= 10:
                self._show()

    def _show(self):
        self.shown = time.monotonic()
        percent = min(100, int(100 * self.done / self.total))
        text = f"{self.label}: {percent:3d} %, {self.shown - self.start:.0f} s"
        print(f"\r{text}" if self.terminal else f"{text}\n", end="", file=sys.stderr, flush=True)
        Progress.unfinished = self.terminal

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self._show()
        if Progress.unfinished:
            print(file=sys.stderr)
            Progress.unfinished = False


# ---------------------------------------------------------------------------------------------- stamps


def digest(*values):
    """Hexadecimal SHA-256 of JSON-able values: equal inputs and options have equal digests."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def fingerprint(paths):
    """``[path, bytes, modification time in ns]`` of every file: differs once one is changed or missing."""
    return [[str(path), (stat := os.stat(path)).st_size, stat.st_mtime_ns] for path in paths]


class Stamps:
    """The finished stages of a preparation, in a JSON file: ``{stage: {key, outputs, result}}``.

    A stage is finished when its key (options and inputs) is the same and its outputs still have their sizes.
    """

    def __init__(self, path):
        self.path = Path(path)
        try:
            self.stages = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self.stages = {}

    def result(self, stage, key):
        """What ``finish`` was given for this stage and key, or None where the stage has to be done."""
        stamp = self.stages.get(stage, {})
        outputs = stamp.get("outputs", {})
        if stamp.get("key") != key or outputs != self._sizes(outputs):
            return None
        return stamp["result"]

    def forget(self, *stages):
        """Call before the outputs of ``stages`` are touched."""
        for stage in stages:
            self.stages.pop(stage, None)
        self._write()

    def finish(self, stage, key, outputs, result):
        """Note that ``stage`` is done: ``outputs`` are files or directories, ``result`` any JSON value."""
        files = [file for output in map(Path, outputs) for file in (output, *output.rglob("*"))]
        names = sorted(str(file.relative_to(self.path.parent)) for file in files)
        self.stages[stage] = {"key": key, "outputs": self._sizes(names), "result": result}
        self._write()

    def _sizes(self, names):
        paths = {name: self.path.parent / name for name in names}
        return {name: path.stat().st_size if path.is_file() else None for name, path in paths.items()}

    def _write(self):
        with atomic_write(self.path) as file:
            json.dump(self.stages, file, indent=1)
            file.write("\n")


# --------------------------------------------------------------------------------------------- fairseq


def require_fairseq():
    """Fail, before any long work, where this Python has no fairseq."""
    if importlib.util.find_spec("fairseq_cli") is None:
        fail(f"{sys.executable} has no fairseq: install it there, or set PYTHON to a Python that has it")


def fairseq_preprocess(arguments, data_bin, log, progress=None):
    """Run ``fairseq-preprocess arguments --destdir data_bin``; the directory appears only when complete.

    Args:
        arguments: list of strings, without ``--destdir``.
        data_bin: directory to make; one that is there is replaced.
        log: file that receives fairseq's output.
        progress: ``Progress`` in bytes of binary data, or None.
    """
    data_bin = Path(data_bin)
    for stale in data_bin.parent.glob(f"{data_bin.name}.part-*"):  # left by a killed run
        shutil.rmtree(stale, ignore_errors=True)
    # a new name each time: what a killed run left running cannot write into it
    part = Path(tempfile.mkdtemp(prefix=f"{data_bin.name}.part-", dir=data_bin.parent))
    part.chmod(0o777 & ~_umask())
    command = [sys.executable, "-m", "fairseq_cli.preprocess", *map(str, arguments), "--destdir", str(part)]
    try:
        status = _run_child(command, log, part, progress)
        if status:
            fail(f"fairseq-preprocess failed, exit status {status} ({_last_line(log)}): see {log}")
        (part / "preprocess.log").unlink(missing_ok=True)  # the same as log
        if data_bin.exists():
            shutil.rmtree(data_bin)
        part.rename(data_bin)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _run_child(command, log, destination, progress):
    with open(log, "w", encoding="utf-8") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                 start_new_session=True, preexec_fn=_die_with_parent)
    try:
        while child.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=0.5)
            if progress is not None:
                size = sum(file.stat().st_size for file in destination.glob("*.bin"))
                progress.update(max(0, size - progress.done))
    finally:
        if child.poll() is None:  # an interrupt: stop its worker processes, too
            os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


def _die_with_parent():
    """Have this process killed, on Linux, when its parent is: SIGKILL leaves the parent no time to do it."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _last_line(path):
    lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")
