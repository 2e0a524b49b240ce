"""The papers' tables: what their rows are, training and evaluating them, searching hyper-parameters, the report."""

from ..errors import explain_interruptions

explain_interruptions()
