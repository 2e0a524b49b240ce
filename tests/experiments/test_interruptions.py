"""Tables that are interrupted, killed or called twice: the same command does what is left, with the same figures."""

import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
from filelock import FileLock
from table_commands import LONG, call, command, environment, start, wait_until

from fairseq_kernels.whole_files import read_records

ROWS = ("--rows", "lin mix2", "--seeds", "1 2", "--jobs", "2", "--", *LONG)
ONE = ("--rows", "lin", "--", *LONG)


def figures(folder):
    """What must not depend on interruptions."""
    records = read_records(folder / "results" / "table3.json")
    return [[record["run"], record["metrics"], record["parts"]] for record in records]


def made(corpus, folder, options=ROWS):
    result = call("table3", corpus, folder, *options)
    assert result.returncode == 0, result.stdout + result.stderr
    return figures(folder)


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    """A table that nothing has happened to."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert len(made(corpus, folder)) == 4
    return folder


def begun(corpus, folder, options, **how):
    """A table one of whose runs has a checkpoint."""
    process = start("table3", corpus, folder, *options, **how)
    wait_until(lambda: list(folder.glob("runs/toy/cpu/*/seed*/checkpoint_last.pt")), process)
    return process


def test_engine_and_trainings_killed(corpus, uninterrupted, tmp_path):
    """By SIGKILL, all at once. They are processes as a user has them, of a Python that nothing has prepared."""
    process = begun(corpus, tmp_path, ROWS, python=sys.executable)
    victims = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    assert len(victims) > 3
    for victim in victims:
        victim.kill()
    process.communicate()
    assert made(corpus, tmp_path) == figures(uninterrupted)
    logs = [path.read_text() for path in tmp_path.glob("runs/toy/cpu/*/seed*/train.log")]
    assert any("resumes after" in log for log in logs) and all(log.count("done training") == 1 for log in logs)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(number, corpus, uninterrupted, tmp_path):
    """In one line; nothing is left that runs."""
    process = begun(corpus, tmp_path, ONE, python=sys.executable)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    output = process.communicate()[0]
    assert process.returncode == 1 and "table3.sh: interrupted; the same command goes on" in output.splitlines()[-1]
    assert "Traceback" not in output and not any(child.is_running() for child in children)
    assert made(corpus, tmp_path, ONE) == figures(uninterrupted)[:1]


def test_a_killed_training_is_told(corpus, uninterrupted, tmp_path):
    process = begun(corpus, tmp_path, ONE)
    [lock] = tmp_path.glob("runs/toy/cpu/*/seed1/lock")
    locks = [line.split() for line in open("/proc/locks")]
    [holder] = [int(fields[4]) for fields in locks if fields[5].endswith(f":{lock.stat().st_ino}")]
    os.kill(holder, signal.SIGKILL)
    output = process.communicate()[0]
    assert process.returncode == 1 and "lin on toy, seed 1: failed: ended without a word, killed" in output
    assert made(corpus, tmp_path, ONE) == figures(uninterrupted)[:1]


def test_one_table_at_a_time(corpus, uninterrupted, tmp_path):
    """In a folder of runs; a training that another process has is waited for."""
    shutil.copytree(uninterrupted / "runs", tmp_path / "runs")
    [run] = tmp_path.glob("runs/toy/cpu/lin-*/seed1")
    for name in ("done", "result.json"):
        (run / name).unlink()
    with FileLock(run / "lock"):
        first = start("table3", corpus, tmp_path, *ONE)
        while "another process trains it; it is waited for" not in first.stdout.readline():
            assert first.poll() is None
        second = call("table3", corpus, tmp_path, *ONE)
        assert second.returncode == 1 and "another table is run in" in second.stderr
    assert first.wait() == 0 and figures(tmp_path) == figures(uninterrupted)[:1]
    first.stdout.close()


@pytest.mark.parametrize("change", ["lost", "damaged", "test set"])
def test_a_record_is_made_again(change, corpus, uninterrupted, tmp_path):
    """From the checkpoints, without an update, where it is lost or damaged, or the test set was another."""
    shutil.copytree(uninterrupted / "runs", tmp_path / "runs")
    [run] = tmp_path.glob("runs/toy/cpu/lin-*/seed1")
    record, checkpoint = run / "result.json", (run / "checkpoint_last.pt").read_bytes()
    expected = figures(uninterrupted)[:1]
    if change == "lost":
        record.unlink()
    elif change == "damaged":
        record.write_text(record.read_text()[:100])
    else:
        corpus = shutil.copytree(corpus, tmp_path / "toy")
        for suffix in ("idx", "bin"):
            shutil.copy(corpus / "data-bin" / f"train.{suffix}", corpus / "data-bin" / f"test.{suffix}")
        [valid, test] = expected[0][1]
        expected[0][2].pop("test")
    [actual] = made(corpus, tmp_path, ONE)
    if change == "test set":
        assert actual[1][1]["tokens"] > 2 * test["tokens"] and actual[2].pop("test")
        actual[1][1] = test
    assert [actual] == expected
    assert (run / "checkpoint_last.pt").read_bytes() == checkpoint


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
    """In training; with room again the same command goes on."""
    filler = small_disk / "filler"
    filler.write_bytes(bytes(450 << 10))
    result = call("table3", corpus, small_disk, *ONE)
    assert result.returncode == 1 and "Traceback" not in result.stdout + result.stderr
    filler.unlink()
    assert made(corpus, small_disk, ONE) == figures(uninterrupted)[:1]


def test_nohup(corpus, tmp_path):
    """A closed terminal ends a table, but for nohup's."""
    process = subprocess.Popen(
        ["nohup", *command("table3", corpus, tmp_path, *ONE)], env=environment(sys.executable), stdout=subprocess.PIPE
    )
    wait_until(lambda: list(tmp_path.glob("runs/toy/cpu/*/seed*/checkpoint_last.pt")), process)
    process.send_signal(signal.SIGHUP)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate()
