"""Tables that are interrupted, killed or called twice: the same command does what is left, with the same figures."""

import shutil

import pytest
from filelock import FileLock
from table_commands import LONG, call, processes, start, succeeded, wait_until

from fairseq_kernels.whole_files import read_records

ROWS = ("--rows", "lin mix2", "--", *LONG)
ONE = ("--rows", "lin", "--", *LONG)


def figures(folder):
    """What must not depend on interruptions."""
    records = read_records(folder / "results" / "table3.json")
    return [[record["run"], record["metrics"], record["parts"]] for record in records]


def made(corpus, folder, options=ROWS):
    succeeded(call("table3", corpus, folder, *options))
    return figures(folder)


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    """A table that nothing has happened to."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert len(made(corpus, folder)) == 2
    return folder


def test_engine_and_trainings_killed(corpus, uninterrupted, tmp_path):
    """By SIGKILL, all at once, when one of the runs has a checkpoint."""
    process = start("table3", corpus, tmp_path, *ROWS)
    wait_until(lambda: list(tmp_path.glob("runs/toy/cpu/*/seed*/checkpoint_last.pt")), process)
    victims = processes(tmp_path)
    assert len(victims) > 3
    for victim in victims:
        victim.kill()
    process.communicate()
    assert made(corpus, tmp_path) == figures(uninterrupted)
    logs = [path.read_text() for path in tmp_path.glob("runs/toy/cpu/*/seed*/train.log")]
    assert any("resumes after" in log for log in logs) and all(log.count("done training") == 1 for log in logs)


def test_one_table_at_a_time(corpus, uninterrupted, tmp_path):
    """In a folder of runs. A training that another process has is waited for."""
    shutil.copytree(uninterrupted / "runs", tmp_path / "runs")
    [run] = tmp_path.glob("runs/toy/cpu/lin-*/seed1")
    for name in ("done", "result.json"):
        (run / name).unlink()
    (tmp_path / "runs" / "plan.json").unlink()  # so that the first call's own is waited for
    with FileLock(run / "lock"):
        first = start("table3", corpus, tmp_path, *ONE)
        wait_until((tmp_path / "runs" / "plan.json").exists, first)
        second = call("table3", corpus, tmp_path, *ONE)
        assert second.returncode == 1 and "another table is run in" in second.stderr
        assert not (run / "result.json").exists()
    assert first.wait() == 0 and figures(tmp_path) == figures(uninterrupted)[:1]
    first.stdout.close()


def test_another_test_set(corpus, uninterrupted, tmp_path):
    """Is evaluated, without an update; the other figures stay."""
    shutil.copytree(uninterrupted / "runs", tmp_path / "runs")
    other = shutil.copytree(corpus, tmp_path / "toy")
    for suffix in ("idx", "bin"):
        shutil.copy(other / "data-bin" / f"train.{suffix}", other / "data-bin" / f"test.{suffix}")
    (before, after) = figures(uninterrupted)[0], made(other, tmp_path, ONE)[0]
    assert after[1][1]["tokens"] > 2 * before[1][1]["tokens"] and after[1][0] == before[1][0]
    assert after[0] == before[0] and after[2]["valid"] == before[2]["valid"]
