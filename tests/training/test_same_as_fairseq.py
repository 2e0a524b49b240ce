"""Kernel models with the kernel lin are fairseq's own: trained, evaluated and decoded side by side, from one start, by
fairseq's commands on the same data, the logs and lines are the same."""

import re
from typing import NamedTuple

import pytest
import torch
from fairseq_commands import LM_TASK, Trained, awaited, fairseq, later, lm_training, logged, mt_training
from trained_models import parameters

PAIRS = {"lstm": "lstm_lm", "transformer_lm": "transformer_lm", "translation": "transformer_iwslt_de_en"}
# what the two train with
WAYS = {
    "plain": (),
    "smoothed, accumulated": ("--sentence-avg", "--label-smoothing", 0.1, "--update-freq", 2, "--clip-norm", 0.1),
}
EVERY = [*((pair, "plain") for pair in PAIRS), ("lstm", "smoothed, accumulated")]


class Pair(NamedTuple):
    stock: Trained
    ours: Trained


def training(pair, way, is_ours, data, folder, *options):
    """fairseq-train on the stock architecture with fairseq's criterion, or on its twin with ours."""
    smoothed = "--label-smoothing" in WAYS[way] or pair == "translation"
    stock = "label_smoothed_cross_entropy" if smoothed else "cross_entropy"
    criterion = "kernel_mixture_cross_entropy" if is_ours else stock
    arch = f"kernel_{PAIRS[pair]}" if is_ours else PAIRS[pair]
    bias = ("--output-bias", "false") if pair == "transformer_lm" else ()  # the stock one has none
    own = ("--kernels", "lin", *bias) if is_ours else ()
    train = mt_training if pair == "translation" else lm_training
    return train(data, folder, *WAYS[way], *own, *options, arch=arch, criterion=criterion)


@pytest.fixture(scope="module")
def pairs(lm_data, mt_data, tmp_path_factory):
    """Of every pair a start, and from there a training of each kind in each way, queued."""
    folder = tmp_path_factory.mktemp("pairs")
    data = {pair: mt_data if pair == "translation" else lm_data for pair in PAIRS}
    starts = {
        pair: (folder / pair, later(*training(pair, "plain", False, data[pair], folder / pair, "--max-update", 5)))
        for pair in PAIRS
    }
    queued = {}
    for pair, way in EVERY:
        start = ("--finetune-from-model", awaited(*starts[pair]).last)
        folders = [folder / f"{pair}-{way}-{kind}" for kind in ("stock", "ours")]
        queued[pair, way] = [
            (place, later(*training(pair, way, is_ours, data[pair], place, *start)))
            for is_ours, place in enumerate(folders)
        ]
    return {name: lambda both=both: Pair(*(awaited(*one) for one in both)) for name, both in queued.items()}


@pytest.mark.parametrize("pair, way", EVERY)
def test_logs(pair, way, pairs):
    """Every figure of every line in which fairseq's log has it, but for times."""
    stock, ours = pairs[pair, way]()
    for kind in ("train_inner", "train", "valid"):
        lines, own = logged(stock.result, kind), logged(ours.result, kind)
        assert len(lines) == len(own) > 0
        for theirs, mine in zip(lines, own):
            figures = {"loss", "nll_loss", "ppl", "gnorm", "clip", "wpb", "bsz", "lr", "num_updates"} & set(theirs)
            assert {"loss", "wpb"} <= figures <= set(mine)
            for name in figures:
                assert mine[name] == pytest.approx(theirs[name], rel=5e-3, abs=2e-3), (kind, name)


@pytest.mark.parametrize("pair", PAIRS)
def test_checkpoints(pair, pairs):
    """After 20 updates from one start, the parameters are the same, and the best checkpoint is the best."""
    stock, ours = (parameters(each.folder) for each in pairs[pair, "plain"]())
    compared = 0
    for name, value in stock.items():
        name = re.sub(r"layers\.(\d+)\.(weight|bias)_(ih|hh)$", r"lstm.\2_\3_l\1", name)
        name = name.replace("fc_out", "output_projection")
        # the gradient of a key's bias is 0 but for rounding, which Adam makes large
        if name in ours and value.is_floating_point() and not name.endswith("k_proj.bias"):
            torch.testing.assert_close(ours[name], value, rtol=1e-3, atol=1e-3)
            compared += 1
    assert compared >= 10
    trained = pairs[pair, "plain"]().ours
    losses = [line["loss"] for line in logged(trained.result, "valid")]
    best = torch.load(trained.folder / "checkpoint_best.pt", weights_only=True)["extra_state"]
    assert best["val_loss"] == best["best"] == pytest.approx(min(losses), abs=1e-3)


def lines(result, *starts):
    """Lines of a decoding or an evaluation, times left out, in the sentences' order."""
    kept = [line for line in result.out.splitlines() if line.startswith(starts)]
    return sorted(re.sub(r" in [\d.]+s.*", "", line.split("| INFO | ")[-1]) for line in kept)


def same_lines(stock, ours):
    """The same words, and the same numbers up to rounding."""
    assert len(stock) == len(ours) > 0
    for theirs, mine in zip(stock, ours):
        assert re.sub(r"-?\d+\.\d+", "#", theirs) == re.sub(r"-?\d+\.\d+", "#", mine)
        numbers = [[float(number) for number in re.findall(r"-?\d+\.\d+", line)] for line in (theirs, mine)]
        assert numbers[1] == pytest.approx(numbers[0], abs=3e-3)


@pytest.mark.parametrize("pair", ["lstm", "transformer_lm"])
def test_eval_lm(pair, pairs, lm_data):
    """Loss and perplexity, the number of words, and each word's log-probability; validation's loss is the same."""
    options = ("--gen-subset", "valid", *LM_TASK[2:], "--batch-size", 8, "--output-word-probs")
    both = pairs[pair, "plain"]()
    stock, ours = (later("eval_lm", lm_data, "--path", each.last, *options) for each in both)
    figures = r"Evaluated \S+ tokens|Loss.*|\d+ w.*\[.*"
    stock, ours = (re.findall(figures, own.result().text) for own in (stock, ours))
    same_lines(stock, ours)
    [loss] = [line for line in ours if line.startswith("Loss")]
    assert float(re.search(r"\): ([\d.]+)", loss)[1]) == pytest.approx(
        logged(both.ours.result, "valid")[-1]["loss"], abs=1e-3
    )


@pytest.mark.parametrize("pair", PAIRS)
def test_generate(pair, pairs, lm_data, mt_data):
    """The n-best lists with their scores, every sentence once, and BLEU; the multiple of eight is fairseq's default."""
    task = (mt_data,) if pair == "translation" else (lm_data, *LM_TASK, "--prefix-size", 2)
    search = ("--beam", 3, "--nbest", 2, "--max-len-b", 12, "--batch-size", 8)
    both = [later("generate", *task, "--path", each.last, *search) for each in pairs[pair, "plain"]()]
    stock, ours = (lines(own.result(), "T-", "H-", "P-", "Generate") for own in both)
    same_lines(stock, ours)
    sentences = {line.split("\t")[0] for line in ours if line.startswith("T-")}
    assert pair != "translation" or len(sentences) == 21
    assert len([line for line in ours if line.startswith("H-")]) == 2 * len(sentences)
    assert "BLEU4 = " in ours[0]


def test_validate(pairs, lm_data):
    trained = pairs["lstm", "plain"]().ours
    result = fairseq("validate", lm_data, "--path", trained.last, *LM_TASK, "--batch-size", 8)
    [line] = re.findall(r"valid on 'valid' subset \| (.*)", result.text)
    loss = float(re.search(r"(?<!_)loss ([\d.]+)", line)[1])
    assert loss == pytest.approx(logged(trained.result, "valid")[-1]["loss"], abs=1e-3)


def test_interactive_and_from_pretrained_agree(pairs, mt_data):
    """fairseq-interactive on standard input, and translate() in a Python program, in the same words."""
    from fairseq_kernels.models import KernelTransformer

    trained = pairs["translation", "plain"]().ours
    sentences = ["w1 w2 w3", "w5 w6 w7 w8 w9", "w0 w7"]
    search = ("--path", trained.last, "--beam", 3, "--max-len-b", 12)
    result = fairseq("interactive", mt_data, *search, stdin="".join(f"{sentence}\n" for sentence in sentences))
    actual = [line.split("\t")[2] for line in result.out.splitlines() if line.startswith("H-")]
    hub = KernelTransformer.from_pretrained(str(trained.folder), "checkpoint_last.pt", str(mt_data))
    assert [hub.translate(sentence, beam=3, max_len_b=12) for sentence in sentences] == actual
