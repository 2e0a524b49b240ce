"""Puts the bugs of bugs.py, or others, into a copy of the repository, one at a time, and looks whether their tests
notice.

    PYTHONPATH=. .venv/bin/python tests/mutations/run.py [--only TEXT] [--bugs FILE] [--out results/mutations.json]

For hand or night, not CI. A bug is killed if a test fails, or none can be run; without a bug all must pass. What the
file already has as killed isn't tried again. The tests run in processes forked from this one, which has imported torch
and fairseq, but nothing of the repository.
"""

import argparse
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Dict, Sequence

import fairseq_cli.train  # noqa: F401
import filelock  # noqa: F401
import hypothesis.strategies  # noqa: F401
import pandas  # noqa: F401
import pytest
import sacrebleu  # noqa: F401
import scipy.stats  # noqa: F401
import torch._dynamo  # noqa: F401
import torch.distributed.tensor  # noqa: F401  (torch.testing's)
import torch.distributions  # noqa: F401
from bugs import BUGS, Bug

ROOT = Path(__file__).resolve().parents[2]
TIMES = itertools.count(1_000_000_000)
LIMIT = 900  # seconds that the tests of a bug may take; a bug that makes them endless is killed


def passes(tests: str, copy: Path, limit: int = 0) -> bool:
    """Whether these tests pass in the copy, in a process of its own, within so many seconds; 0: however long."""
    child = os.fork()
    if child == 0:
        os.setpgrp()
        output = os.open(copy / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(copy)
        sys.modules["__main__"] = ModuleType("__main__")  # multiprocessing would import this file again
        os.environ["PYTHONPATH"] = sys.path[0] = str(copy)
        signal.alarm(limit)
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *shlex.split(tests)]))
    _, status = os.waitpid(child, 0)
    try:
        os.killpg(child, signal.SIGKILL)  # what the tests have left running
    except ProcessLookupError:
        pass
    return status == 0


def by_file(bugs: Sequence[Bug]) -> Dict[str, str]:
    """All tests of these bugs in one call a file: ``-k 'ONE'`` and ``-k 'OTHER'`` make ``-k '(ONE) or (OTHER)'``."""
    keywords: Dict[str, Dict[str, None]] = {}
    for bug in bugs:
        file, _, keyword = bug.tests.partition(" -k ")
        keywords.setdefault(file, {})[keyword.strip("'")] = None
    return {
        file: f"{file} -k '{' or '.join(f'({keyword})' for keyword in own)}'" if all(own) else file
        for file, own in keywords.items()
    }


def write(path: Path, text: str) -> None:
    """With a time of its own: by it Python tells whether compiled code is of this text."""
    path.write_text(text, encoding="utf-8")
    os.utime(path, (next(TIMES),) * 2)


def tried(bug: Bug, copy: Path) -> bool:
    """Whether it is killed."""
    text = (copy / bug.file).read_text(encoding="utf-8")
    write(copy / bug.file, text.replace(bug.old, bug.new))
    try:
        return not passes(bug.tests, copy, LIMIT)
    finally:
        write(copy / bug.file, text)


def record(path: Path, outcomes: Dict[Bug, Dict], bugs: Sequence[Bug], **more) -> None:
    in_order = [outcomes[bug] for bug in bugs if bug in outcomes]
    killed = sum(outcome["killed"] for outcome in in_order)
    content = {"killed": killed, "tried": len(in_order), **more, "outcomes": in_order}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="bugs in whose file, code or tests this text is")
    parser.add_argument("--bugs", type=Path, help="a JSON list in the place of bugs.py (random_bugs.py draws one)")
    parser.add_argument("--out", type=Path, help="a JSON file for what became of each bug")
    args = parser.parse_args()
    bugs = [Bug(**bug) for bug in json.loads(args.bugs.read_text())] if args.bugs else BUGS
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the tests need none, and they take time
    before = json.loads(args.out.read_text())["outcomes"] if args.out and args.out.is_file() else []
    outcomes = {Bug(**{name: outcome[name] for name in Bug._fields}): outcome for outcome in before}
    outcomes = {bug: outcomes[bug] for bug in bugs if bug in outcomes}  # others are no longer in the list
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        for bug in bugs:
            count = (copy / bug.file).read_text(encoding="utf-8").count(bug.old)
            if count != 1:
                sys.exit(f"{bug.file} has {count} times {bug.old!r}; mend {args.bugs or 'bugs.py'}")
        killed = {bug for bug, outcome in outcomes.items() if outcome["killed"]}
        to_try = [bug for bug in bugs if bug not in killed and args.only in " ".join(bug)]
        without_bug = by_file(to_try)
        for bug in to_try:
            tests = without_bug.pop(bug.tests.partition(" -k ")[0], None)
            if tests is not None and not passes(tests, copy):
                sys.exit((copy / "output").read_text() + f"{tests} fail without a bug")
            outcomes[bug] = {**bug._asdict(), "killed": tried(bug, copy)}
            print("killed  " if outcomes[bug]["killed"] else "SURVIVED", bug.file, repr(bug.new), flush=True)
            if args.out:
                record(args.out, outcomes, bugs)
    from fairseq_kernels.analysis.measurement import provenance  # not before the last bug

    print(f"{sum(outcome['killed'] for outcome in outcomes.values())} of {len(outcomes)} killed")
    if args.out:
        record(args.out, outcomes, bugs, made=provenance())


if __name__ == "__main__":
    main()
