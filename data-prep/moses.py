"""Moses tokenisation and lower-casing: sacremoses, mended where it departs from the Perl scripts.

The scripts followed are `scripts/tokenizer/tokenizer.perl` and `scripts/tokenizer/lowercase.perl` of
https://github.com/moses-smt/mosesdecoder, called as fairseq's recipes call them (`-l LANG`, nothing else).
"""

import regex
from sacremoses import MosesTokenizer

# Removed before sacremoses sees them: it would keep the space they leave, or make U+001C to U+001F a space.
CONTROLS = dict.fromkeys(set(range(0x20)) - set(b"\t\n\v\f\r"))
FINAL_PERIOD = regex.compile(r"(?<=\S)\.\Z")
LETTER = regex.compile(r"\p{Alphabetic}")


class Tokenizer(MosesTokenizer):
    """tokenizer.perl for one language, line for line.

    Three departures of sacremoses are mended:

    - the period that ends a line is always a token of its own ("in the u.s." → "in the u.s ."), as in the
      script since 2018; sacremoses keeps it on abbreviations and on numbers;
    - letters and digits are those of Perl, by Unicode's properties: sacremoses' lists lack the Chinese, Japanese
      and Korean letters, and recent scripts;
    - control characters are removed together with the space they leave.
    """

    def __init__(self, lang, lower=False):
        super().__init__(lang)
        self.lower = lower
        alpha, alnum, number = r"\p{Alphabetic}", r"\p{Alphabetic}\p{Nd}", r"\p{N}"

        def rule(pattern, replacement):
            return regex.compile(pattern), replacement

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
        return LETTER.search(text) is not None

    def handles_nonbreaking_prefixes(self, text):
        """As in sacremoses, then split the last word's period whatever precedes it."""
        return FINAL_PERIOD.sub(" .", super().handles_nonbreaking_prefixes(text))

    def __call__(self, line):
        """The tokens of `line` (no newline) as one string, in lower case if asked; a blank line gives an empty one."""
        tokens = self.tokenize(line.translate(CONTROLS), return_str=True)
        return lowercase(tokens) if self.lower else tokens


def lowercase(line):
    """Perl's `lc`: unlike `str.lower`, a capital sigma at the end of a word becomes σ, not ς."""
    return line.replace("Σ", "σ").lower()
