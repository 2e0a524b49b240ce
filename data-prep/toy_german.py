"""A small generated German-English corpus, for a first translation model: the best possible perplexity is known.

A sentence is one choice from each of six lists, drawn by weight:

    er malt den alten koffer .                      he paints the old suitcase .
    am bahnhof holt die frau sie ab .               at the station the woman is picking them up .
    wir wissen , dass ihr ein buch mitgebracht habt .   we know that you brought a book .

German has gender, case and number, the verb second in main clauses and last behind "dass", and separable verbs. It
does not show everything that English does: "er malt" is "he paints" or "he is painting", and the object "sie" is "her"
or "them". So even the best translator is surprised. How much is exact here: all sentences are few enough to be listed.
"""

import math
import random
import sys
from collections import Counter
from itertools import product
from pathlib import Path

from common import binarise, prepare_folder, write_lines

SIZES = {"train": 12000, "valid": 500, "test": 500}  # sentence pairs

# ((German, English, person), weight); the person is the place in the lists of verb forms
SUBJECTS = [
    (("ich", "i", 0), 2), (("du", "you", 1), 1), (("er", "he", 2), 2), (("sie", "she", 2), 2), (("wir", "we", 3), 2),
    (("ihr", "you", 4), 1), (("sie", "they", 5), 2), (("der mann", "the man", 2), 2), (("die frau", "the woman", 2), 2),
    (("das kind", "the child", 2), 1), (("die kinder", "the children", 5), 1),
]
# stem, stem of the second and third person singular, prefix, infinitive, participle; and the English forms
VERBS = [(forms, 1) for forms in (
    (("seh", "sieh", "", "sehen", "gesehen"), ("see", "sees", "saw", "seeing", "")),
    (("such", "such", "", "suchen", "gesucht"), ("look", "looks", "looked", "looking", "for")),
    (("brauch", "brauch", "", "brauchen", "gebraucht"), ("need", "needs", "needed", "needing", "")),
    (("mal", "mal", "", "malen", "gemalt"), ("paint", "paints", "painted", "painting", "")),
    (("bring", "bring", "mit", "mitbringen", "mitgebracht"), ("bring", "brings", "brought", "bringing", "")),
    (("hol", "hol", "ab", "abholen", "abgeholt"), ("pick", "picks", "picked", "picking", "up")),
)]
TENSES = [("simple", 3), ("progressive", 2), ("past", 2), ("will", 2), ("must", 1)]
ENDINGS = "e st t en t en".split()
AUXILIARIES = {
    "past": "habe hast hat haben habt haben".split(),
    "will": "werde wirst wird werden werdet werden".split(),
    "must": "muss musst muss müssen müsst müssen".split(),
}
BE = "am are is are are are".split()

# German, English, gender: the column (masculine, feminine, neuter) in what follows, all of it in the accusative
NOUNS = [("koffer", "suitcase", 0), ("apfel", "apple", 0), ("tasche", "bag", 1), ("lampe", "lamp", 1),
         ("buch", "book", 2), ("fahrrad", "bicycle", 2)]
ARTICLES = [("den die das", "the", "en e e"), ("diesen diese dieses", "this", "en e e"),
            ("einen eine ein", "a", "en e es")]  # with the endings of an adjective behind them
ADJECTIVES = [("", ""), ("alt", "old"), ("neu", "new"), ("rot", "red")]


def noun_phrase(article, adjective, noun):
    """German and English."""
    german, english, gender = noun
    forms, english_article, endings = article
    inflected = adjective[0] and adjective[0] + endings.split()[gender]
    if english_article == "a" and (adjective[1] or english)[0] in "aeiou":
        english_article = "an"
    return (" ".join(filter(None, (forms.split()[gender], inflected, german))),
            " ".join(filter(None, (english_article, adjective[1], english))), False)


# ((German, English, whether it is a pronoun), weight)
OBJECTS = [(("ihn", "him", True), 12), (("sie", "her", True), 12), (("sie", "them", True), 6)]
OBJECTS += [(noun_phrase(*choice), 1) for choice in product(ARTICLES, ADJECTIVES, NOUNS)]
ADVERBIALS = [(("", ""), 3), (("im garten", "in the garden"), 1), (("zu hause", "at home"), 1),
              (("am bahnhof", "at the station"), 1)]
FRAMES = [("main", 3), ("adverbial first", 2), ("that", 2)]
LISTS = (SUBJECTS, VERBS, TENSES, OBJECTS, ADVERBIALS, FRAMES)


def german(subject, verb, tense, direct_object, adverbial, frame):
    """The German sentence of one choice from each of ``LISTS``."""
    (stem, changed, prefix, infinitive, participle), person = verb[0], subject[2]
    if tense in AUXILIARIES:
        finite, prefix, end = AUXILIARIES[tense][person], "", participle if tense == "past" else infinitive
    else:
        finite, end = (changed if person in (1, 2) else stem) + ENDINGS[person], ""
    pronoun, phrase = (direct_object[0], "") if direct_object[2] else ("", direct_object[0])
    if frame == "that":
        words = ["wir wissen , dass", subject[0], pronoun, adverbial[0], phrase, end, prefix + finite, "."]
    elif frame == "adverbial first" and adverbial[0]:
        words = [adverbial[0], finite, subject[0], pronoun, phrase, end, prefix, "."]
    else:
        words = [subject[0], finite, pronoun, adverbial[0], phrase, end, prefix, "."]
    return " ".join(filter(None, words))


def english(subject, verb, tense, direct_object, adverbial, frame):
    """The English sentence of the same choice."""
    (base, third, past, ing, behind), person = verb[1], subject[2]
    simple = third if person == 2 else base
    verb = {"simple": simple, "progressive": f"{BE[person]} {ing}", "past": past}.get(tense, f"{tense} {base}")
    words = [subject[1], verb, behind, direct_object[1]]
    if behind == "up" and direct_object[2]:  # picks them up
        words[2:] = reversed(words[2:])
    if frame == "adverbial first":
        words = [adverbial[1], *words]
    else:
        words = ["we know that" if frame == "that" else "", *words, adverbial[1]]
    return " ".join(filter(None, [*words, "."]))


def probabilities():
    """``{(German, English): probability}`` of all sentence pairs."""
    totals = math.prod(sum(weight for _, weight in choices) for choices in LISTS)
    pairs = Counter()
    for choice in product(*LISTS):
        values, weights = zip(*choice)
        pairs[german(*values), english(*values)] += math.prod(weights) / totals
    return pairs


def draw(seed=1):
    """``{split: pairs}``; no split has a German sentence of those before it."""
    rng = random.Random(seed)
    splits, taken = {}, set()
    for split, size in SIZES.items():
        splits[split] = []
        while len(splits[split]) < size:
            values = [rng.choices(*zip(*choices))[0] for choices in LISTS]
            source = german(*values)
            if source not in taken:
                splits[split].append((source, english(*values)))
        taken.update(source for source, _ in splits[split])
    return splits


def perplexities(splits):
    """The best possible perplexity of an English token (``</s>`` counts) given the German sentence: its expectation
    over all sentences, and in each split."""
    joint = probabilities()
    german_only = Counter()
    for (source, _), probability in joint.items():
        german_only[source] += probability

    def perplexity(weights):  # of sentence pairs, {pair: weight}
        nats = sum(weight * math.log(german_only[pair[0]] / joint[pair]) for pair, weight in weights.items())
        return math.exp(nats / sum(weight * (len(pair[1].split()) + 1) for pair, weight in weights.items()))

    return {"all": perplexity(joint), **{split: perplexity(Counter(pairs)) for split, pairs in splits.items()}}


def make(folder):
    """Write the text, the references and ``data-bin``; returns the perplexities."""
    splits = draw()
    for side, language in enumerate(("de", "en")):
        for split, pairs in splits.items():
            write_lines(folder / f"{split}.{language}", (pair[side] for pair in pairs))
        for split in ("valid", "test"):
            references = (pair[side].replace(" ,", ",").replace(" .", ".") for pair in splits[split])
            write_lines(folder / f"{split}.ref.{language}", references)
    binarise(folder, 1, "--source-lang", "de", "--target-lang", "en")
    return perplexities(splits)


def main():
    out = Path(sys.argv[1])
    figures = prepare_folder(out, "toy_german", [__file__], make)
    print("best possible perplexity of an English token, given the German sentence: "
          + ", ".join(f"{value:.4f} ({name})" for name, value in figures.items()))
    print(f"ready: {out / 'data-bin'}")
