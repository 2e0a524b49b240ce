"""The folders that data-prep scripts make, as experiments see them."""

import functools
import hashlib
import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import List, Sequence

SPLITS = ("train", "valid", "test")
BLOCK = 50  # lines that stand for a conversation where conversations aren't known


@dataclass(frozen=True)
class Corpus:
    """A binarised corpus.

    Args:
        folder: as the user named it.
        binarised: its data-bin.
        kind: ``lm`` (one language) or ``mt`` (two).
    """

    folder: Path
    binarised: Path
    kind: str

    @classmethod
    def at(cls, folder: Path) -> "Corpus":
        """The corpus of a data-prep script's folder, or of its data-bin.

        Raises:
            ValueError: no dictionary there, or a name that fairseq reads as something else.
        """
        folder = check_name(Path(folder))
        if folder.name == "data-bin":
            folder = folder.parent
        binarised = folder / "data-bin" if (folder / "data-bin").is_dir() else folder
        dictionaries = sorted(binarised.glob("dict*.txt"))
        if not dictionaries:
            raise ValueError(
                f"data {str(folder)!r} has no data-bin with a dict.txt; give a folder that a data-prep script made"
            )
        return cls(folder, binarised, "lm" if dictionaries[0].name == "dict.txt" else "mt")

    def check(self) -> None:
        """Opens all that a row of a table is trained and evaluated with.

        Raises:
            ValueError, SystemExit: one line: a split is missing or damaged.
        """
        from fairseq.data import Dictionary, data_utils

        from .. import fairseq_plugin  # noqa: F401  (checks the files that are loaded)

        for split in SPLITS:
            paths = sorted(self.binarised.glob(f"{split}.*idx"))
            if not paths:
                raise ValueError(f"{self.binarised} has no {split} text; prepare the corpus with all of {SPLITS}")
            for path in paths:
                suffix = "".join(path.suffixes[-2:-1]) if self.kind == "mt" else ""
                dictionary = Dictionary.load(str(self.binarised / f"dict{suffix}.txt"))
                data_utils.load_indexed_dataset(str(path.with_suffix("")), dictionary)
        if self.kind == "mt" and not self.reference("test").is_file():
            raise ValueError(f"no reference {self.reference('test')}; prepare the corpus with a test set")

    def target(self, split: str = "test") -> str:
        """The language that parallel text is translated to; "" if the files don't tell."""
        for path in self.binarised.glob("*.idx"):
            match = re.fullmatch(r"(.*?)\.([^.]+)-([^.]+)\.\3\.idx", path.name)
            if match and match[1] == split:
                return match[3]
        return ""

    def reference(self, split: str) -> Path:
        """The translations of a split as raw text."""
        return self.folder / f"{split}.ref.{self.target(split)}"

    def splits(self) -> List[str]:
        """The names of its parts: train, valid, test."""
        return sorted({path.name.partition(".")[0] for path in self.binarised.glob("*.idx")})

    def tokens(self, split: str) -> int:
        """Words of a text of one language, line ends counted."""
        from fairseq.data import data_utils

        text = data_utils.load_indexed_dataset(str(self.binarised / split))  # its sizes are lost with it
        return int(text.sizes.sum())

    def parts(self, split: str, lines: Sequence[Sequence[float]]) -> List[List[float]]:
        """Sums of what stands for each line, over conversations where ``SPLIT.parts`` has the number of lines of each,
        else over blocks of 50 lines.

        Raises:
            ValueError: ``SPLIT.parts`` is of another text.
        """
        given = [path for path in (self.folder / f"{split}.parts", self.binarised / f"{split}.parts") if path.is_file()]
        if given:
            sizes = [int(number) for number in given[0].read_text().split()]
            if sum(sizes) != len(lines):
                raise ValueError(f"{given[0]} is of {sum(sizes)} lines, {split} has {len(lines)}; prepare it again")
        else:
            sizes = [BLOCK] * -(-len(lines) // BLOCK)
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


def check_name(path: Path) -> Path:
    """The path itself.

    Raises:
        ValueError: fairseq would read it as something else.
    """
    for part, meaning in ((":", "several paths"), ("${", "a setting's value")):
        if part in str(path):
            raise ValueError(f"{str(path)!r} has {part}, which fairseq takes for {meaning}; name a folder without it")
    return path
