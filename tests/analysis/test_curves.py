"""The curves of trainings; tests of the quickstart's commands draw them."""

import re

import pytest

from fairseq_kernels.analysis import curves


@pytest.mark.parametrize("arguments, message", [
    (["{log}"], "is not allowed: give a name before it, as in lin="),
    (["lin={folder}/none"], "lin: log {folder}/none not found"),
    (["lin={log}", "--baseline", "unigram=many"], "--baseline unigram=many: .*; give numbers, as in unigram=271.6"),
])  # fmt: skip
def test_mistakes(arguments, message, monkeypatch, capsys, tmp_path):
    (tmp_path / "train.log").write_text("")
    names = {"log": tmp_path / "train.log", "folder": tmp_path}
    words = ["curves", str(tmp_path / "out.png"), *(word.format(**names) for word in arguments)]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as end:
        curves.main()
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.count("\n") == 1 and not (tmp_path / "out.png").exists()
    assert re.search(message.format(**names), error)
