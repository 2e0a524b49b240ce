"""Penn Treebank as Mikolov prepared it (lower case, numbers as N, rare words as <unk>), for language models."""

from common import run
from prepare_text import prepare_corpus

KNOWN = {"Mikolov's PTB": ({"train": 929_589, "valid": 73_760, "test": 82_430}, 10_000)}


def main():
    prepare_corpus("prepare-ptb.sh", __doc__, "ptb.{}.txt", KNOWN)


if __name__ == "__main__":
    run(main, "prepare-ptb.sh")
