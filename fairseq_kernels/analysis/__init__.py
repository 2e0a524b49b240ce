"""Analyses of trained models and their logs: tables, curves, figures."""

from ..errors import explain_interruptions

explain_interruptions()
