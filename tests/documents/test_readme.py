"""README and docs/results.md say what the results say."""

import re

import yaml
from fairseq_commands import USER_DIR

from fairseq_kernels.experiments import report

ROOT = USER_DIR.parent


def test_verdicts():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [table] = re.findall(r"\| claim \| paper \| verdict \|\n.*\n((?:\|.*\n)+)", readme)
    rows = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table.splitlines()]
    claims = yaml.safe_load((ROOT / "results" / "verdicts.yaml").read_text(encoding="utf-8"))
    assert [(claim, verdict) for claim, _, verdict in rows] == [(each["claim"], each["verdict"]) for each in claims]


def test_tables():
    """bash scripts/report.sh --into docs/results.md changes nothing."""
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert report.put_into(text, report.load_chapters(ROOT / "results"))[0] == text
