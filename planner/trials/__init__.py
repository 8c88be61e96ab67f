"""Trials: one plan run for a short time in processes of its own, and what that showed."""
