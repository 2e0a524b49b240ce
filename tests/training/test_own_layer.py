"""examples/own_layer, an output layer from outside the package, through fairseq's commands."""

from fairseq_commands import ALL_SENTENCES, LM_TASK, USER_DIR, fairseq, lm_training, logged

from fairseq_kernels.checkpoint import load

OWN = ("--user-dir", USER_DIR.parent / "examples" / "own_layer")


def test_it_trains_with_its_own_option_and_is_evaluated(lm_data, tmp_path):
    own = (*OWN, "--output-layer", "temperature", "--coldest", 0.5, "--output-bias", "false")
    result = fairseq(*lm_training(lm_data, tmp_path, *own, criterion="output_layer_loss"))
    losses = [record["loss"] for record in logged(result, "train_inner")]
    assert losses[-1] < losses[0]
    saved = load(tmp_path / "checkpoint_last.pt")
    assert saved["cfg"]["model"]["coldest"] == 0.5 and "decoder.output_projection.bias" not in saved["model"]
    assert saved["model"]["decoder.output_projection.direction"].abs().max() > 0  # tau has learned
    task = ("eval_lm", lm_data, *LM_TASK, *OWN, *ALL_SENTENCES, "--path", tmp_path / "checkpoint_last.pt")
    scored = fairseq(*task, "--gen-subset", "valid")
    assert f"Loss (base 2): {logged(result, 'valid')[-1]['loss']:.3f}"[:-1] in scored.text
