"""Imports fairseq without scikit-learn and scipy.stats, a third of the time: two of its other tasks take functions from
them. Who imports these afterwards gets the real ones; where fairseq is imported already, nothing changes."""

import sys
from types import ModuleType

UNUSED = [name for name in ("sklearn", "sklearn.metrics", "scipy.stats") if name not in sys.modules]

for name in UNUSED:
    empty = sys.modules[name] = ModuleType(name)
    empty.__getattr__ = lambda function: None  # type: ignore[method-assign]
try:
    import fairseq.tasks  # noqa: F401
finally:
    for name in UNUSED:
        del sys.modules[name]
