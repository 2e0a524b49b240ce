"""Replacements of parts of fairseq, a file a subject; :func:`apply` puts all of it into fairseq.

A replacement's docstring says what fairseq does, and after "Lost:" what went wrong for a user; ``issue`` is upstream's,
where one is known. ``python -m fairseq_kernels --patches`` makes docs/patches.md of them.
"""

import functools
import importlib
import pkgutil
from typing import Callable, List, NamedTuple


class Patch(NamedTuple):
    owner: object  # None where the function itself makes the change
    name: str
    function: Callable
    issue: int  # of github.com/facebookresearch/fairseq; 0 where none is known

    def apply(self) -> None:
        if self.owner is None:
            return self.function()
        theirs = getattr(self.owner, self.name)

        @functools.wraps(theirs)
        def ours(*args, **options):
            return self.function(theirs, *args, **options)

        setattr(self.owner, self.name, ours)


PATCHES: List[Patch] = []


def replaces(owner, name: str, issue: int = 0):
    """Decorates a function that takes the place of ``owner.name``, which it gets as its first argument; where
    ``owner`` is None, one without arguments that changes ``name``."""

    def register(function):
        PATCHES.append(Patch(owner, name, function, issue))
        return function

    return register


def apply() -> None:
    """Applies every patch."""
    for subject in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{subject.name}")
    for patch in PATCHES:
        patch.apply()
