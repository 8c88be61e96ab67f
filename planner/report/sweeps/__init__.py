"""Sweeps as tables, CSV and JSON."""
