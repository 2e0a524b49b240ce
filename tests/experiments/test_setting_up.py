"""scripts/setup.sh, test.sh and quickstart.sh, by a Python that tells its calls and makes files of theirs."""

import re
import shutil
import subprocess
import sys

import pytest
from fairseq_commands import USER_DIR
from preparations import lines_of, write

from fairseq_kernels.experiments.profiles import check_options, training_settings
from fairseq_kernels.experiments.tables import settings_of, words_of

ROOT = USER_DIR.parent
PYTHON = """#!/bin/bash
echo "$*" >>{calls}
folder=$(sed -n 's/.*--save-dir \\([^ ]*\\).*/\\1/p; s/.* \\([^ ]*\\)\\/checkpoint_best.pt.*/\\1/p' <<<"$*")
case "$*" in
    *version_info*) echo {version} ;;
    "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    "-m pip install"*) [ -z "${{FAIL:-}}" ] || {{ echo no network; exit 1; }} ;;
    *fairseq_cli.train*) [ -z "${{BROKEN:-}}" ] || exit 1 ;;
    *reduce*) exec {python} "$@" ;;
    *prepare_swb*) mkdir -p quickstart/lm
        echo '{{"result": {{"splits": {{"valid": {{"perplexity": 333.25}}, "test": {{"perplexity": 345.67}}}}}}}}' \\
            >quickstart/lm/prepare.json ;;
    *toy_german*) mkdir -p quickstart/mt
        echo '{{"result": {{"all": 2, "valid": 1.6543}}}}' >quickstart/mt/prepare.json ;;
    *"cli train"*) mkdir -p "$folder"
        printf 'now | INFO | valid | loss 2 | ppl %s | num_updates 9\\n' 9.87 6.54 >"$folder/train.log" ;;
    *"evaluate lm"*) echo "test perplexity 12$(grep -c evaluate {calls}).5 (9 words)" ;;
    *"evaluate mt"*) echo "test BLEU4 12.3"
        printf '%s\\n' 'S-3\tdrei .' 'T-3\tthree .' 'H-3\t-0.1\tthree' 'D-3\t-0.1\t3' 'P-3\t-1' 'S-4\tno' \\
            >"$folder/checkpoint_best.pt.test.gen" ;;
esac
"""


@pytest.fixture
def called(tmp_path):
    """Runs a script of a clone; returns its status, what it says, and the calls of its Python."""
    for name in ("scripts", "data-prep"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for version in ("3.9", "3.12", "3.13"):
        text = PYTHON.format(calls=tmp_path / "calls", version=version, python=sys.executable)
        write(tmp_path / version, text).chmod(0o755)

    def run(name, *arguments, **variables):
        write(tmp_path / "calls", "")
        command = ["bash", tmp_path / "scripts" / f"{name}.sh", *arguments]
        variables = {"PATH": "/usr/bin:/bin", **{name: value.format(tmp=tmp_path) for name, value in variables.items()}}
        done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr, lines_of(tmp_path / "calls")

    return run


def test_what_is_installed(called):
    """Once; again for another torch, in a new .venv for another Python; nothing where PYTHON_BIN is given."""

    def installed(*arguments, **variables):
        code, said, calls = called("setup", *arguments, **variables)
        made = [call.rpartition("constraints.txt ")[2] for call in calls if re.match("-m (venv|pip install)", call)]
        return (code, made) if code == 0 else (code, said)

    assert "no network" in installed(PYTHON="{tmp}/3.12", FAIL="1")[1]
    compiling = ["torch cython numpy setuptools<82 wheel", "--no-build-isolation torch -e .[recipes,test]"]
    uname = subprocess.check_output(["uname", "-sm"], text=True)
    usual = ["torch -e .[recipes,test]"] if uname == "Linux x86_64\n" else compiling
    assert "can't be imported" in installed(PYTHON="{tmp}/3.12", BROKEN="1")[1]
    assert installed(PYTHON="{tmp}/3.12") == (0, usual)
    assert installed() == installed(PYTHON="{tmp}/3.12") == (0, [])
    assert installed(TORCH="torch==2") == (0, [each.replace("torch", "torch==2", 1) for each in usual])
    assert installed(PYTHON="{tmp}/3.13") == (0, ["-m venv .venv", *compiling])
    assert installed(PYTHON_BIN="{tmp}/3.12") == (0, [])
    for arguments, variables, named in (([], {"PYTHON": "{tmp}/3.9"}, "Python 3.9"), (["3.12"], {}, "'3.12'")):
        code, said = installed(*arguments, **variables)
        assert code == 2 and named in said


@pytest.mark.parametrize("arguments, variables, asked", [
    (["--fast", "-x"], {}, "2 .* tests/options tests/numerics -x"),
    (["-k", "a b"], {"WORKERS": "0"}, "0 .* -k a b"),
])  # fmt: skip
def test_which_tests_run(arguments, variables, asked, called):
    code, said, calls = called("test", *arguments, PYTHON_BIN="{tmp}/3.12", **variables)
    assert code == 0 and re.fullmatch(f".*-m pytest -q --numprocesses {asked}", calls[-1]), said


def test_quickstart(called, tmp_path):
    """Figures, sentences and curves are those of the files; a second call finds all of them."""
    code, said, calls = called("quickstart", PYTHON_BIN="{tmp}/3.12")
    out = tmp_path / "quickstart"
    assert code == 0 and f"data-prep/python_topics.py {out}/raw" in calls, said
    texts = " ".join(f"--{split} {out}/raw/{split}.txt" for split in ("train", "valid", "test"))
    assert any(call.endswith(f"prepare_swb.py --out {out}/lm {texts}") for call in calls)
    trained = {}
    for call in calls:
        if found := re.search(rf"cli train (lm|mt) {out}/\1 --profile cpu --save-dir {out}/(\S+) (.*)", call):
            trained[found[2]] = settings_of(found[3].split())
            check_options(["DATA", *words_of(training_settings(found[1], "cpu", trained[found[2]]))])
    names = ["stock", "lin", "lin-tuned", "3xlin,log"]
    assert list(trained) == [*names, "translation"] and trained["lin"]["kernels"] == "lin"
    for one, other, differ in (("stock", "lin", {"stock", "kernels", "output_bias"}),
                               ("lin", "lin-tuned", {"kernel_params"}),
                               ("lin-tuned", "3xlin,log", {"kernels", "pi_variance_weight"})):  # fmt: skip
        differing = {*map(str, trained[one].items())} ^ {*map(str, trained[other].items())}
        assert {item.split("'")[1] for item in differing} == differ
    rows = re.findall(r"^(unigram|stock|\S*lin\S*) +([\d.]+)$", said, re.M)
    assert rows == [("unigram", "345.7"), *((name, f"12{number}.5") for number, name in enumerate(names, 1))]
    logs = " ".join(f"{name}={out}/{name}/train.log" for name in names)
    assert f"-m fairseq_kernels.analysis.curves {out}/curves.png {logs} --baseline unigram=333.25" in calls
    shown = "Translation\n  German     drei .\n  reference  three .\n  model      three\n"
    assert shown in said and "given German: 1.654; the model, on validation text: 6.54\ntest BLEU4 12.3\n" in said
    code, again, calls = called("quickstart", str(out), PYTHON_BIN="{tmp}/3.12")
    assert again == said and "cli" not in " ".join(calls)
