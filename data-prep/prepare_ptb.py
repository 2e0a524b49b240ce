"""Penn Treebank as Mikolov prepared it (lower case, numbers as N, rare words as <unk>), for language models."""

from prepare_text import prepare_corpus

KNOWN = {"Mikolov's PTB": ({"train": 929_589, "valid": 73_760, "test": 82_430}, 10_000)}


def main():
    prepare_corpus(__doc__, "ptb.{}.txt", KNOWN)
