"""WikiText-2 or WikiText-103 (Merity et al. 2016), words with <unk> as distributed, for language models."""

from prepare_text import prepare_corpus

HELD_OUT = {"valid": 217_646, "test": 245_569}
KNOWN = {
    "WikiText-2": ({"train": 2_088_628, **HELD_OUT}, 33_278),
    "WikiText-103": ({"train": 103_227_021, **HELD_OUT}, 267_735),
}


def main():
    prepare_corpus(__doc__, "wiki.{}.tokens", KNOWN)
