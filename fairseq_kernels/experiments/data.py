"""The folders that data-prep scripts make, as experiments see them."""

import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, List, Sequence

from .files import check_name
from .profiles import option_value


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
        folder = Path(folder)
        check_name(folder)
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
        """
        Raises:
            ValueError: it lacks what a row of a table is trained and evaluated with.
        """
        missing = [split for split in ("train", "valid", "test") if not any(self.binarised.glob(f"{split}.*idx"))]
        if missing:
            lacking = f"{self.binarised} has no {' and no '.join(missing)} text"
        elif self.kind == "mt" and not (self.folder / f"test.ref.{self.target()}").is_file():
            lacking = f"{self.folder} has no reference test.ref.{self.target() or 'LANGUAGE'}"
        else:
            return
        raise ValueError(f"{lacking}; give a folder that a data-prep script made, with train, valid and test")

    def target(self, split: str = "test") -> str:
        """Of parallel text, the language that is translated to; "" if the files don't tell."""
        for path in self.binarised.glob("*.idx"):
            match = re.fullmatch(r"(.*?)\.([^.]+)-([^.]+)\.\3\.idx", path.name)
            if match and match[1] == split:
                return match[3]
        return ""

    def check_direction(self, options: Sequence[str]) -> None:
        """
        Raises:
            ValueError: fairseq's options ask for another direction than that of parallel text.
        """
        target = self.target("train") or self.target()
        for name in ("--target-lang", "-t"):
            wanted = option_value(options, name)
            if self.kind == "mt" and target and wanted not in (None, target):
                raise ValueError(
                    f"{name} {wanted}: {self.folder} was prepared for translation to {target}; prepare it with "
                    f"--target-lang {wanted}"
                )

    def splits(self) -> List[str]:
        """The names of its parts: train, valid, test."""
        return sorted({path.name.partition(".")[0] for path in self.binarised.glob("*.idx")})

    def __reduce__(self):  # another process takes the fingerprint anew
        return Corpus, (self.folder, self.binarised, self.kind)

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @functools.cached_property
    def fingerprint(self) -> str:
        """Of all that is binarised: 12 hexadecimal digits of a SHA-256."""
        return digest(path for path in self.binarised.iterdir() if path.suffix in (".idx", ".bin", ".txt"))

    def words(self) -> str:
        """The same of the dictionaries alone."""
        return digest(self.binarised.glob("dict*.txt"))


def digest(files: Iterable[Path]) -> str:
    """Of the names and contents of files in a folder.

    Raises:
        ValueError: one can't be read.
    """
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode())
        try:
            digest.update(path.read_bytes())
        except OSError as error:
            raise ValueError(f"{path} can't be read ({error.strerror}); make the data-bin again") from None
    return digest.hexdigest()[:12]
