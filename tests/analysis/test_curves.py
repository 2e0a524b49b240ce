"""The curves of trainings; tests of the quickstart's commands draw them."""

import re

import pytest

from fairseq_kernels.analysis import curves
from fairseq_kernels.analysis.training_log import read_curves


def test_a_training_that_goes_back_in_updates(tmp_path):
    """What the log has beyond them counts no more, of the other kinds of records neither."""
    lines = ["train_inner | ppl 9, num_updates 100", "valid | ppl 8 | num_updates 100"]
    lines += [f"{kind} | ppl {ppl} | num_updates 200" for kind, ppl in (("train_inner", 7), ("valid", 6), ("train", 5))]
    resumed = [*lines, "train_inner | ppl 4, num_updates 150"]
    begun_anew = [*lines, "train_inner | ppl 3, num_updates 50"]
    for log, training, valid in ((lines, {100: 9, 200: 7}, {100: 8, 200: 6}), (resumed, {100: 9, 150: 4}, {100: 8}),
                                 (begun_anew, {50: 3}, {})):  # fmt: skip
        (tmp_path / "log").write_text("".join(f"now | INFO | {line}\n" for line in log))
        assert read_curves(tmp_path / "log", "train_inner").get("ppl", {}) == training
        assert read_curves(tmp_path / "log", "valid").get("ppl", {}) == valid


@pytest.mark.parametrize("arguments, message", [
    (["{log}"], "is not allowed: give a name before it, as in lin="),
    (["lin={folder}/none"], "lin: log {folder}/none not found"),
    (["lin={log}"], "lin: log {log} has no validation"),
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
