"""Precisions of a training step, and the check whether bf16 is good enough here."""
