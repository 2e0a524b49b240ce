"""Every command in README's and docs/' code blocks, and the documents' Python, in one folder, on tiny data.

Trainings, examples and one table have a smaller budget added. The rows of the other tables, which take hours, are
planned only. Setting up, the quickstart and the tests show ``--help``; of ``pip install`` the extra must exist. What
development needs, by ``.venv/bin/python``, is left out.
"""

import os
import re
import shlex
import shutil
import subprocess

import pytest
from fairseq_commands import SIZES, USER_DIR
from forked_python import forked_python
from preparations import write

from fairseq_kernels.experiments import cli
from fairseq_kernels.experiments.tables import load_table

ROOT = USER_DIR.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SMALL = [*map(str, SIZES["lstm"][:8]), "--max-update", "2"]
TABLE = "bash scripts/table1.sh data/swb --profile cpu --rows 'lin pol'"
ADDED = {  # after a command that begins so
    "fairseq-train": [*SMALL, "--cpu"],
    "fairseq-eval-lm": ["--cpu"],
    "bash scripts/train_lm.sh": SMALL,
    "bash scripts/train_mt.sh": ["--max-update", "2"],
    TABLE: ["--", *SMALL],
    "python examples/pytorch_loop.py": ["--updates", "2", "--dim", "8"],
    "python examples/huggingface_head.py": ["--updates", "1"],
}
HELP = ("bash scripts/quickstart.sh", "bash scripts/test.sh", "bash scripts/setup.sh")
AS_THEY_STAND = (
    "bash data-prep/", "bash scripts/evaluate_lm.sh", "bash scripts/evaluate_mt.sh", "bash scripts/figure1.sh",
    "bash scripts/report.sh", "echo", "python examples/own_kernel.py", "python -m fairseq_kernels",
)  # fmt: skip


def blocks(*languages):
    """``(document, block)`` of the code in these languages; lines that end in a backslash are joined."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S):
            if language in languages:
                yield document.name, block.replace("\\\n", " ")


def commands():
    """``(document, command)`` in their order, each once; a block with a loop is one command."""
    known = {}
    for document, block in blocks("", "bash"):
        for line in [block] if re.search("^for ", block, re.M) else block.splitlines():
            line = line if "\n" in line else re.sub(r"\s{2,}", " ", line.partition(" #")[0]).strip()
            if "\n" in line or re.match(r"(bash|echo|python|pip|fairseq-\w+) ", re.sub("^([A-Z]+=\\S+ )+", "", line)):
                known.setdefault(line, document)
    return [(document, line) for line, document in known.items()]


def archive(folder):
    """de-en.tgz, IWSLT's files of another year, three sentences in each set."""
    for language in ("de", "en"):
        lines = [f"{language} {number} ." for number in range(3)]
        segments = "".join(f'<seg id="{number}"> {line} </seg>\n' for number, line in enumerate(lines))
        write(folder / "talks" / "de-en" / f"train.tags.de-en.{language}", "\n".join(["<url>a</url>", *lines, ""]))
        for name in ("dev2010", "tst2012", "tst2015"):
            write(folder / "talks" / "de-en" / f"IWSLT17.TED.{name}.de-en.{language}.xml", f"<doc>\n{segments}</doc>\n")
    os.rename(shutil.make_archive(str(folder / "de-en"), "gztar", folder / "talks"), folder / "de-en.tgz")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, lm_data, mt_text, mt_data):
    """A clone with tiny data: the names of README and docs."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("scripts", "data-prep", "configs", "examples", "fairseq_kernels"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "README.md"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(lm_data, folder / "DATA_BIN")
    for name in ("python", "fairseq-train", "fairseq-eval-lm", "fairseq-interactive"):
        module = "" if name == "python" else f"-m fairseq_cli.{name[8:].replace('-', '_')}"
        write(folder / "bin" / name, f'#!/bin/sh\nexec {shlex.quote(forked_python())} {module} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    for split in ("train", "val", "test"):
        for number in range(6 if split == "train" else 2):
            lines = f"A|Okay, uh, let's see <laughter>.|o\nB|Word{number % 3} the, the end.|sd\n\nA|<noise>.|x\n" * 9
            write(folder / "Switchboard-Corpus" / "swda_data" / split / f"{2000 + number}.txt", lines)
    write(folder / "Switchboard-Corpus" / "swda_data" / "metadata" / "train_split.txt", "2000\n")
    shutil.copytree(mt_data, folder / "data" / "multi30k" / "data-bin")
    for split in ("train", "valid", "test"):
        write(folder / "ptb" / f"ptb.{split}.txt", "the end of N years\n" * 40)
        shutil.copy(mt_text / f"{split}.en", folder / "data" / "multi30k" / f"{split}.ref.en")
        for language in ("de", "en"):
            write(folder / "iwslt14" / f"{split}.{language}", (mt_text / f"{split}.{language}").read_text())
    write(folder / "iwslt14" / "code", "#version: 0.2\nw 1\nv 1\n")
    for language in ("de", "en"):
        shutil.copy(mt_data / f"dict.{language}.txt", folder / "iwslt14")
    archive(folder)
    write(folder / "SimLex-999.txt", "word1\tword2\tPOS\tSimLex999\nend\tthe\tN\t1.0\n")
    return folder


def planned(folder, line, monkeypatch):
    """A table's command, read as the table does, and its runs' data and options."""
    monkeypatch.chdir(folder)
    name, *arguments = shlex.split(line.removeprefix("bash scripts/"))
    name = name.removesuffix(".sh")
    if name == "grid_search":
        name = f"search_{arguments.pop(arguments.index('--kernel') + 1)}"
        arguments.remove("--kernel")
    argv = arguments if name == "table" else [name, *arguments]
    assert cli.planned(load_table(argv[0]), cli.parse(argv))


@pytest.mark.parametrize("document, line", commands(), ids=lambda value: value[:60].replace("/", "_"))
def test_command(document, line, folder, monkeypatch):
    if "\n" in line:
        return run(folder, line)
    plain = re.sub(r"^([A-Z]+=\S+ )+", "", line)
    begins = [start for start in ADDED if shlex.join(shlex.split(plain)).startswith(start)]
    if line.startswith("pip install"):
        assert all(f'"{extra}": [' in (ROOT / "setup.py").read_text() for extra in re.findall(r"\[(\w+)\]", line))
        return
    if re.match(r"bash scripts/(\w*table\w*|convergence|grid_search|linear_weight)\.sh", line) and not begins:
        return planned(folder, line, monkeypatch)
    assert begins or plain.startswith((*HELP, *AS_THEY_STAND)), f"{document}: say above how it is to be tried"
    if "huggingface" in line:
        pytest.importorskip("transformers", reason="the extra 'examples' has 20 packages more")
    added = ["--help"] if plain.startswith(HELP) else ADDED[begins[0]] if begins else []
    run(folder, f"{line} {shlex.join(added)}")


@pytest.mark.parametrize("document", sorted({document for document, _ in blocks("python")} - {"README.md"}))
def test_python(document, folder):
    """A document's blocks, one after the other, as one program."""
    if document == "huggingface.md":
        pytest.importorskip("transformers", reason="the extra 'examples' has 20 packages more")
    program = "\n".join(block for name, block in blocks("python") if name == document)
    write(folder / f"{document}.py", program)
    run(folder, f"python {document}.py")


def run(folder, command):
    """By bash, with a Python that has torch and fairseq in memory already."""
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    offline = {"PYTHON_BIN": forked_python(), "PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}
    environment = {**os.environ, **offline, "PATH": path}
    result = subprocess.run(["bash", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
