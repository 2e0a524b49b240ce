"""``python -m fairseq_kernels.extend_vocabulary``: a trained model goes on with another dictionary."""

import sys

import pytest
import torch
from fairseq.data import Dictionary
from fairseq_commands import fairseq, lm_training

from fairseq_kernels import extend_vocabulary


def test_a_model_goes_on_with_another_dictionary(lm_data, mixture_lm, tmp_path, monkeypatch, capsys):
    """Old words keep their rows in another place, new ones have vectors or the mean, and training goes on."""
    old, new = lm_data / "dict.txt", tmp_path / "dict.txt"
    lines = old.read_text().splitlines()
    new.write_text("\n".join(["fresh 9", *lines[1:], lines[0], "other 3"]) + "\n")
    (tmp_path / "vectors").write_text("fresh " + " ".join(map(str, range(16))) + "\n")
    out = tmp_path / "extended.pt"
    words = ["extend_vocabulary", mixture_lm.last, old, new, out, "--vectors", tmp_path / "vectors"]
    monkeypatch.setattr(sys, "argv", [*map(str, words)])
    extend_vocabulary.main()
    assert f"--finetune-from-model {out}" in capsys.readouterr().out

    before, after = (torch.load(path, weights_only=True)["model"] for path in (mixture_lm.last, out))
    words, others = Dictionary.load(str(old)), Dictionary.load(str(new))
    names = "decoder.embed_tokens.weight", "decoder.output_projection.weight", "decoder.output_projection.bias"
    for name in names:
        for word in words.symbols:
            assert after[name][others.index(word)].equal(before[name][words.index(word)])
        torch.testing.assert_close(after[name][others.index("other")], before[name].mean(0))
    given = after["decoder.embed_tokens.weight"][others.index("fresh")]
    assert given.equal(torch.arange(16.0))
    rest = [name for name in before if len(after[name]) == len(before[name])]
    assert len(rest) == len(before) - 3 and all(after[name].equal(before[name]) for name in rest)

    own = [f"decoder.{name}" for name in ("fc_out.weight", "fc_out.bias", "output_projection.untied_weights.1")]
    state = dict.fromkeys([*own, "decoder.layers.0.fc1.weight"], torch.ones(len(words), 2))
    state = extend_vocabulary.extended({**state, names[0]: torch.zeros(len(words), 16)}, words, others, {})
    assert [name for name, value in state.items() if len(value) == len(others)] == [*own, names[0]]

    for state, old, said in ((before, others, "has 26 words, the checkpoint 24"),
                             ({"decoder.output_projection.sense_word": None}, words, "kerbs")):  # fmt: skip
        with pytest.raises(SystemExit, match=said):
            extend_vocabulary.extended(state, old, others, {})

    (tmp_path / "text").write_text("fresh w1 w2 other\n" * 40)
    prefixes = [option for split in ("train", "valid") for option in (f"--{split}pref", tmp_path / "text")]
    fairseq("preprocess", "--only-source", "--srcdict", new, "--destdir", tmp_path / "bin", *prefixes)
    options = ("--kernels", "2xlin,log", "--finetune-from-model", out, "--max-update", 3)
    fairseq(*lm_training(tmp_path / "bin", tmp_path / "on", *options))
    result = torch.load(tmp_path / "on" / "checkpoint_last.pt", weights_only=True)["model"]
    assert len(result["decoder.embed_tokens.weight"]) == len(others)
    recurrent = "decoder.lstm.weight_hh_l0"
    torch.testing.assert_close(result[recurrent], before[recurrent], atol=0.1, rtol=0)  # not trained anew
