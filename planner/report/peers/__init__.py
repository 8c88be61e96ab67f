"""Comparison with peers, as text, CSV and a page."""
