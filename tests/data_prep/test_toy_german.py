"""data-prep/toy_german.py: sentences, exact entropy, splits."""

import hashlib
import json
import math
from itertools import product

import pytest
from preparations import call, common, lines_of, toy, tree


@pytest.fixture
def small(monkeypatch):
    """A grammar whose sentences can be counted by hand: 2 subjects, 2 tenses of one German form, "sie" and "ihn"."""
    lists = (toy.SUBJECTS[2:3] + toy.SUBJECTS[4:5], toy.VERBS[3:4], [("simple", 3), ("progressive", 1)],
             [(("ihn", "him", True), 2), (("sie", "her", True), 1), (("sie", "them", True), 1)],
             toy.ADVERBIALS[:1], [("main", 1), ("adverbial first", 1)])
    monkeypatch.setattr(toy, "LISTS", lists)
    monkeypatch.setattr(toy, "SIZES", {"train": 3, "valid": 1})  # of 4 German sentences


def test_entropy_by_hand(small):
    """Aspect: H(3/4); half of the objects are "sie", of which either meaning has 1/2. "he paints him ." has 5 tokens
    with </s>, the progressive one more."""
    aspect = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    expected = math.exp((aspect + 0.5 * math.log(2)) / (0.75 * 5 + 0.25 * 6))
    assert toy.perplexities({})["all"] == pytest.approx(expected, rel=1e-12)
    pairs = [("er malt ihn .", "he is painting him ."), ("wir malen sie .", "we paint her .")]
    nats = -math.log(0.25) - math.log(0.75) - math.log(0.5)
    assert toy.perplexities({"valid": pairs})["valid"] == pytest.approx(math.exp(nats / 11), rel=1e-12)


def test_drawn_the_same_everywhere():
    """Published perplexities are of this corpus."""
    splits = toy.draw()
    assert sum(toy.probabilities().values()) == pytest.approx(1)
    digest = hashlib.sha256(json.dumps(splits).encode()).hexdigest()
    assert digest.startswith("327c68f897ef") and {name: len(pairs) for name, pairs in splits.items()} == toy.SIZES


def test_the_command(monkeypatch, tmp_path, small, capsys):
    monkeypatch.setattr(toy, "SIZES", {"train": 2, "valid": 1, "test": 1})
    call(monkeypatch, toy, tmp_path / "out")
    files = tree(tmp_path / "out")
    assert set(files) >= {f"{split}.{language}" for split, language in product(common.SPLITS, ("de", "en"))}
    for split in ("valid", "test"):
        [line], [reference] = (lines_of(tmp_path / "out" / f"{split}.{kind}") for kind in ("en", "ref.en"))
        assert reference == line.replace(" .", ".")
    figures = json.loads(files["prepare.json"])["result"]
    assert f"{figures['valid']:.4f} (valid)" in capsys.readouterr().out
    call(monkeypatch, toy, tmp_path / "out")
    assert tree(tmp_path / "out") == files
