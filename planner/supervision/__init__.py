"""Supervision: commands that run without a terminal, one after another, to an end that is known."""
