"""Tables and reports that are interrupted, killed, called twice or without room: the same command does what is left."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import Timeout
from table_commands import LONG, call, environment, start, wait_until

from fairseq_kernels.experiments import report, results
from fairseq_kernels.experiments.data import Corpus
from fairseq_kernels.experiments.runs import Run
from fairseq_kernels.experiments.tables import ROOT
from fairseq_kernels.experiments.workflow import interruptible


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    """A table that nothing has happened to."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    result = call("table1", corpus, folder, "--rows", "lin", "--", *LONG)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def again(corpus, folder, uninterrupted):
    """The same command, and the same figures as without an interruption: nothing lost, nothing twice."""
    result = call("table1", corpus, folder, "--rows", "lin", "--", *LONG)
    assert result.returncode == 0, result.stdout + result.stderr
    figures, expected = (results.load(place / "results" / "table1.json") for place in (folder, uninterrupted))
    assert [figure["value"] for figure in figures] == [figure["value"] for figure in expected]
    assert all(figure["provenance"]["seconds"] > 0 for figure in figures)
    [log] = folder.glob("runs/toy/cpu/*/seed1/train.log")
    assert log.read_text().count("done training") == 1
    return result.stdout


def begun(corpus, folder, file="checkpoint_last.pt", **how):
    """A table whose run has come to a file of this name."""
    process = start("table1", corpus, folder, "--rows", "lin", "--", *LONG, **how)
    wait_until(lambda: list(folder.glob(f"runs/toy/cpu/*/seed1/{file}")), process)
    return process


def test_interrupted_and_started_again(corpus, uninterrupted, tmp_path):
    process = begun(corpus, tmp_path, python=sys.executable)
    for _ in range(2):  # again, as one does: it must not leave the training behind
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    output = process.communicate()[0]
    assert process.returncode == 1 and "the same command goes on" in output and "Traceback" not in output
    with Run(Corpus.at(corpus), "cpu", ("--kernels", "lin", *LONG), 1, tmp_path / "runs").lock():
        pass  # no training has it any more
    again(corpus, tmp_path, uninterrupted)


def test_engine_killed(corpus, uninterrupted, tmp_path):
    """Its training lives, and isn't trained a second time."""
    process = begun(corpus, tmp_path)
    process.kill()
    process.wait()
    process.stdout.close()
    with pytest.raises(Timeout):
        Run(Corpus.at(corpus), "cpu", ("--kernels", "lin", *LONG), 1, tmp_path / "runs").lock().acquire()
    again(corpus, tmp_path, uninterrupted)


@pytest.mark.parametrize("file", ["checkpoint_last.pt", "test.out.part"], ids=["training", "evaluation"])
def test_step_killed(file, corpus, uninterrupted, tmp_path):
    process = begun(corpus, tmp_path, file)
    [lock] = tmp_path.glob("runs/toy/cpu/*/seed1/lock")
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    [child] = [int(fields[4]) for fields in locks if fields[5].endswith(f":{lock.stat().st_ino}")]
    os.kill(child, signal.SIGKILL)
    output = process.communicate()[0]
    assert process.returncode == 1 and "lin on toy, seed 1: failed: ended without a word" in output
    again(corpus, tmp_path, uninterrupted)


def test_results_damaged(corpus, uninterrupted, tmp_path):
    """A file that a broken disk has cut; files of a clock since put back."""
    shutil.copytree(uninterrupted / "runs", tmp_path / "runs")
    [run] = tmp_path.glob("runs/toy/cpu/*/seed1")
    checkpoint = (run / "checkpoint_last.pt").read_bytes()
    (run / "result.json").write_text((run / "result.json").read_text()[:100])
    for path in run.iterdir():
        os.utime(path, (2**33, 2**33))  # in the year 2242
    again(corpus, tmp_path, uninterrupted)
    assert (run / "checkpoint_last.pt").read_bytes() == checkpoint and (run / "result.damaged").is_file()


def test_two_calls_at_once(corpus, uninterrupted, tmp_path):
    processes = [start("table1", corpus, tmp_path, "--rows", "lin", "--", *LONG) for _ in range(2)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    again(corpus, tmp_path, uninterrupted)


@pytest.fixture
def small_disk(tmp_path):
    """A folder with room for 700 kB; skipped where nothing can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "none", folder], capture_output=True).returncode:
        pytest.skip("a disk can't be mounted")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_disk_full(corpus, uninterrupted, small_disk):
    """In training, and with room again."""
    filler = small_disk / "filler"
    filler.write_bytes(bytes(450 << 10))
    result = call("table1", corpus, small_disk, "--rows", "lin", "--", *LONG)
    assert result.returncode == 1 and "Traceback" not in result.stdout + result.stderr
    assert "failed" in result.stdout + result.stderr
    filler.unlink()
    again(corpus, small_disk, uninterrupted)


def test_disk_full_of_results(uninterrupted, corpus, small_disk):
    """Where the figures go, and with room again."""
    here = ("--rows", "lin", "--results", small_disk / "results", "--", *LONG)
    with open(small_disk / "filler", "wb", buffering=0) as filler, pytest.raises(OSError, match="No space left"):
        while True:
            filler.write(bytes(4096))
    result = call("table1", corpus, uninterrupted, *here)
    assert result.returncode == 1 and "lin on toy, seed 1: failed: " in result.stdout
    assert "No space left" in result.stdout and "Traceback" not in result.stdout + result.stderr
    (small_disk / "filler").unlink()
    assert call("table1", corpus, uninterrupted, *here).returncode == 0
    actual, expected = (results.load(place / "results" / "table1.json") for place in (small_disk, uninterrupted))
    assert actual == expected


def test_report_killed(uninterrupted, tmp_path, monkeypatch):
    """What it leaves is whole, but for a file *.PID.part that a kill before its renaming leaves; the same command makes
    the rest."""
    for name in ("killed", "whole"):
        shutil.copytree(uninterrupted / "results", tmp_path / name)
    script = ["bash", ROOT / "scripts" / "report.sh", "--results", tmp_path / "killed"]
    process = subprocess.Popen(script, stdout=subprocess.DEVNULL, env=environment())
    while not list((tmp_path / "killed").glob("report*")):
        assert process.poll() is None
    process.kill()
    process.wait()
    left = list((tmp_path / "killed").glob("*.part"))
    for name in ("whole", "killed"):
        monkeypatch.setattr(sys, "argv", ["report.sh", "--results", str(tmp_path / name)])
        report.main()
    for name in ("report.md", "report.html"):
        assert (tmp_path / "killed" / name).read_text() == (tmp_path / "whole" / name).read_text()
    assert len(left) <= 1 and list((tmp_path / "killed").glob("*.part")) == left


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals(number):
    """All end the program; a second one, while it is ending, changes nothing."""
    before = signal.signal(number, signal.SIG_DFL)
    try:
        ended = []
        with (
            pytest.raises(SystemExit, match="table1.sh: interrupted; the same command goes on"),
            interruptible("table1.sh"),
        ):
            try:
                os.kill(os.getpid(), number)
            finally:
                for other in (number, signal.SIGINT):
                    os.kill(os.getpid(), other)
                ended.append(True)
        assert ended and signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible("table1.sh"):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
