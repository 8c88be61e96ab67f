"""Packages of this Python: the command that installs one, and releases that must not be used."""
