"""What is made of trained models and their logs: tables, curves, figures."""
