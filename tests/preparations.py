"""What the tests of data-prep/ share: its modules, and runs of them in this process."""

import sys
from contextlib import redirect_stderr
from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest

DATA_PREP = Path(__file__).resolve().parents[1] / "data-prep"
sys.path.insert(0, str(DATA_PREP))

common, moses, topics, toy = map(import_module, ("common", "moses", "python_topics", "toy_german"))
RECIPES = "text", "ptb", "wikitext", "swb", "bitext", "dailydialog", "iwslt14", "multi30k"
text, ptb, wikitext, swb, bitext, dailydialog, iwslt14, multi30k = map(import_module, map("prepare_{}".format, RECIPES))


def call(monkeypatch, module, *arguments):
    """Run a preparation in this process."""
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
    module.main()


def error_of(monkeypatch, module, *arguments):
    """The message with which a preparation ends."""
    with pytest.raises((ValueError, OSError, SystemExit)) as ended, redirect_stderr(StringIO()) as printed:
        call(monkeypatch, module, *arguments)
    return printed.getvalue() or str(ended.value)


def write(path, content):
    """A text file, with its folders; ``content`` may be bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def lines_of(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def tree(folder):
    """``{name: content}`` of all files of an output directory."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
