"""Tiny corpora, and their binarisation by fairseq-preprocess."""

import random

from fairseq_commands import fairseq


def markov_sentences(number):
    """Sentences of 2 to 9 of 20 words, each word mostly followed by its successor."""
    rng = random.Random(number)
    for _ in range(number):
        word, sentence = rng.randrange(20), []
        for _ in range(rng.randint(2, 9)):
            sentence.append(f"w{word}")
            word = (word + rng.choice([1, 1, 1, 5, 7])) % 20
        yield sentence


def translate(sentence):
    """Word by word, the last word first."""
    return [word.replace("w", "v") for word in [sentence[-1], *sentence[:-1]]]


def write(path, sentences):
    path.write_text("".join(" ".join(sentence) + "\n" for sentence in sentences))


def write_pairs(folder, split, number):
    """German Markov sentences and their English translations."""
    sentences = list(markov_sentences(number))
    write(folder / f"{split}.de", sentences)
    write(folder / f"{split}.en", map(translate, sentences))


def binarise(folder, name, *options):
    prefixes = [x for split in ("train", "valid", "test") for x in (f"--{split}pref", folder / split)]
    fairseq("preprocess", *prefixes, "--destdir", folder / name, *options)
    return folder / name
