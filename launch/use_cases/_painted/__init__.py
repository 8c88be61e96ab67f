"""Painted photos of fire, of smoke and of neither, for those who have no photos."""
