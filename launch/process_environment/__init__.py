"""Variables that a process starts with, as libraries read them when they are loaded."""
