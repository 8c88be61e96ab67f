"""Databases: their tables in the present version, and each system that can hold them."""
