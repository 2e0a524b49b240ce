"""Moses tokenisation and lower-casing: sacremoses, mended where it departs from the Perl scripts.

The scripts followed are `scripts/tokenizer/tokenizer.perl` and `scripts/tokenizer/lowercase.perl` of
https://github.com/moses-smt/mosesdecoder, called as fairseq's recipes call them (`-l LANG`, nothing else).
"""

import functools
import re
import sys
import unicodedata
from itertools import groupby

from sacremoses import MosesTokenizer
from sacremoses.corpus import Perluniprops

# Removed before sacremoses sees them: it would keep the space they leave, or make U+001C to U+001F a space.
CONTROLS = dict.fromkeys(set(range(0x20)) - set(b"\t\n\v\f\r"))
FINAL_PERIOD = re.compile(r"(?<=\S)\.\Z")


def perl_classes():
    """The characters of Perl's `\\p{IsAlpha}`, `\\p{IsAlnum}` and `\\p{IsN}`, as three sets.

    Perl's IsAlpha is Unicode's Alphabetic: letters, letter-like numbers, and the marks and symbols that
    sacremoses lists. Its lists alone lack the Chinese, Japanese and Korean letters, and recent scripts.
    """
    alpha, decimal, number = set(Perluniprops().chars("IsAlpha")), set(), set()
    for char in map(chr, range(sys.maxunicode + 1)):
        category = unicodedata.category(char)
        if category[0] == "N":
            number.add(char)
        if category[0] == "L" or category == "Nl":
            alpha.add(char)
        elif category == "Nd":
            decimal.add(char)
    return frozenset(alpha), frozenset(alpha | decimal), frozenset(number)


@functools.cache
def ranges(chars):
    """`chars` written as the inside of a regular expression's character class."""
    codes = enumerate(sorted(map(ord, chars)))
    runs = ([code for _, code in run] for _, run in groupby(codes, lambda pair: pair[1] - pair[0]))
    return "".join(f"\\U{run[0]:08x}-\\U{run[-1]:08x}" for run in runs)


class Tokenizer(MosesTokenizer):
    """tokenizer.perl for one language, line for line.

    Three departures of sacremoses are mended:

    - the period that ends a line is always a token of its own ("in the u.s." → "in the u.s ."), as in the
      script since 2018; sacremoses keeps it on abbreviations and on numbers;
    - letters and digits are those of Perl (see `perl_classes`);
    - control characters are removed together with the space they leave.
    """

    ALPHA, ALNUM, NUMBER = perl_classes()

    def __init__(self, lang):
        super().__init__(lang)
        alpha, alnum, number = map(ranges, (self.ALPHA, self.ALNUM, self.NUMBER))

        def rule(pattern, replacement):
            return re.compile(pattern), replacement

        # The rules of tokenizer.perl that name a character class. Looking for the comma or the apostrophe
        # first makes them three times as fast.
        comma, quote = "(?=.,)", "(?=.')"
        self.PAD_NOT_ISALNUM = rule(rf"([^{alnum}\s.'`,\-])", r" \1 ")
        self.COMMA_SEPARATE_1 = rule(f"{comma}([^{number}]),", r"\1 , ")
        self.COMMA_SEPARATE_2 = rule(f",([^{number}])", r" , \1")
        self.COMMA_SEPARATE_3 = rule(f"{comma}([{number}]),$", r"\1 ,")
        self.ENGLISH_SPECIFIC_APOSTROPHE = [
            rule(f"{quote}([^{alpha}])'([^{alpha}])", r"\1 ' \2"),
            rule(f"{quote}([^{alpha}{number}])'([{alpha}])", r"\1 ' \2"),
            rule(f"{quote}([{alpha}])'([^{alpha}])", r"\1 ' \2"),
            rule(f"{quote}([{alpha}])'([{alpha}])", r"\1 '\2"),
            rule(f"{quote}([{number}])'(s)", r"\1 '\2"),
        ]

    def isanyalpha(self, text):
        """As in sacremoses, on Perl's letters."""
        return not self.ALPHA.isdisjoint(text)

    def handles_nonbreaking_prefixes(self, text):
        """As in sacremoses, then split the last word's period whatever precedes it."""
        return FINAL_PERIOD.sub(" .", super().handles_nonbreaking_prefixes(text))

    def __call__(self, line):
        """The tokens of `line` (no newline) as one string; a blank line gives an empty one."""
        return self.tokenize(line.translate(CONTROLS), return_str=True)


def lowercase(line):
    """Perl's `lc`: unlike `str.lower`, a capital sigma at the end of a word becomes σ, not ς."""
    return line.replace("Σ", "σ").lower()
