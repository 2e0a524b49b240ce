"""A translation model from text to BLEU by scripts/train_mt.sh and evaluate_mt.sh."""

import re
import subprocess
from pathlib import Path

import pytest
import sacrebleu
from conftest import binarise
from fairseq_commands import SIZES, USER_DIR

SENTENCES = [
    ("das haus ist alt .", "the house is old ."), ("das buch ist neu .", "the book is new ."),
    ("die lampe ist rot .", "the lamp is red ."), ("der koffer ist alt .", "the suitcase is old ."),
    ("das haus ist rot und neu .", "the house is red and new ."), ("das buch ist alt .", "the book is old ."),
    ("die lampe ist neu und rot .", "the lamp is new and red ."), ("der koffer ist rot .", "the suitcase is red ."),
]  # fmt: skip


def script(name, *arguments) -> str:
    command = ["bash", Path(USER_DIR).parent / "scripts" / f"{name}.sh", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    """What training and evaluation said, and the decoding: of a model that has learned its few sentences by heart, and
    of a test text of which it has seen all but the last sentence, in another case."""
    folder = tmp_path_factory.mktemp("tiny") / "toy"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        for side, language in enumerate(("de", "en")):
            lines = [pair[side] for pair in SENTENCES]
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines))
    reference = [pair[1].replace(" .", ".").capitalize() for pair in SENTENCES[:-1]] + ["Something else."]
    (folder / "test.ref.en").write_text("".join(f"{line}\n" for line in reference))
    binarise(folder, "data-bin", "--source-lang", "de", "--target-lang", "en")
    sizes = [32 if word == 16 else word for word in SIZES["transformer"]]
    options = ["--kernels", "2xlin", *sizes, "--max-update", 120, "--lr", 0.005, "--warmup-updates", 10]
    options += ["--save-interval", 1000, "--validate-interval", 1000, "--num-workers", 0]  # an epoch is an update
    trained = script("train_mt", folder, "--profile", "cpu", *options, "--save-dir", folder / "saved")
    checkpoint = folder / "saved" / "checkpoint_last.pt"
    evaluated = script("evaluate_mt", folder, checkpoint)
    return trained, evaluated, Path(f"{checkpoint}.test.gen").read_text(), reference


def test_the_sentences_are_learned(translated):
    trained, _, decoding, _ = translated
    assert re.search(r"valid perplexity [\d.]+ after 120 updates", trained)
    hypotheses = dict(re.findall(r"^H-(\d+)\t\S+\t(.*)$", decoding, re.M))
    assert [hypotheses[str(number)] for number in range(8)] == [target for _, target in SENTENCES]


def test_both_scores(translated):
    """fairseq's of the tokens against the binarised text; sacreBLEU of the sentences against the references, whatever
    their case."""
    _, evaluated, decoding, reference = translated
    tokenised, detokenised, signature = re.match(
        r"test BLEU4 ([\d.]+) \(fairseq's, tokenised\), sacreBLEU ([\d.]+) \((\S+)\) \(log: ", evaluated
    ).groups()
    assert float(tokenised) == 100 and "beam=5" in decoding.splitlines()[-1]
    output = [target.replace(" .", ".") for _, target in SENTENCES]
    expected = sacrebleu.BLEU(lowercase=True).corpus_score(output, [reference]).score
    assert float(detokenised) == pytest.approx(expected, abs=0.051) and 50 < expected < 95
    assert "case:lc" in signature
