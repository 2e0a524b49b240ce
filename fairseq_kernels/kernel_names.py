"""The kernels' names, and how a mixture of them is written: "3xlin,log". Loads neither torch nor fairseq.

``python -m fairseq_kernels.kernel_names ARGUMENTS`` checks a command line in no time, before torch is loaded.
"""

import re
import sys
from typing import Collection, List, Sequence, Union

from .errors import one_line_errors, similar

NAMES = ("lin", "log", "pow", "pol", "rbf", "ssg", "mog", "hpb", "wav", "sig", "abs")
MOST = 1000  # components of a mixture


def parse_kernels(spec: Union[str, Sequence[str]], known: Collection[str] = NAMES) -> List[str]:
    """Names of a mixture's components: "3xlin,log" gives ["lin", "lin", "lin", "log"].

    Raises:
        ValueError: an unknown kernel, or not of the form ``[Nx]NAME,[Nx]NAME,...``.
    """
    if not isinstance(spec, (str, list, tuple)):
        raise ValueError(f"kernels={spec!r} is not allowed: give a string as 'lin' or '3xlin,log', or a list of names")
    parts = spec.split(",") if isinstance(spec, str) else spec
    names: List[str] = []
    for part in parts:
        match = re.fullmatch(r"\s*(?:(\d+)\s*[x*]\s*)?([A-Za-z_]\w*)\s*", str(part))
        if not match:
            raise ValueError(f"kernels={spec!r}: {str(part)!r} is not [Nx]NAME; write for instance lin, or 3xlin,log")
        count, name = int(match[1] or 1), match[2]
        check_name(name, known)
        if not 1 <= count <= MOST - len(names):
            raise ValueError(f"kernels={spec!r}: {str(part)!r} asks for {count} components; give 1 to {MOST} in all")
        names += [name] * count
    if not names:
        raise ValueError("kernels is empty; write for instance lin, or 3xlin,log")
    return names


def check_name(name: str, known: Collection[str]) -> None:
    """
    Raises:
        ValueError: there is no such kernel.
    """
    if name not in known:
        raise ValueError(f"unknown kernel {name!r}{similar(name, known) or ';'} choose from {', '.join(known)}")


def main() -> None:
    words = [part for word in sys.argv[1:] for part in (word.split("=", 1) if word.startswith("--kernel") else [word])]
    with one_line_errors():
        for option, value in zip(words, words[1:]):
            if option in ("--kernels", "--kernel"):
                parse_kernels(value)


if __name__ == "__main__":
    main()
