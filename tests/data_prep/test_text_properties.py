"""Random text: no word is lost or changed on its way into fairseq's binary data, and back.

    PYTHONPATH=. .venv/bin/python -m pytest --hypothesis-profile fuzz tests/data_prep/test_text_properties.py
"""

import tempfile
from pathlib import Path

from hypothesis import assume, example, given
from hypothesis import strategies as st
from preparations import common, swb, text

WORDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=6)


@given(st.lists(st.lists(WORDS, max_size=4), min_size=1, max_size=4))
def test_binarised_text_is_the_text(sentences):
    """Through dictionary and binary files: the words, in their order, blank lines too."""
    assume(any(sentences) and not common.RESERVED.intersection(word for words in sentences for word in words))
    lines = [" ".join(words) for words in sentences]
    assume(all(line.split() == words for line, words in zip(lines, sentences)))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        types = text.write_text(out, lambda split: ((None, line) for line in lines))
        made = text.write_data_bin(out, 1, None, 1)
        assert types == len({word for words in sentences for word in words} - {"<unk>"}) == made["vocabulary"]
        assert made["splits"]["train"]["tokens"] == sum(len(words) + 1 for words in sentences)
        assert decoded(out / "data-bin", "train") == lines


def decoded(data_bin, split):
    """The text of a binarised split, by the saved dictionary."""
    from fairseq.data import Dictionary, data_utils

    dictionary = Dictionary.load(str(data_bin / "dict.txt"))
    dataset = data_utils.load_indexed_dataset(str(data_bin / split), dictionary)
    return [" ".join(dictionary[word] for word in dataset[n][:-1]) for n in range(len(dataset))]


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("[]{}()-_'.&%<>/= ABC"), max_size=30),
       st.sampled_from(sorted(swb.RULES)))  # fmt: skip
@example("'", "text")
def test_normalised_speech_is_words(utterance, source):
    """In lower case and single spaces; once more as plain text it stays."""
    words = swb.normalise(utterance, source)
    assert words == " ".join(words.split())
    again = swb.normalise(words, "text")
    assert again == swb.normalise(again, "text")
