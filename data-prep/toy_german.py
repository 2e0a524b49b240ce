"""A small generated German-English corpus, for a first translation model: the best possible perplexity is known.

    python toy_german.py DIR [--train 12000 --valid 500 --test 500 --seed 1]

A derivation, drawn from the probabilities in ``GRAMMAR``, is a meaning; it is put into German and into English:

    er ruft seine schwester heute an .                he calls his sister today .
    gestern hat die alte frau ihnen geholfen .        yesterday the old woman helped them .
    weil das kind krank ist , hört sie ihm zu .       because the child is ill , she listens to him .

German has gender, case and number agreement, weak, mixed and strong adjectives, the verb second in main clauses and
last in subordinate ones, separable verbs, modal verbs, the perfect, and verbs with the dative. A reader of the
German knows the English except where ``SHOWS`` says otherwise: the present tense does not show the English aspect,
and the accusative "sie" is "her" or "them". German distinguishes some things that English does not.

Every sentence is that of one derivation only, up to the choices in ``SHOWS``. So the entropies are exact: sums over
the independent choices, in nats, which the tests compare with sums over all sentences of smaller grammars, and
probabilities of sentences with sums over all their derivations. To extend the corpus, add words to the lexicon and
name them in ``RULES``; the tests tell when a sentence gets a second derivation.

Valid and test are drawn from the same grammar, without the German sentences that occur in an earlier split. What is
left out depends on the German alone, so the probabilities of translations stay those of the grammar.
"""

import functools
import json
import math
import random
import re
import shutil
from bisect import bisect
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from common import (
    ArgumentParser,
    Progress,
    Stamps,
    atomic_write,
    digest,
    fairseq_preprocess,
    output_directory,
    positive_int,
    require_fairseq,
    run,
)

LANGUAGES = ("de", "en")
SPLITS = ("train", "valid", "test")


# --------------------------------------------------------------------------------------------- lexicon

GENDERS = ("masculine", "feminine", "neuter", "plural")  # of a noun phrase; the columns of the tables
CASES = ("nominative", "accusative", "dative")  # the rows


class Noun(NamedTuple):
    german: str
    gender: str
    german_plural: str
    english_plural: str
    oblique: str = ""  # accusative and dative singular, of the weak masculines


NOUNS = {
    # people
    "man": Noun("mann", "masculine", "männer", "men"),
    "woman": Noun("frau", "feminine", "frauen", "women"),
    "child": Noun("kind", "neuter", "kinder", "children"),
    "student": Noun("student", "masculine", "studenten", "students", "studenten"),
    "teacher": Noun("lehrerin", "feminine", "lehrerinnen", "teachers"),
    # whom one has
    "sister": Noun("schwester", "feminine", "schwestern", "sisters"),
    "brother": Noun("bruder", "masculine", "brüder", "brothers"),
    "neighbour": Noun("nachbar", "masculine", "nachbarn", "neighbours", "nachbarn"),
    # things
    "book": Noun("buch", "neuter", "bücher", "books"),
    "suitcase": Noun("koffer", "masculine", "koffer", "suitcases"),
    "apple": Noun("apfel", "masculine", "äpfel", "apples"),
    "banana": Noun("banane", "feminine", "bananen", "bananas"),
    "door": Noun("tür", "feminine", "türen", "doors"),
    "window": Noun("fenster", "neuter", "fenster", "windows"),
}

# English: as a predicate, and the stem that takes endings
ADJECTIVES = {
    "old": ("alt", "alt"),
    "young": ("jung", "jung"),
    "small": ("klein", "klein"),
    "new": ("neu", "neu"),
    "expensive": ("teuer", "teur"),
    "tired": ("müde", "müd"),
    "ill": ("krank", "krank"),
    "happy": ("glücklich", "glücklich"),
}


def table(*rows):
    """``{(case, gender): form}`` of a row a case, a column a gender; "-" is an empty ending."""
    return {(case, gender): form.strip("-")
            for case, row in zip(CASES, rows) for gender, form in zip(GENDERS, row.split())}


ARTICLE = table("der die das die", "den die das die", "dem der dem den")
STRONG = table("er e es e", "en e es e", "em er em en")
MIXED = table("er e es en", "en e es en", "en en en en")
WEAK = table("e e e en", "en e e en", "en en en en")
EIN = table("- e - e", "en e - e", "em er em en")
NO_ENDING = table("- - - -", "- - - -", "- - - -")


class Determiner(NamedTuple):
    german: str
    endings: dict
    adjective: dict  # the endings of an adjective behind it
    plural: bool
    definite: bool  # stands in front of the adverbials
    english: str


OWN = "own"  # the subject's possessive
DETERMINERS = {
    "the": Determiner("", ARTICLE, WEAK, False, True, "the"),
    "the, plural": Determiner("", ARTICLE, WEAK, True, True, "the"),
    "this": Determiner("dies", STRONG, WEAK, False, True, "this"),
    "these": Determiner("dies", STRONG, WEAK, True, True, "these"),
    "own": Determiner(OWN, EIN, MIXED, False, True, OWN),
    "own, plural": Determiner(OWN, EIN, MIXED, True, True, OWN),
    "a": Determiner("ein", EIN, MIXED, False, False, "a"),
    "no": Determiner("kein", EIN, MIXED, False, False, "no"),
    "two": Determiner("zwei", NO_ENDING, STRONG, True, False, "two"),
    "many": Determiner("viel", STRONG, STRONG, True, False, "many"),
    "none, plural": Determiner("", NO_ENDING, STRONG, True, False, ""),
}


class Pronoun(NamedTuple):
    person: int  # place in the lists of verb forms
    german: str
    english: str
    german_possessive: str
    english_possessive: str


PRONOUNS = {
    "i": Pronoun(0, "ich", "i", "mein", "my"),
    "you": Pronoun(1, "du", "you", "dein", "your"),
    "he": Pronoun(2, "er", "he", "sein", "his"),
    "she": Pronoun(2, "sie", "she", "ihr", "her"),
    "it": Pronoun(2, "es", "it", "sein", "its"),
    "we": Pronoun(3, "wir", "we", "unser", "our"),
    "you all": Pronoun(4, "ihr", "you", "euer", "your"),
    "they": Pronoun(5, "sie", "they", "ihr", "their"),
}
PRONOUN_OF = {"masculine": "he", "feminine": "she", "neuter": "it", "plural": "they"}
OBJECT_PRONOUNS = {
    "him": {"accusative": "ihn", "dative": "ihm"},
    "her": {"accusative": "sie", "dative": "ihr"},
    "them": {"accusative": "sie", "dative": "ihnen"},
}


class Verb(NamedTuple):
    participle: str
    english: str  # infinitive, third person, past, -ing
    behind: str = ""  # what follows the English verb
    changed: str = ""  # stem of the second and third person singular, where another
    auxiliary: str = "haben"


# "an|rufen" is "anrufen" with the separable "an"
VERBS = {
    "arbeiten": Verb("gearbeitet", "work works worked working"),
    "schlafen": Verb("geschlafen", "sleep sleeps slept sleeping", changed="schläf"),
    "an|kommen": Verb("angekommen", "arrive arrives arrived arriving", auxiliary="sein"),
    "auf|stehen": Verb("aufgestanden", "get gets got getting", "up", auxiliary="sein"),
    "an|rufen": Verb("angerufen", "call calls called calling"),
    "ein|laden": Verb("eingeladen", "invite invites invited inviting", changed="läd"),
    "besuchen": Verb("besucht", "visit visits visited visiting"),
    "ab|holen": Verb("abgeholt", "pick picks picked picking", "up"),
    "kaufen": Verb("gekauft", "buy buys bought buying"),
    "essen": Verb("gegessen", "eat eats ate eating", changed="iss"),
    "auf|machen": Verb("aufgemacht", "open opens opened opening"),
    "helfen": Verb("geholfen", "help helps helped helping", changed="hilf"),
    "zu|hören": Verb("zugehört", "listen listens listened listening", "to"),
    "geben": Verb("gegeben", "give gives gave giving", changed="gib"),
    "mit|bringen": Verb("mitgebracht", "bring brings brought bringing"),
    # these in the simple present only
    "kennen": Verb("gekannt", "know knows knew knowing"),
    "lieben": Verb("geliebt", "love loves loved loving"),
    "sagen": Verb("gesagt", "say says said saying"),
    "glauben": Verb("geglaubt", "think thinks thought thinking"),
    "wissen": Verb("gewusst", "know knows knew knowing"),
}
IRREGULAR = {
    "sein": "bin bist ist sind seid sind",
    "haben": "habe hast hat haben habt haben",
    "werden": "werde wirst wird werden werdet werden",
    "wissen": "weiß weißt weiß wissen wisst wissen",
    "müssen": "muss musst muss müssen müsst müssen",
    "können": "kann kannst kann können könnt können",
    "wollen": "will willst will wollen wollt wollen",
}
BE = "am are is are are are"
MODALS = {"müssen": "must", "können": "can", "wollen": "want to"}

TIMES = {
    "today": "heute",
    "now": "jetzt",
    "every day": "jeden tag",
    "often": "oft",
    "yesterday": "gestern",
    "last week": "letzte woche",
    "tomorrow": "morgen",
    "soon": "bald",
}
PLACES = {
    "in the garden": "im garten",
    "in the kitchen": "in der küche",
    "at home": "zu hause",
    "at school": "in der schule",
}
CONJUNCTIONS = {"that": "dass", "because": "weil", "although": "obwohl", "when": "wenn"}


# --------------------------------------------------------------------------------------------- grammar


class Option(NamedTuple):
    """One of the ways in which a choice can be made."""

    probability: float
    words: int  # the English words that it adds, without those of its parts
    parts: dict  # {role: the choice that has to be made for it}


def option(weight, english="", **parts):
    """An ``Option`` of this relative weight, and the English words that it adds."""
    return Option(weight, len(english.split()), parts)


def words(text, weight=1, **parts):
    """Options of the same weight for English words, those of one option with "_" between them."""
    names = [name.replace("_", " ") for name in text.split()]
    return {name: option(weight, name, **parts) for name in names}


def verbs(text, **parts):
    """Options of the same weight for verbs."""
    return {name: option(1, f"{VERBS[name].english.split()[0]} {VERBS[name].behind}", **parts)
            for name in text.split()}


def determiners(**weights):
    """Options for the determiners of these weights; "these_two" stands for "these, two"."""
    names = {name.replace("_", ", "): weight for name, weight in weights.items()}
    return {name: option(weight, DETERMINERS[name].english) for name, weight in names.items()}


RULES = {
    "sentence": {
        "statement": option(50, ".", main="statement"),
        "that": option(15, "that .", subject="short person", verb="saying", clause="that clause"),
        "because": option(12, "because .", main="short clause", clause="reason", link="link"),
        "because first": option(6, "because , .", clause="reason", main="short clause"),
        "although": option(5, "although .", main="short clause", clause="reason"),
        "although first": option(4, "although , .", clause="reason", main="short clause"),
        "when": option(4, "when .", main="habit", clause="condition"),
        "when first": option(4, "when , .", clause="condition", main="habit"),
    },
    "link": {"weil": option(7), "denn": option(3)},
    # clauses, by what they may contain
    "statement": {
        "state": option(4, "is", subject="person", predicate="state"),
        "quality": option(2, "is", subject="thing", predicate="quality"),
        "knowing": option(4, subject="person", verb="knowing"),
        "activity": option(6, subject="person", verb="activity", tense="tense, with an adverbial"),
        "change": option(5, subject="person", verb="change", tense="tense, with a time"),
        "transitive": option(18, subject="person", verb="transitive", tense="tense"),
        "dative": option(7, subject="person", verb="dative", tense="tense"),
        "giving": option(8, subject="person", verb="giving", tense="tense"),
    },
    "that clause": {
        "state": option(3, "is", subject="short person", predicate="state"),
        "quality": option(2, "is", subject="thing", predicate="quality"),
        "knowing": option(3, subject="short person", verb="knowing"),
        "activity": option(3, subject="short person", verb="activity", tense="tense, not fronted"),
        "change": option(3, subject="short person", verb="change", tense="tense, not fronted"),
        "transitive": option(7, subject="short person", verb="transitive", tense="tense, not fronted"),
        "dative": option(4, subject="short person", verb="dative", tense="tense, not fronted"),
    },
    "reason": {
        "state": option(4, "is", subject="short person", predicate="state"),
        "knowing": option(3, subject="only pronoun", verb="knowing"),
        "activity": option(2, subject="only pronoun", verb="activity", tense="short tense"),
        "change": option(2, subject="only pronoun", verb="change", tense="short tense"),
        "transitive": option(6, subject="only pronoun", verb="transitive", tense="short tense"),
        "dative": option(3, subject="only pronoun", verb="dative", tense="short tense"),
    },
    "short clause": {
        "activity": option(2, subject="only pronoun", verb="activity", tense="tense, no adverbial"),
        "transitive": option(6, subject="only pronoun", verb="short transitive", tense="tense, no adverbial"),
        "dative": option(3, subject="only pronoun", verb="short dative", tense="tense, no adverbial"),
    },
    "habit": {
        "activity": option(2, subject="short person", verb="activity"),
        "transitive": option(6, subject="short person", verb="short transitive"),
        "dative": option(3, subject="short person", verb="short dative"),
        "giving": option(3, subject="short person", verb="giving"),
    },
    "condition": {"state": option(1, "is", subject="short person", predicate="state")},
    "state": words("tired ill happy"),
    "quality": words("old new small expensive"),
    # verbs, with their objects
    "activity": verbs("arbeiten schlafen"),
    "change": verbs("an|kommen auf|stehen"),
    "knowing": verbs("kennen lieben", object="person object"),
    "saying": verbs("sagen glauben wissen"),
    "transitive": {
        **verbs("an|rufen ein|laden besuchen ab|holen", object="person object"),
        **verbs("kaufen", object="thing object"),
        **verbs("essen", object="food"),
        **verbs("auf|machen", object="openable"),
    },
    "dative": verbs("helfen zu|hören", object="dative object"),
    "short transitive": {
        **verbs("an|rufen ein|laden besuchen ab|holen", object="short person object"),
        **verbs("kaufen", object="short thing object"),
        **verbs("essen", object="short food"),
        **verbs("auf|machen", object="short openable"),
    },
    "short dative": verbs("helfen zu|hören", object="short dative object"),
    "giving": verbs("geben mit|bringen", recipient="recipient", object="gift"),
    # noun phrases: determiner, maybe an adjective, noun; for other objects see below
    "person": {
        "pronoun": option(5, pronoun="pronoun"),
        "noun": option(5, determiner="subject determiner", adjective="person adjective", noun="person noun"),
    },
    "short person": {
        "pronoun": option(6, pronoun="pronoun"),
        "noun": option(4, determiner="subject determiner", noun="person noun"),
    },
    "only pronoun": {"pronoun": option(1, pronoun="pronoun")},
    "thing": {"noun": option(1, determiner="pointing determiner", noun="thing noun")},
    "recipient": {
        "pronoun": option(3, pronoun="dative pronoun"),
        "noun": option(3, determiner="pointing determiner", noun="person noun"),
        "own": option(3, determiner="own determiner", noun="own noun"),
    },
    "gift": {"noun": option(1, determiner="thing determiner", adjective="thing adjective", noun="gift noun")},
    "pronoun": words("i you he she we they", 2) | {"you all": option(1, "you")},
    "accusative pronoun": {"him": option(4, "him"), "her": option(3, "her"), "them": option(2, "them")},
    "dative pronoun": words("him her them"),
    "subject determiner": determiners(the=5, the_plural=3, a=2, this=2, these=1, two=1, many=1),
    "object determiner": determiners(the=5, the_plural=2, a=4, this=2, these=1, two=1, many=1, none_plural=1),
    "thing determiner": determiners(
        the=5, the_plural=2, a=4, this=1, these=1, no=1, two=1, many=1, none_plural=1, own=3, own_plural=1),
    "pointing determiner": determiners(the=4, the_plural=2, this=2, these=1),
    "own determiner": determiners(own=3, own_plural=1),
    "person adjective": {"none": option(6), **words("old young small happy")},
    "thing adjective": {"none": option(6), **words("old small new expensive")},
    "person noun": words("man woman child student teacher"),
    "own noun": words("sister brother neighbour"),
    "thing noun": words("book suitcase apple banana door window"),
    "gift noun": words("book suitcase apple banana"),
    "food noun": words("apple banana"),
    "openable noun": words("door window suitcase"),
    # tenses: see also below
    "aspect": {"simple": option(7), "progressive": option(3, "is")},
    "future form": {"present": option(6), "werden": option(4)},
    "modal": {name: option(1, english) for name, english in MODALS.items()},
    "short modal": {name: option(1, MODALS[name]) for name in ("müssen", "können")},
    "present time": {
        "today": option(3, "today", aspect="aspect"),
        "now": option(1, "is now"),
        "every day": option(1, "every day"),
    },
    "past time": words("yesterday last_week"),
    "future time": words("tomorrow soon"),
    "modal time": words("today tomorrow"),
    "place": words("in_the_garden in_the_kitchen at_home at_school"),
    # what stands in front of the verb
    "front, time": {"subject": option(5), "time": option(5)},
    "front, place": {"subject": option(8), "place": option(2)},
    "front, time and place": {"subject": option(5), "time": option(4), "place": option(1)},
}


def add_objects(prefix, person, thing):
    """Add the objects whose names begin with ``prefix``; ``person`` and ``thing`` are their parts for adjectives."""
    for name, pronoun in (("person object", "accusative pronoun"), ("dative object", "dative pronoun")):
        RULES[prefix + name] = {
            "pronoun": option(2, pronoun=pronoun),
            "noun": option(5, determiner="object determiner", **person, noun="person noun"),
            "own": option(3, determiner="own determiner", **person, noun="own noun"),
        }
    for name, noun in (("thing object", "thing noun"), ("food", "food noun"), ("openable", "openable noun")):
        RULES[prefix + name] = {"noun": option(1, determiner="thing determiner", **thing, noun=noun)}


add_objects("", {"adjective": "person adjective"}, {"adjective": "thing adjective"})
add_objects("short ", {}, {})


def add_tense(name, adverbials, fronted=False, modal="modal"):
    """Add the choice ``name``: of a tense, then of ``adverbials`` among these kinds, then maybe of what is fronted."""
    aspect = {"aspect": "aspect"}
    tenses = {
        "present": option(5),
        "past": option(3),
        "future": option(2, "will", form="future form"),
        "modal": option(2, modal=modal),
    }
    RULES[name] = {}
    for tense, (weight, count, parts) in tenses.items():
        time = {"time": f"{tense} time"}
        kinds = {
            "none": option(3, **aspect),
            "place": option(2, place="place", **aspect),
            "often": option(1, "often"),
            "time": option(4, **time),
            "time and place": option(2, **time, place="place"),
        }
        kinds = {kind: kinds[kind] for kind in adverbials}
        if tense != "present":
            kinds.pop("often", None)
            for kind in kinds.values():
                kind.parts.pop("aspect", None)
        if tense == "future":
            kinds = {kind: kinds[kind] for kind in kinds if "time" in kind}
        if fronted:
            for kind in kinds:
                if f"front, {kind}" in RULES:
                    kinds[kind].parts["front"] = f"front, {kind}"
        if kinds:
            RULES[f"{name}: {tense}"] = kinds
            RULES[name][tense] = Option(weight, count, {"adverbials": f"{name}: {tense}", **parts})


add_tense("tense", ("none", "place", "often", "time", "time and place"), fronted=True)
add_tense("tense, with an adverbial", ("place", "often", "time", "time and place"), fronted=True)
add_tense("tense, with a time", ("often", "time"), fronted=True)
add_tense("tense, not fronted", ("none", "often", "time"))
add_tense("short tense", ("none", "often", "time"), modal="short modal")
add_tense("tense, no adverbial", ("none",), modal="short modal")


def normalise(rules):
    """The rules with weights that sum to 1 in every choice."""
    grammar = {}
    for symbol, options in rules.items():
        total = sum(one.probability for one in options.values())
        grammar[symbol] = {value: one._replace(probability=one.probability / total) for value, one in options.items()}
    return grammar


GRAMMAR = normalise(RULES)

# What a language shows of a choice, where that is not the choice itself. Choices that look the same have no parts.
SHOWS = {
    "de": {
        "aspect": {"simple": "present", "progressive": "present"},  # er arbeitet: he works, he is working
        "accusative pronoun": {"her": "sie", "them": "sie"},
    },
    "en": {
        "pronoun": {"you": "you", "you all": "you"},  # du, ihr
        "future form": {"present": "will", "werden": "will"},  # er kommt morgen an, er wird morgen ankommen
        "link": {"weil": "because", "denn": "because"},
    },
}


class Node(NamedTuple):
    """A choice as it was made."""

    symbol: str
    value: str
    parts: dict

    def get(self, *roles):
        """The value at the end of this path of roles, or None."""
        node = self
        for role in roles:
            node = node.parts.get(role)
            if node is None:
                return None
        return node.value


def sample(rng, symbol="sentence", grammar=GRAMMAR):
    """A derivation, drawn with ``rng.random()`` alone, which is the same in all versions of Python."""
    options = grammar[symbol]
    ends = list(accumulate(one.probability for one in options.values()))
    value = list(options)[bisect(ends, rng.random(), hi=len(ends) - 1)]
    return Node(symbol, value, {role: sample(rng, part, grammar) for role, part in options[value].parts.items()})


# ----------------------------------------------------------------------------------------------- German


def conjugate(verb, person):
    """The present tense of an infinitive without its separable prefix's "|"."""
    if verb in IRREGULAR:
        return IRREGULAR[verb].split()[person]
    name = verb.split("|")[-1]
    stem, changed = name.removesuffix("en"), VERBS[verb].changed if person in (1, 2) else ""
    ending = "e st t en t en".split()[person]
    if not changed and stem[-1] in "td" and ending in ("st", "t"):  # arbeitest, ladet
        ending = "e" + ending
    if changed and changed[-1] == "s":  # du isst
        ending = "t"
    return (changed or stem) + ending


def phrase_gender(phrase):
    """The column of a noun phrase in the tables."""
    return "plural" if DETERMINERS[phrase.get("determiner")].plural else NOUNS[phrase.get("noun")].gender


def subject_pronoun(subject):
    """The pronoun that a subject is, or could be replaced by."""
    return PRONOUNS[subject.get("pronoun") or PRONOUN_OF[phrase_gender(subject)]]


def german_determiner(name, case, gender, owner):
    """The form of a determiner; ``owner`` is the ``Pronoun`` of the subject."""
    determiner = DETERMINERS[name]
    stem, ending = determiner.german, determiner.endings[case, gender]
    if stem == OWN:
        stem = owner.german_possessive
    return (stem.replace("euer", "eur") if ending else stem) + ending


def german_noun(name, case, gender):
    """The form of a noun; ``gender`` is that of the phrase."""
    noun = NOUNS[name]
    if gender != "plural":
        return noun.oblique if noun.oblique and case != "nominative" else noun.german
    return noun.german_plural + ("n" if case == "dative" and noun.german_plural[-1] not in "ns" else "")


def german_phrase(phrase, case, owner=None):
    """The words of a subject or object."""
    if pronoun := phrase.get("pronoun"):
        return [PRONOUNS[pronoun].german if case == "nominative" else OBJECT_PRONOUNS[pronoun][case]]
    determiner, gender = phrase.get("determiner"), phrase_gender(phrase)
    found = [german_determiner(determiner, case, gender, owner)]
    adjective = phrase.get("adjective")
    if adjective in ADJECTIVES:
        found.append(ADJECTIVES[adjective][1] + DETERMINERS[determiner].adjective[case, gender])
    return [word for word in [*found, german_noun(phrase.get("noun"), case, gender)] if word]


def german_verb(clause, person):
    """The finite verb, its separable prefix, and the words of the predicate at the end of the clause."""
    if predicate := clause.get("predicate"):
        return conjugate("sein", person), "", [ADJECTIVES[predicate][0]]
    verb, tense = clause.get("verb"), clause.get("tense")
    if tense == "past":
        return conjugate(VERBS[verb].auxiliary, person), "", [VERBS[verb].participle]
    if tense == "modal" or clause.get("tense", "form") == "werden":
        return conjugate(clause.get("tense", "modal") or "werden", person), "", [verb.replace("|", "")]
    return conjugate(verb, person), verb.split("|")[0] if "|" in verb else "", []


def german_clause(clause, order):
    """The words of a clause.

    Args:
        order: "second" for the verb as second; "first" behind what already takes the first place; or "last".
    """
    subject = clause.parts["subject"]
    owner = subject_pronoun(subject)
    finite, prefix, end = german_verb(clause, owner.person)
    time, place, front = adverbials(clause)
    adverbs = {"time": TIMES[time].split() if time else [], "place": PLACES[place].split() if place else []}
    before, after = [], []  # objects, by the side of the adverbials on which they stand
    if verb := clause.parts.get("verb"):
        recipient, theme = verb.parts.get("recipient"), verb.parts.get("object")
        if recipient:
            before += german_phrase(recipient, "dative", owner)
        if theme:
            case = "dative" if verb.symbol.endswith("dative") else "accusative"
            light = theme.get("pronoun") or DETERMINERS[theme.get("determiner")].definite
            (before if light and not recipient else after).extend(german_phrase(theme, case, owner))
    first = german_phrase(subject, "nominative")
    if order == "last":
        return [*first, *before, *adverbs["time"], *adverbs["place"], *after, *end, prefix + finite]
    end += [prefix] * bool(prefix)
    if order == "first":
        opening = [finite, *first]
    elif front in adverbs:
        opening = [*adverbs[front], finite, *first]
        adverbs[front] = []
    else:
        opening = [*first, finite]
    return [*opening, *before, *adverbs["time"], *adverbs["place"], *after, *end]


def adverbials(clause):
    """English time, place and what is fronted ("time", "place" or "subject"); None for what there isn't."""
    time = "often" if clause.get("tense", "adverbials") == "often" else clause.get("tense", "adverbials", "time")
    return time, clause.get("tense", "adverbials", "place"), clause.get("tense", "adverbials", "front")


def german(sentence):
    """The tokens of a derivation in German, as a line."""
    kind, first = sentence.value.split()[0], sentence.value.endswith("first")
    if kind == "statement":
        return " ".join([*german_clause(sentence.parts["main"], "second"), "."])
    link = sentence.get("link") or CONJUNCTIONS[kind]
    clause = [link, *german_clause(sentence.parts["clause"], "second" if link == "denn" else "last")]
    # "sagen", "glauben", "wissen": the sentence itself is their clause
    main = german_clause(sentence.parts.get("main", sentence), "first" if first else "second")
    return " ".join([*clause, ",", *main, "."] if first else [*main, ",", *clause, "."])


# ---------------------------------------------------------------------------------------------- English


def english_phrase(phrase, owner=None):
    """The words of a subject or object; ``owner`` is the ``Pronoun`` of the subject."""
    if pronoun := phrase.get("pronoun"):
        return [pronoun if pronoun in OBJECT_PRONOUNS else PRONOUNS[pronoun].english]
    determiner, noun, adjective = (phrase.get(role) for role in ("determiner", "noun", "adjective"))
    found = [adjective] if adjective in ADJECTIVES else []
    found.append(NOUNS[noun].english_plural if DETERMINERS[determiner].plural else noun)
    article = DETERMINERS[determiner].english
    if article == OWN:
        article = owner.english_possessive
    elif article == "a" and found[0][0] in "aeiou":
        article = "an"
    return [article, *found] if article else found


def english_verb(clause, person):
    """The verb with its auxiliaries, and what follows it."""
    be = BE.split()[person]
    if predicate := clause.get("predicate"):
        return [be, predicate], []
    verb, tense = VERBS[clause.get("verb")], clause.get("tense")
    infinitive, third, past, ing = verb.english.split()
    behind = verb.behind.split()
    if tense == "past":
        return [past], behind
    if tense == "future":
        return ["will", infinitive], behind
    if tense == "modal":
        modal, *to = MODALS[clause.get("tense", "modal")].split()
        return [modal + "s" * bool(to and person == 2), *to, infinitive], behind
    aspect = clause.get("tense", "adverbials", "aspect") or clause.get("tense", "adverbials", "time", "aspect")
    if aspect == "progressive" or clause.get("tense", "adverbials", "time") == "now":
        return [be, ing], behind
    return [third if person == 2 else infinitive], behind


def english_clause(clause):
    """The words of a clause."""
    subject = clause.parts["subject"]
    owner = subject_pronoun(subject)
    verb, behind = english_verb(clause, owner.person)
    time, place, front = adverbials(clause)
    objects = []
    if node := clause.parts.get("verb"):
        for role in ("recipient", "object"):
            if role in node.parts:
                objects += english_phrase(node.parts[role], owner)
    if behind == ["up"] and node.get("object", "pronoun"):  # picks her up
        objects, behind = behind, objects
    adverbs = {"place": place.split() if place else [], "time": time.split() if time else []}
    opening = adverbs.pop(front, [])
    if time == "often":
        verb = [*adverbs.pop("time"), *verb]
    return [*opening, *english_phrase(subject), *verb, *behind, *objects,
            *adverbs.get("place", []), *adverbs.get("time", [])]


def english(sentence):
    """The tokens of a derivation in English, as a line."""
    kind, first = sentence.value.split()[0], sentence.value.endswith("first")
    main = english_clause(sentence.parts.get("main", sentence))
    if kind == "statement":
        return " ".join([*main, "."])
    clause = [kind, *english_clause(sentence.parts["clause"])]
    return " ".join([*clause, ",", *main, "."] if first else [*main, *clause, "."])


REALISE = {"de": german, "en": english}


# ------------------------------------------------------------------------------- entropy, perplexity


def shown(language, symbol, value):
    """What ``language`` shows of the choice of ``value`` for ``symbol``."""
    return SHOWS[language].get(symbol, {}).get(value, value)


def looking_like(language, symbol, value, grammar=GRAMMAR):
    """The values for ``symbol`` that look like ``value`` in ``language``, itself among them."""
    return [other for other in grammar[symbol] if shown(language, symbol, other) == shown(language, symbol, value)]


def surprise(language, given=None, grammar=GRAMMAR):
    """A function: minus the logarithm of the probability of what ``language`` shows of a choice.

    Args:
        given: another language, whose sentence is known; or None.

    Returns:
        Function of a symbol and a value, in nats; ``expectation`` and ``total`` sum it over a sentence.
    """
    @functools.cache
    def nats(symbol, value):
        possible = grammar[symbol] if given is None else looking_like(given, symbol, value, grammar)
        alike = set(looking_like(language, symbol, value, grammar)) & set(possible)
        probability = {other: one.probability for other, one in grammar[symbol].items()}
        return math.log(sum(map(probability.get, possible))) - math.log(sum(map(probability.get, alike)))

    return nats


def english_words(grammar=GRAMMAR):
    """A function: the English tokens that a choice adds, as ``surprise`` returns one."""
    return lambda symbol, value: grammar[symbol][value].words


def expectation(own, grammar=GRAMMAR):
    """The exact expectation of the sum of ``own(symbol, value)`` over the choices of a sentence."""
    @functools.cache
    def expected(symbol):
        return sum(one.probability * (own(symbol, value) + sum(map(expected, one.parts.values())))
                   for value, one in grammar[symbol].items())

    return expected("sentence")


def total(own, node):
    """The sum of ``own(symbol, value)`` over the choices of a derivation."""
    return own(node.symbol, node.value) + sum(total(own, part) for part in node.parts.values())


def sentences(language, grammar=GRAMMAR):
    """How many different sentences there are in ``language``."""
    @functools.cache
    def count(symbol):
        looks = {shown(language, symbol, value): one.parts.values() for value, one in grammar[symbol].items()}
        return sum(math.prod(map(count, parts)) for parts in looks.values())

    return count("sentence")


def likeliest(symbol, value, grammar=GRAMMAR):
    """The most probable of the values that look like ``value`` in German."""
    return max(looking_like("de", symbol, value, grammar), key=lambda other: grammar[symbol][other].probability)


def best(node, grammar=GRAMMAR):
    """The derivation with the same German of which the English is most probable."""
    parts = {role: best(part, grammar) for role, part in node.parts.items()}
    return Node(node.symbol, likeliest(node.symbol, node.value, grammar), parts)


def accuracy(grammar=GRAMMAR):
    """The probability that the most probable translation is the one that was drawn: no translator has more."""
    @functools.cache
    def expected(symbol):
        return sum(one.probability * math.prod(map(expected, one.parts.values()))
                   for value, one in grammar[symbol].items() if likeliest(symbol, value, grammar) == value)

    return expected("sentence")


MEASURES = {"english": ("en",), "german": ("de",), "english given german": ("en", "de")}


def exact(grammar=GRAMMAR):
    """The exact figures of the grammar."""
    nats = {name: expectation(surprise(*languages, grammar=grammar), grammar) for name, languages in MEASURES.items()}
    tokens = expectation(english_words(grammar), grammar) + 1
    return {
        "sentences": {"english": sentences("en", grammar), "german": sentences("de", grammar)},
        "nats per sentence": nats,
        "english tokens per sentence, with </s>": tokens,
        "perplexity per english token": {name: math.exp(nats[name] / tokens) for name in nats if name != "german"},
        "share of sentences that the best translator gets exactly": accuracy(grammar),
    }


# ------------------------------------------------------------------------------------------------ corpus


def draw(sizes, seed):
    """``{split: derivations}``, and how many were left out, as ``{split: count}``.

    Args:
        sizes: ``{split: pairs}``; a split has no German sentence of those before it.
    """
    splits, dropped, taken = {}, {}, set()
    with Progress("generating", sum(sizes.values())) as progress:
        for split, size in sizes.items():
            rng = random.Random(f"{seed} {split}")
            found, lines = [], []
            drawn = 0
            while len(found) < size:
                sentence = sample(rng)
                line = german(sentence)
                drawn += 1
                if line not in taken:
                    found.append(sentence)
                    lines.append(line)
                    progress.update(1)
            taken.update(lines)
            splits[split], dropped[split] = found, drawn - size
    return splits, dropped


def describe(derivations, lines):
    """The figures of one split; perplexities are those of the grammar itself."""
    tokens = sum(len(line.split()) + 1 for line in lines["en"])
    own = {name: surprise(*languages) for name, languages in MEASURES.items() if name != "german"}
    nats = {name: sum(total(measure, one) for one in derivations) for name, measure in own.items()}
    return {
        "pairs": len(derivations),
        "different pairs": len(set(zip(lines["de"], lines["en"]))),
        "tokens": {language: sum(len(line.split()) for line in lines[language]) for language in LANGUAGES},
        "perplexity per english token": {name: math.exp(nats[name] / tokens) for name in nats},
    }


def overlap(lines, training):
    """How many sentences, and pairs, occur in the training text."""
    counts = {language: sum(map(set(training[language]).__contains__, lines[language])) for language in LANGUAGES}
    pairs = set(zip(training["de"], training["en"]))
    return counts | {"pairs": sum(pair in pairs for pair in zip(lines["de"], lines["en"]))}


def detokenise(line):
    """Without the blanks in front of the comma and the full stop."""
    return re.sub(r" (?=[,.])", "", line)


def write_lines(path, lines):
    """The text file ``path``, a line each; it appears when it is whole."""
    with atomic_write(path) as file:
        file.writelines(f"{line}\n" for line in lines)


def write_text(out, sizes, seed):
    """Write the text and ``entropy.json``.

    Returns:
        The files' names, and what ``entropy.json`` holds.
    """
    splits, dropped = draw(sizes, seed)
    lines = {split: {language: list(map(REALISE[language], splits[split])) for language in LANGUAGES}
             for split in splits}
    figures = {"grammar": exact(), "seed": seed, "splits": {}}
    texts = {}
    for split in SPLITS:
        one = figures["splits"][split] = describe(splits[split], lines[split])
        if split != "train":
            one |= {"left out": dropped[split], "also in train": overlap(lines[split], lines["train"])}
        texts |= {f"{split}.{language}": lines[split][language] for language in LANGUAGES}
    texts |= {f"test.ref.{language}": map(detokenise, lines["test"][language]) for language in LANGUAGES}
    texts["test.best.en"] = (detokenise(english(best(one))) for one in splits["test"])
    for name, text in texts.items():
        write_lines(out / name, text)
    write_lines(out / "entropy.json", [json.dumps(figures, indent=1)])
    return [*texts, "entropy.json"], figures


def binarise(out, figures):
    """Make ``data-bin``."""
    arguments = ["--source-lang", "de", "--target-lang", "en", "--workers", 1]
    for split in SPLITS:
        arguments += [f"--{split}pref", out / split]
    symbols = sum(sum(one["tokens"].values()) + 2 * one["pairs"] for one in figures["splits"].values())
    with Progress("binarising", 2 * symbols) as progress:  # in 16 bits each
        fairseq_preprocess(arguments, out / "data-bin", out / "preprocess.log", progress)


def prepare(out, sizes, seed):
    """Do the stages that are not done yet; returns what ``entropy.json`` holds."""
    stamps = Stamps(out / "stamps.json")
    key = digest(Path(__file__).read_text(encoding="utf-8"), sizes, seed)
    figures = stamps.result("text", key)
    if figures is None:
        stamps.forget("text", "data-bin")
        shutil.rmtree(out / "data-bin", ignore_errors=True)  # no data-bin for other text stays
        names, figures = write_text(out, sizes, seed)
        stamps.finish("text", key, [out / name for name in names], figures)
    if stamps.result("data-bin", key) is None:
        stamps.forget("data-bin")
        binarise(out, figures)
        stamps.finish("data-bin", key, [out / "data-bin"], True)
    return figures


# ------------------------------------------------------------------------------------------ command line


def parse_arguments():
    """The command line."""
    parser = ArgumentParser(
        prog="toy_german.py",
        description="A generated German-English corpus with exactly known entropy, as text and fairseq's binary data.",
        epilog="DIR receives {train,valid,test}.{de,en}, test.ref.{de,en} (detokenised), test.best.en (the most "
        "probable translations, detokenised: the grammar's own BLEU), entropy.json and data-bin/. The same command run "
        "again does only what is missing.",
    )
    parser.add_argument("directory", metavar="DIR", help="output directory")
    for split, size in (("train", 12000), ("valid", 500), ("test", 500)):
        parser.add_argument(f"--{split}", type=positive_int, default=size, metavar="N",
                            help=f"sentence pairs in {split} (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="random seed (default: %(default)s)")
    return parser.parse_args()


def report(out, figures):
    """Print the figures."""
    grammar = figures["grammar"]
    nats, perplexity = grammar["nats per sentence"], grammar["perplexity per english token"]
    tokens = grammar["english tokens per sentence, with </s>"]
    print(f"grammar: {grammar['sentences']['german']:,} German and {grammar['sentences']['english']:,} English "
          f"sentences, {tokens:.4f} English tokens in the mean, with </s>")
    for name, title in (("english", "English"), ("english given german", "English given German")):
        print(f"entropy of {title}: {nats[name]:.6f} nats a sentence: perplexity {perplexity[name]:.6f} a token")
    share = grammar["share of sentences that the best translator gets exactly"]
    print(f"the best translator gets {100 * share:.2f} % of the sentences exactly")
    for split, one in figures["splits"].items():
        print(f"{split}: {one['pairs']:,} pairs ({one['different pairs']:,} different), {one['tokens']['de']:,} German "
              f"and {one['tokens']['en']:,} English tokens")
        print("    the grammar's own perplexity on it, English given German: "
              f"{one['perplexity per english token']['english given german']:.6f}")
        if split != "train":
            also = one["also in train"]
            print(f"    {one['left out']:,} left out, as in an earlier split; in train: {also['pairs']:,} pairs "
                  f"and {also['en']:,} English sentences")
    print(f"ready: {out / 'data-bin'}")


def main():
    """Prepare the data."""
    args = parse_arguments()
    require_fairseq()
    out = output_directory(args.directory)
    report(out, prepare(out, {split: getattr(args, split) for split in SPLITS}, args.seed))


if __name__ == "__main__":
    run(main, "toy_german.py")
