"""Real English text that every CPython carries: the language reference's topics behind ``help()``, in
``DIR/{train,valid,test}.txt``, a sentence a line.

About 45,000 words with Python 3.11; every 20th paragraph is for validation, the one after it for test. The text differs
a little from one version of Python to the next, and so do numbers measured on it.
"""

import re
import sys
from pathlib import Path
from pydoc_data.topics import topics


def paragraphs():
    """Paragraphs of all topics, each once, without code (indented deeper) and tables."""
    blocks = (" ".join(block.split()) for name in sorted(topics) for block in re.split(r"\n\s*\n", topics[name]))
    texts = (text for text in blocks if len(text.split()) > 3 and ">>>" not in text and not set("|=*+") & set(text[:2]))
    return list(dict.fromkeys(texts))  # one section can be part of several topics


def sentences(paragraph):
    """Split after a full stop, question mark, exclamation mark, colon or semicolon that white space follows."""
    return [part for part in re.split(r"(?<=[.?!:;])\s+", paragraph) if re.search("[A-Za-z]", part)]


def main():
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    texts = {split: [] for split in ("train", "valid", "test")}
    for number, paragraph in enumerate(paragraphs()):
        split = {18: "valid", 19: "test"}.get(number % 20, "train")
        texts[split] += sentences(re.sub(r'["*`_/]+', " ", paragraph))
    for split, lines in texts.items():
        (directory / f"{split}.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
