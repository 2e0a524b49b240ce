"""The folders that data-prep scripts make, as experiments see them."""

import functools
import hashlib
import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import List, Sequence

BLOCK = 50  # lines that stand for a conversation where conversations aren't known


@dataclass(frozen=True)
class Corpus:
    """A binarised corpus."""

    folder: Path  # as the user named it
    binarised: Path  # its data-bin
    kind: str  # "lm" (one language) or "mt" (two)

    @classmethod
    def at(cls, folder: Path) -> "Corpus":
        """The corpus of a data-prep script's folder, or of its data-bin."""
        folder = folder.parent if folder.name == "data-bin" else folder
        binarised = folder / "data-bin" if (folder / "data-bin").is_dir() else folder
        dictionaries = sorted(binarised.glob("dict*.txt"))
        if not dictionaries:
            raise ValueError(f"data {str(folder)!r} has no dict.txt; give a folder that a data-prep script made")
        return cls(folder, binarised, "lm" if dictionaries[0].name == "dict.txt" else "mt")

    def check(self) -> None:
        """Opens all that a row of a table is trained and evaluated with: a missing or damaged file is an error."""
        from fairseq.data import Dictionary

        from ..patches.data import check

        for split in ("train", "valid", "test"):
            if not list(self.binarised.glob(f"{split}.*idx")):
                raise ValueError(f"{self.binarised} has no {split} text; prepare the corpus with it")
        for index in self.binarised.glob("*.idx"):
            language = index.name.split(".")[2:-1]  # of train.de-en.de.idx; none of train.idx
            check(index, Dictionary.load(str(self.binarised / ".".join(["dict", *language, "txt"]))))
        if self.kind == "mt":
            self.reference("test")

    @property
    def target(self) -> str:
        """The language that parallel text is translated to."""
        from fairseq.data import data_utils

        return data_utils.infer_language_pair(str(self.binarised))[1]

    def reference(self, split: str) -> Path:
        """The translations of a split as raw text."""
        path = self.folder / f"{split}.ref.{self.target}"
        if not path.is_file():
            raise ValueError(f"no reference {path}; prepare the corpus with a {split} set")
        return path

    def parts(self, split: str, lines: Sequence[Sequence[float]]) -> List[List[float]]:
        """The numbers of each line, added up over conversations if ``SPLIT.parts`` has their lengths, else over
        blocks of 50 lines."""
        path = self.folder / f"{split}.parts"
        sizes = map(int, path.read_text().split()) if path.is_file() else [BLOCK] * -(-len(lines) // BLOCK)
        remaining = iter(lines)
        parts = (list(itertools.islice(remaining, size)) for size in sizes)
        return [[round(sum(column), 3) for column in zip(*part)] for part in parts if part]

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @functools.cached_property
    def fingerprint(self) -> str:
        """The digest of all that is binarised."""
        return self.digest(r".*\.(idx|bin|txt)")

    @functools.cached_property
    def trained_on(self) -> str:
        """The digest of what a training reads: dictionaries, train and valid."""
        return self.digest(r"(train|valid)\d*\..*(idx|bin)|dict.*\.txt")

    def digest(self, pattern: str) -> str:
        """12 hexadecimal digits of a SHA-256 over names and contents of the files whose names match."""
        digest = hashlib.sha256()
        for path in sorted(self.binarised.iterdir()):
            if re.fullmatch(pattern, path.name):
                digest.update(path.name.encode())
                digest.update(path.read_bytes())
        return digest.hexdigest()[:12]
