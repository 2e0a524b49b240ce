"""Registers the package's models and criterions with fairseq. Imported where fairseq is installed."""

from . import criterions, models  # noqa: F401
from .compat import allow_namespaces
from .errors import explain_missing_files

allow_namespaces()
explain_missing_files()
