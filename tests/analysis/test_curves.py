"""The curves of trainings; tests of the quickstart's commands draw them."""

import math

from fairseq_kernels.analysis.curves import file_pyplot, main, read_curves


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


def test_numbers_of_a_log(tmp_path):
    """With signs and exponents; none where a line was cut."""
    lines = "valid | lr 2.5e-05 | gain -3 | wps 1e+20 | ppl inf | num_updates 7", "valid | num_updates 8 | ppl 9.5e"
    (tmp_path / "log").write_text("\n".join(f"now | INFO | {line}" for line in lines))
    assert read_curves(tmp_path / "log", "valid") == {
        "lr": {7: 2.5e-5}, "gain": {7: -3}, "wps": {7: 1e20}, "ppl": {7: math.inf}, "num_updates": {7: 7, 8: 8},
    }  # fmt: skip


def test_the_picture_has_validation_perplexities_and_weights_of_training(tmp_path, monkeypatch):
    log, out = tmp_path / "log", tmp_path / "curves.png"
    kinds = (("valid", 8, 100), ("train_inner", 7, 150), ("valid", 6, 200), ("train", 5, 200))
    pi = "pi_lin 0.7 | pi_log 0.3 | pi_variance_pp2 9"
    log.write_text("".join(f"now | INFO | {kind} | ppl {ppl} | {pi} | num_updates {at}\n" for kind, ppl, at in kinds))
    monkeypatch.setattr("sys.argv", ["curves", str(out), f"lin={log}", "--baseline", "unigram=9"])
    main()
    perplexity, weights = file_pyplot().gcf().axes
    curve, unigram = perplexity.lines
    assert curve.get_xydata().tolist() == [[100, 8], [200, 6]] and set(unigram.get_ydata()) == {9} and out.exists()
    drawn = {line.get_label(): line.get_xydata().tolist() for line in weights.lines}
    assert drawn == {"lin": [[150, 0.7]], "log": [[150, 0.3]]} and weights.get_ylim() == (0, 1)
