"""README and docs say what the results and the docstrings say; the site builds."""

import re
import runpy
import subprocess
import sys
from collections import Counter

import pytest
import torch
import yaml
from fairseq_commands import USER_DIR

import fairseq_kernels
from fairseq_kernels.experiments import report

ROOT = USER_DIR.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_loop():
    """Its lines, on fewer words, learn a text that repeats itself."""
    [code] = re.findall(r"```python\n(import torch\n.*?)```", README, re.S)
    torch.manual_seed(0)
    text = torch.tensor([[2, 3, 4, 5, 6, 7, 1, 1]]).expand(4, -1)  # 1 is ignored
    names = {"batches": [text] * 300}
    exec(code.replace("30000", "9").replace("512", "16"), names)
    probabilities = names["log_probabilities"].exp()
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(4, 7))
    assert (probabilities[0, :5].argmax(-1) == text[0, 1:6]).all()


def test_verdicts():
    [table] = re.findall(r"\| claim \| paper \| verdict \|\n.*\n((?:\|.*\n)+)", README)
    rows = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table.splitlines()]
    claims = yaml.safe_load((ROOT / "results" / "verdicts.yaml").read_text(encoding="utf-8"))
    assert [(claim, verdict) for claim, _, verdict in rows] == [(each["claim"], each["verdict"]) for each in claims]
    count = Counter(verdict for _, _, verdict in rows)
    counts = "{holds} hold so far, {doesn't} don't, {mixed} hold in part, and {can't be told} can't be told here"
    assert f"Of {len(rows)} claims of the papers {counts.format_map(count)}" in README


def test_quoted_figures():
    """Each difference with its interval, and each mean with its number of seeds, stands in a table."""
    text, tables = ((ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("results.md", "results-tables.md"))
    text = re.sub("<!-- verdicts -->.*?<!-- /verdicts -->", "", text, flags=re.S)
    quoted = re.findall(r"[-+][\d.,]+(?: %)? \[[^]]+]|\b[\d.,]+ \(\d\)", text)
    assert len(quoted) > 20 and [figure for figure in quoted if figure not in tables.replace("\\", "")] == []


def test_tables():
    """bash scripts/report.sh --publish --into changes neither page."""
    chapters = report.load_chapters(ROOT / "results")
    for page in ("results.md", "results-tables.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert report.put_into(text, chapters)[0] == text


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
