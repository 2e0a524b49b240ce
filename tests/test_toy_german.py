"""The generated German-English corpus: its German and English forms, its exact entropy, and what the script writes."""

import itertools
import json
import math
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

DATA_PREP = Path(__file__).resolve().parents[1] / "data-prep"
sys.path.insert(0, str(DATA_PREP))

import toy_german as toy  # noqa: E402


@pytest.fixture(scope="module")
def samples():
    rng = random.Random(1)
    return [toy.sample(rng) for _ in range(5000)]


# ------------------------------------------------------------------------------------------------- sentences


def derive(text):
    """The derivation of these values, depth first; a choice that has one option only is not named."""
    values = iter(text.split("/"))

    def node(symbol):
        options = toy.GRAMMAR[symbol]
        value = next(values) if len(options) > 1 else next(iter(options))
        return toy.Node(symbol, value, {role: node(part) for role, part in options[value].parts.items()})

    found = node("sentence")
    assert next(values, None) is None
    return found


PAIRS = [
    # separable verbs; a possessive of the subject; simple and progressive
    ("statement/transitive/pronoun/he/an|rufen/own/own/none/sister/present/time/today/simple/subject",
     "er ruft seine schwester heute an .", "he calls his sister today ."),
    ("statement/transitive/pronoun/they/ein|laden/own/own, plural/young/neighbour/present/time/today/progressive/time",
     "heute laden sie ihre jungen nachbarn ein .", "today they are inviting their young neighbours ."),
    ("statement/change/pronoun/i/auf|stehen/present/time/every day/subject",
     "ich stehe jeden tag auf .", "i get up every day ."),
    # the perfect, with both auxiliaries; the dative
    ("statement/dative/noun/the/old/woman/helfen/pronoun/them/past/time/yesterday/time",
     "gestern hat die alte frau ihnen geholfen .", "yesterday the old woman helped them ."),
    ("statement/change/noun/many/none/student/an|kommen/past/last week/subject",
     "viele studenten sind letzte woche angekommen .", "many students arrived last week ."),
    ("statement/giving/noun/this/none/teacher/geben/noun/the, plural/student/two/old/apple/past/time and place/"
     "last week/at school/place",
     "in der schule hat diese lehrerin den studenten letzte woche zwei alte äpfel gegeben .",
     "at school this teacher gave the students two old apples last week ."),
    # modal verbs
    ("statement/giving/pronoun/you all/mit|bringen/own/own/sister/a/expensive/book/modal/time/tomorrow/time/wollen",
     "morgen wollt ihr eurer schwester ein teures buch mitbringen .",
     "tomorrow you want to bring your sister an expensive book ."),
    ("that/pronoun/she/sagen/transitive/noun/a/man/kaufen/the/new/suitcase/modal/none/wollen",
     "sie sagt , dass ein mann den neuen koffer kaufen will .", "she says that a man wants to buy the new suitcase ."),
    # both forms of the future
    ("statement/transitive/pronoun/he/ab|holen/noun/the/none/student/future/time/tomorrow/subject/present",
     "er holt den studenten morgen ab .", "he will pick up the student tomorrow ."),
    ("statement/transitive/pronoun/he/ab|holen/noun/the/none/student/future/time/tomorrow/subject/werden",
     "er wird den studenten morgen abholen .", "he will pick up the student tomorrow ."),
    # the verb last, the separable verb in one word; "weil" and "denn"; a clause in front
    ("because/transitive/we/essen/a/banana/present/progressive/knowing/he/kennen/noun/the/old/man/weil",
     "wir essen eine banane , weil er den alten mann kennt .",
     "we are eating a banana because he knows the old man ."),
    ("because/dative/they/zu|hören/noun/many/child/past/transitive/i/auf|machen/own, plural/new/suitcase/past/time/"
     "yesterday/denn",
     "sie haben vielen kindern zugehört , denn ich habe meine neuen koffer gestern aufgemacht .",
     "they listened to many children because i opened my new suitcases yesterday ."),
    ("because first/transitive/she/an|rufen/pronoun/her/present/often/dative/i/helfen/pronoun/her/modal/müssen",
     "weil sie sie oft anruft , muss ich ihr helfen .", "because she often calls her , i must help her ."),
    ("although first/state/noun/the/child/ill/activity/you/arbeiten/present/simple",
     "obwohl das kind krank ist , arbeitest du .", "although the child is ill , you work ."),
    ("when/dative/noun/the, plural/woman/zu|hören/own/own/brother/pronoun/he/tired",
     "die frauen hören ihrem bruder zu , wenn er müde ist .", "the women listen to their brother when he is tired ."),
    # objects in front of and behind the adverbials, determiners, adjectives; "picks her up"
    ("statement/transitive/pronoun/i/auf|machen/no/none/window/present/often",
     "ich mache oft kein fenster auf .", "i often open no window ."),
    ("statement/transitive/noun/two/none/woman/ab|holen/pronoun/her/present/time/now/subject",
     "zwei frauen holen sie jetzt ab .", "two women are picking her up now ."),
    ("statement/transitive/pronoun/you/essen/none, plural/new/banana/present/place/in the kitchen/progressive/place",
     "in der küche isst du neue bananen .", "in the kitchen you are eating new bananas ."),
    ("statement/dative/noun/these/small/child/zu|hören/noun/a/old/man/present/place/in the garden/simple/subject",
     "diese kleinen kinder hören im garten einem alten mann zu .",
     "these small children listen to an old man in the garden ."),
    ("statement/quality/the, plural/suitcase/expensive", "die koffer sind teuer .", "the suitcases are expensive ."),
    ("that/noun/the/woman/wissen/change/pronoun/we/an|kommen/future/soon/werden",
     "die frau weiß , dass wir bald ankommen werden .", "the woman knows that we will arrive soon ."),
]


@pytest.mark.parametrize("values, german, english", PAIRS)
def test_sentences(values, german, english):
    sentence = derive(values)
    assert (toy.german(sentence), toy.english(sentence)) == (german, english)


# ----------------------------------------------------------------------------------------------------- forms

# determiner: masculine, feminine, neuter, or plural; nominative / accusative / dative
PHRASES = {
    "the": "der alte mann, die alte frau, das alte kind / den alten mann, die alte frau, das alte kind / "
           "dem alten mann, der alten frau, dem alten kind",
    "this": "dieser alte mann, diese alte frau, dieses alte kind / diesen alten mann, diese alte frau, "
            "dieses alte kind / diesem alten mann, dieser alten frau, diesem alten kind",
    "a": "ein alter mann, eine alte frau, ein altes kind / einen alten mann, eine alte frau, ein altes kind / "
         "einem alten mann, einer alten frau, einem alten kind",
    "no": "kein alter mann, keine alte frau, kein altes kind / keinen alten mann, keine alte frau, kein altes kind / "
          "keinem alten mann, keiner alten frau, keinem alten kind",
    "own": "euer alter mann, eure alte frau, euer altes kind / euren alten mann, eure alte frau, euer altes kind / "
           "eurem alten mann, eurer alten frau, eurem alten kind",
    "the, plural": "die alten männer, die alten frauen, die alten kinder / die alten männer, die alten frauen, "
                   "die alten kinder / den alten männern, den alten frauen, den alten kindern",
    "these": "diese alten männer, diese alten frauen, diese alten kinder / diese alten männer, diese alten frauen, "
             "diese alten kinder / diesen alten männern, diesen alten frauen, diesen alten kindern",
    "own, plural": "eure alten männer, eure alten frauen, eure alten kinder / eure alten männer, eure alten frauen, "
                   "eure alten kinder / euren alten männern, euren alten frauen, euren alten kindern",
    "two": "zwei alte männer, zwei alte frauen, zwei alte kinder / zwei alte männer, zwei alte frauen, "
           "zwei alte kinder / zwei alten männern, zwei alten frauen, zwei alten kindern",
    "many": "viele alte männer, viele alte frauen, viele alte kinder / viele alte männer, viele alte frauen, "
            "viele alte kinder / vielen alten männern, vielen alten frauen, vielen alten kindern",
    "none, plural": "alte männer, alte frauen, alte kinder / alte männer, alte frauen, alte kinder / "
                    "alten männern, alten frauen, alten kindern",
}


def phrase(determiner, noun, adjective="none"):
    parts = {"determiner": determiner, "adjective": adjective, "noun": noun}
    return toy.Node("person", "noun", {role: toy.Node(role, value, {}) for role, value in parts.items()})


@pytest.mark.parametrize("determiner", toy.DETERMINERS)
def test_agreement_in_the_noun_phrase(determiner):
    owner = toy.PRONOUNS["you all"]
    found = " / ".join(
        ", ".join(" ".join(toy.german_phrase(phrase(determiner, noun, "old"), case, owner))
                  for noun in ("man", "woman", "child"))
        for case in toy.CASES)
    assert found == PHRASES[determiner]


NOUNS = """
    mann mann mann männer männer männern           frau frau frau frauen frauen frauen
    kind kind kind kinder kinder kindern           student studenten studenten studenten studenten studenten
    lehrerin lehrerin lehrerin lehrerinnen lehrerinnen lehrerinnen
    schwester schwester schwester schwestern schwestern schwestern
    bruder bruder bruder brüder brüder brüdern     nachbar nachbarn nachbarn nachbarn nachbarn nachbarn
    buch buch buch bücher bücher büchern           koffer koffer koffer koffer koffer koffern
    apfel apfel apfel äpfel äpfel äpfeln           banane banane banane bananen bananen bananen
    tür tür tür türen türen türen                  fenster fenster fenster fenster fenster fenstern
"""
ARTICLES = {  # of the singular
    "der": "mann student bruder nachbar koffer apfel",
    "die": "frau lehrerin schwester banane tür",
    "das": "kind buch fenster",
}


def test_nouns():
    forms = [toy.german_noun(name, case, gender) for name, noun in toy.NOUNS.items()
             for gender in (noun.gender, "plural") for case in toy.CASES]
    assert forms == NOUNS.split()
    articles = {noun.german: toy.ARTICLE["nominative", noun.gender] for noun in toy.NOUNS.values()}
    assert articles == {noun: article for article, nouns in ARTICLES.items() for noun in nouns.split()}


POSSESSIVES = """
    mein meine mein meine    dein deine dein deine       sein seine sein seine    ihr ihre ihr ihre
    sein seine sein seine    unser unsere unser unsere   euer eure euer eure      ihr ihre ihr ihre
    meinen deinen seinen ihren seinen unseren euren ihren
"""


def test_possessives():
    forms = [toy.german_determiner("own", "nominative", gender, owner)
             for owner in toy.PRONOUNS.values() for gender in toy.GENDERS]
    forms += [toy.german_determiner("own", "accusative", "masculine", owner) for owner in toy.PRONOUNS.values()]
    assert forms == POSSESSIVES.split()


def test_adjectives():
    forms = {name: " ".join(toy.german_phrase(phrase("this", "man", name), "nominative")) for name in toy.ADJECTIVES}
    assert forms == {
        "old": "dieser alte mann", "young": "dieser junge mann", "small": "dieser kleine mann",
        "new": "dieser neue mann", "expensive": "dieser teure mann", "tired": "dieser müde mann",
        "ill": "dieser kranke mann", "happy": "dieser glückliche mann",
    }


# ich, du, er, wir, ihr, sie
VERBS = """
    arbeite arbeitest arbeitet arbeiten arbeitet arbeiten   schlafe schläfst schläft schlafen schlaft schlafen
    komme kommst kommt kommen kommt kommen                  stehe stehst steht stehen steht stehen
    rufe rufst ruft rufen ruft rufen                        lade lädst lädt laden ladet laden
    besuche besuchst besucht besuchen besucht besuchen      hole holst holt holen holt holen
    kaufe kaufst kauft kaufen kauft kaufen                  esse isst isst essen esst essen
    mache machst macht machen macht machen                  helfe hilfst hilft helfen helft helfen
    höre hörst hört hören hört hören                        gebe gibst gibt geben gebt geben
    bringe bringst bringt bringen bringt bringen            kenne kennst kennt kennen kennt kennen
    liebe liebst liebt lieben liebt lieben                  sage sagst sagt sagen sagt sagen
    glaube glaubst glaubt glauben glaubt glauben            weiß weißt weiß wissen wisst wissen
    bin bist ist sind seid sind                             habe hast hat haben habt haben
    werde wirst wird werden werdet werden                   muss musst muss müssen müsst müssen
    kann kannst kann können könnt können                    will willst will wollen wollt wollen
"""


def test_conjugation():
    names = list(dict.fromkeys([*toy.VERBS, *toy.IRREGULAR]))
    assert [toy.conjugate(name, person) for name in names for person in range(6)] == VERBS.split()


SUBJECTS = {  # German, English, and the forms of "arbeiten" and "be"
    "pronoun/i": "ich arbeite/i work/i am working",
    "pronoun/you": "du arbeitest/you work/you are working",
    "pronoun/he": "er arbeitet/he works/he is working",
    "pronoun/she": "sie arbeitet/she works/she is working",
    "pronoun/we": "wir arbeiten/we work/we are working",
    "pronoun/you all": "ihr arbeitet/you work/you are working",
    "pronoun/they": "sie arbeiten/they work/they are working",
    "noun/a/old/man": "ein alter mann arbeitet/an old man works/an old man is working",
    "noun/a/none/child": "ein kind arbeitet/a child works/a child is working",
    "noun/the, plural/happy/child": "die glücklichen kinder arbeiten/the happy children work/"
                                    "the happy children are working",
    "noun/two/none/student": "zwei studenten arbeiten/two students work/two students are working",
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_verbs_agree_with_their_subjects(subject):
    lines = [(toy.german(one), toy.english(one)) for aspect in ("simple", "progressive")
             for one in [derive(f"statement/activity/{subject}/arbeiten/present/place/at home/{aspect}/subject")]]
    german, *english = SUBJECTS[subject].split("/")
    assert lines == [(f"{german} zu hause .", f"{one} at home .") for one in english]


def test_every_sentence_is_well_formed(samples):
    for sentence in samples:
        for line in (toy.german(sentence), toy.english(sentence)):
            tokens = line.split(" ")
            assert tokens[-1] == "." and line == line.lower() and all(tokens)
            assert 3 <= sum(token not in ",." for token in tokens) <= 15, line


# --------------------------------------------------------------------------------------------------- entropy


def derivations(grammar, symbol="sentence"):
    """``[(probability, derivation)]``, all of them."""
    found = []
    for value, one in grammar[symbol].items():
        for parts in itertools.product(*(derivations(grammar, part) for part in one.parts.values())):
            probability = one.probability * math.prod(p for p, _ in parts)
            found.append((probability, toy.Node(symbol, value, dict(zip(one.parts, [node for _, node in parts])))))
    return found


def size(grammar, symbol="sentence"):
    """The number of derivations."""
    return sum(math.prod(size(grammar, part) for part in one.parts.values()) for one in grammar[symbol].values())


def restricted(keep):
    """The grammar with the options for which ``keep(symbol)`` returns the values; unreachable symbols are left out."""
    grammar = {}

    def add(symbol):
        if symbol not in grammar:
            grammar[symbol] = {value: toy.GRAMMAR[symbol][value] for value in keep(symbol)}
            for one in grammar[symbol].values():
                for part in one.parts.values():
                    add(part)

    add("sentence")
    return grammar


def random_grammar(rng):
    """A grammar of 500 to 5,000 derivations: of most choices one option, of some two or three."""
    while True:
        grammar = toy.normalise(restricted(lambda symbol: rng.sample(
            list(toy.GRAMMAR[symbol]), min(len(toy.GRAMMAR[symbol]), rng.choice((1, 1, 2, 3))))))
        if 500 <= size(grammar) <= 5000:
            return grammar


def entropy(probabilities):
    return -sum(p * math.log(p) for p in probabilities)


@pytest.mark.parametrize("seed", range(8))
def test_entropy_is_that_of_all_sentences_of_a_smaller_grammar(seed):
    grammar = random_grammar(random.Random(seed))
    every = [(p, toy.german(one), toy.english(one)) for p, one in derivations(grammar)]
    german, english, pairs = defaultdict(float), defaultdict(float), defaultdict(float)
    for p, de, en in every:
        german[de] += p
        english[en] += p
        pairs[de, en] += p
    likeliest = defaultdict(float)
    for (de, _), p in pairs.items():
        likeliest[de] = max(likeliest[de], p)
    tokens = sum(p * (len(en.split()) + 1) for p, _, en in every)
    exact = toy.exact(grammar)
    assert math.isclose(sum(german.values()), 1)
    assert exact["sentences"] == {"english": len(english), "german": len(german)}
    assert exact["nats per sentence"] == pytest.approx({
        "english": entropy(english.values()),
        "german": entropy(german.values()),
        "english given german": entropy(pairs.values()) - entropy(german.values()),
    })
    assert exact["english tokens per sentence, with </s>"] == pytest.approx(tokens)
    perplexity = math.exp(entropy(english.values()) / tokens)
    assert exact["perplexity per english token"]["english"] == pytest.approx(perplexity)
    assert exact["share of sentences that the best translator gets exactly"] == pytest.approx(sum(likeliest.values()))


def test_entropy_agrees_with_samples_of_the_whole_grammar(samples):
    exact = toy.exact()
    for name, languages in toy.MEASURES.items():
        own = toy.surprise(*languages)
        nats = [toy.total(own, one) for one in samples]
        mean = sum(nats) / len(nats)
        error = math.sqrt(sum((one - mean) ** 2 for one in nats)) / len(nats)
        assert abs(mean - exact["nats per sentence"][name]) < 4 * error
    lengths = [toy.total(toy.english_words(), one) for one in samples]
    assert lengths == [len(toy.english(one).split()) for one in samples]
    assert sum(lengths) / len(lengths) + 1 == pytest.approx(exact["english tokens per sentence, with </s>"], rel=0.02)


def can_be_in(language, symbol, value, line):
    """False where ``value`` cannot be part of the derivation of ``line``; True where it may be."""
    tokens = set(line.split())

    def some(forms):
        return not tokens.isdisjoint(forms)

    if symbol == "sentence":
        word = value.split()[0]
        words = [toy.CONJUNCTIONS.get(word, word)] + ["denn"] * (value == "because") if language == "de" else [word]
        return some(words) if word != "statement" else "," not in tokens and not some(["that", *toy.CONJUNCTIONS])
    if value in toy.NOUNS:
        noun = toy.NOUNS[value]
        forms = [toy.german_noun(value, case, gender) for case in toy.CASES for gender in (noun.gender, "plural")]
        return some(forms if language == "de" else [value, noun.english_plural])
    if symbol.endswith("determiner"):
        one = toy.DETERMINERS[value]
        owners = toy.PRONOUNS.values()
        forms = {"de": [toy.german_determiner(value, *key, owner) for key in toy.ARTICLE for owner in owners],
                 "en": [owner.english_possessive for owner in owners] if one.english == toy.OWN
                 else [one.english, one.english + "n"]}
        return value == "none, plural" or some(forms[language])
    if value in toy.VERBS:
        verb = toy.VERBS[value]
        prefix = value.split("|")[0] if "|" in value else ""
        forms = [toy.conjugate(value, person) for person in range(6)]
        forms += [prefix + form for form in forms] + [verb.participle, value.replace("|", "")]
        return some(forms if language == "de" else verb.english.split())
    if value in toy.ADJECTIVES:
        return any(token.startswith(toy.ADJECTIVES[value] if language == "de" else value) for token in tokens)
    if symbol == "pronoun":
        return some([toy.PRONOUNS[value].german if language == "de" else toy.PRONOUNS[value].english])
    if value in toy.OBJECT_PRONOUNS:
        return some(toy.OBJECT_PRONOUNS[value].values() if language == "de" else [value])
    if value in toy.MODALS:
        return some({"de": toy.IRREGULAR[value].split(), "en": [toy.MODALS[value].split()[0], "wants"]}[language])
    if value == "past":
        auxiliaries = f"{toy.IRREGULAR['haben']} {toy.IRREGULAR['sein']}".split()
        return some(auxiliaries if language == "de" else [verb.english.split()[2] for verb in toy.VERBS.values()])
    if value in toy.TIMES or value in toy.PLACES:
        words = {"de": (toy.TIMES | toy.PLACES)[value], "en": value}
        return f" {words[language]} " in f" {line} "
    return True


@pytest.mark.parametrize("language", toy.LANGUAGES)
def test_probability_of_a_sentence_is_the_sum_over_all_its_derivations(language, samples):
    checked = 0
    for sentence in samples[:60]:
        line = toy.REALISE[language](sentence)
        possible = restricted(lambda symbol: [  # not normalised: the probabilities are those of the whole grammar
            value for value in toy.GRAMMAR[symbol] if can_be_in(language, symbol, value, line)])  # noqa: B023
        if size(possible) > 5000:
            continue
        checked += 1
        found = [(p, one) for p, one in derivations(possible) if toy.REALISE[language](one) == line]
        probability = sum(p for p, _ in found)
        assert math.isclose(-math.log(probability), toy.total(toy.surprise(language), sentence)), line
        if language == "de":
            joint = sum(p for p, one in found if toy.english(one) == toy.english(sentence))
            own = toy.surprise("en", "de")
            assert math.isclose(math.log(probability / joint), toy.total(own, sentence), abs_tol=1e-9), line
            alternatives = defaultdict(float)
            for p, one in found:
                alternatives[toy.english(one)] += p
            assert alternatives[toy.english(toy.best(sentence))] == pytest.approx(max(alternatives.values())), line
    assert checked > 40


def test_what_looks_the_same_has_no_parts():
    for language, symbols in toy.SHOWS.items():
        for symbol, looks in symbols.items():
            assert looks.keys() <= toy.GRAMMAR[symbol].keys()
            for value in toy.GRAMMAR[symbol]:
                assert len(toy.looking_like(language, symbol, value)) == 1 or not toy.GRAMMAR[symbol][value].parts


def test_every_rule_is_used():
    assert restricted(lambda symbol: toy.GRAMMAR[symbol]).keys() == toy.GRAMMAR.keys()
    for options in toy.GRAMMAR.values():
        assert math.isclose(sum(one.probability for one in options.values()), 1)


# ---------------------------------------------------------------------------------------------------- corpus

SIZES = {"train": 1500, "valid": 100, "test": 100}


def test_the_seed_determines_the_corpus():
    splits, dropped = toy.draw(SIZES, 1)
    assert (splits, dropped) == toy.draw(SIZES, 1)
    other, _ = toy.draw(SIZES, 2)
    assert all(splits[split] != other[split] for split in SIZES)
    # the same on every machine
    assert toy.german(splits["train"][0]) == "die kleinen lehrerinnen bringen ihren nachbarn jetzt keinen koffer mit ."


def test_splits_have_no_german_sentence_in_common():
    splits, dropped = toy.draw(SIZES, 1)
    lines = {split: set(map(toy.german, found)) for split, found in splits.items()}
    assert [len(found) for found in splits.values()] == [1500, 100, 100]
    assert lines["train"].isdisjoint(lines["valid"]) and (lines["train"] | lines["valid"]).isdisjoint(lines["test"])
    assert dropped["train"] == 0 and dropped["valid"] + dropped["test"] > 0


def script(*arguments):
    return subprocess.run([sys.executable, DATA_PREP / "toy_german.py", *map(str, arguments)],
                          capture_output=True, text=True)


def test_script(tmp_path):
    out = tmp_path / "toy"
    command = out, "--train", 300, "--valid", 20, "--test", 30, "--seed", 3
    done = script(*command)
    assert done.returncode == 0, done.stderr
    lines = {file.name: file.read_text(encoding="utf-8").splitlines() for file in out.glob("*.??")}
    splits, _ = toy.draw({"train": 300, "valid": 20, "test": 30}, 3)
    for split, found in splits.items():
        assert lines[f"{split}.de"] == list(map(toy.german, found))
        assert lines[f"{split}.en"] == list(map(toy.english, found))
    assert [line.replace(",", " ,").replace(".", " .") for line in lines["test.ref.en"]] == lines["test.en"]
    assert len(lines["test.best.en"]) == 30
    figures = json.loads((out / "entropy.json").read_text())
    assert figures["grammar"] == toy.exact()
    nats = [toy.total(toy.surprise("en", "de"), one) for one in splits["test"]]
    tokens = sum(len(line.split()) + 1 for line in lines["test.en"])
    perplexity = figures["splits"]["test"]["perplexity per english token"]["english given german"]
    assert perplexity == pytest.approx(math.exp(sum(nats) / tokens))
    binary = {f"{split}.de-en.{language}.{end}"
              for split, language, end in itertools.product(splits, ("de", "en"), ("bin", "idx"))}
    assert {file.name for file in (out / "data-bin").iterdir()} == binary | {"dict.de.txt", "dict.en.txt"}

    before = {file: file.stat().st_mtime_ns for file in out.rglob("*")}
    again = script(*command)
    assert again.returncode == 0 and again.stdout == done.stdout and "binarising" not in again.stderr
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*")} == before


def test_errors_are_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for arguments, message in (((tmp_path, "--train", 0), "--train"), ((tmp_path / "file",), "is, or lies in, a file")):
        failed = script(*arguments)
        assert failed.returncode == 2 and message in failed.stderr and failed.stderr.count("\n") == 1
