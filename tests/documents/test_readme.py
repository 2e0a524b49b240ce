"""README and docs say what the results and the docstrings say; the site builds."""

import re
import runpy
import subprocess
import sys

import pytest
import torch
from fairseq_commands import USER_DIR
from pictures import drawn

import fairseq_kernels
from fairseq_kernels.experiments import report

ROOT = USER_DIR.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_before_and_after():
    """The layer in the place of a linear one has the same loss; the mixture is normalised."""
    [code] = re.findall(r"```python\n(import torch\n.*?)```", README, re.S)
    before, after = code.replace("30000", "9").replace("512", "16").split("layer =", 1)
    after, mixture = after.split("mixture =", 1)
    names = {}
    exec(before, names)
    loss = names["loss"]
    exec("layer =" + after, names)
    torch.testing.assert_close(names["loss"], loss)
    exec("mixture =" + mixture, names)
    torch.testing.assert_close(names["log_probabilities"].exp().sum(-1), torch.ones(4, 35))
    assert names["loss"].isfinite()


def test_main_table():
    """README's table is that of the results, for language models."""
    [table] = re.findall(r"\| LSTM, training .*\n.*\n((?:\|.*\n)+)", README)
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for row in table.splitlines():
        assert row.split("|", 2)[2] in results


def test_quoted_figures():
    """Each difference with its interval, each mean with its number of seeds, and each p value stands in a table."""
    text, tables = ((ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("results.md", "results-tables.md"))
    text = " ".join(re.sub("<!-- verdicts -->.*?<!-- /verdicts -->", "", text, flags=re.S).split())
    quoted = re.findall(r"[-+][\d.,]+(?: %)? \[[^]]+]|\b[\d.,]+ \(\d+\)", text)
    assert len(quoted) > 20 and [figure for figure in quoted if figure not in tables.replace("\\", "")] == []
    p_values = re.findall(r"\bp (?:=|<) (0\.\d+)", text)
    assert p_values and [p for p in p_values if not re.search(rf"(\| |&lt; |p = ){p}\b", tables)] == []


def test_tables(tmp_path):
    """bash scripts/report.sh --publish --into changes neither page, nor --figure the picture."""
    chapters = report.load_chapters(ROOT / "results")
    for page in ("results.md", "results-tables.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert report.put_into(text, chapters) == text
    papers = re.findall(r"^<!-- (\w+) -->$", text, re.M)[: len(report.ORDER)]
    assert [chapter.name for chapter in chapters][: 3 + len(papers)] == ["answer", "gain", "verdicts", *papers]
    published = ROOT / "docs" / "images" / "gain.svg"
    (tmp_path / "gain.svg").write_text(chapters[1].plot, encoding="utf-8")
    (labels, curves), (known, lines) = drawn(tmp_path / "gain.svg"), drawn(published)
    assert labels == known and curves == pytest.approx(lines, abs=1.5)  # points


def test_reference():
    """python docs/api_reference.py >docs/api.md changes nothing, and every public name is in it."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert runpy.run_path(str(ROOT / "docs" / "api_reference.py"))["reference"]() == text
    headings = re.findall(r"^### (\w+)$", text, re.M)
    assert set(fairseq_kernels.__all__) - {"KERNELS"} <= set(headings)


def test_site(tmp_path):
    """Pages, links and anchors are there."""
    pytest.importorskip("mkdocs", reason="the extra 'docs' has the site's packages")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
