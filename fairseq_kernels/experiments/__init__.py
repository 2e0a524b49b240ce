"""The papers' tables: what their rows are, training and evaluating them, searching hyper-parameters, the report."""
