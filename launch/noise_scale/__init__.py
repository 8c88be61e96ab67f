"""Gradient noise scale: measured in steps that are made anyway, and what it says of batches."""
