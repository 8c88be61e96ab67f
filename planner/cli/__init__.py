"""The command line: what can be typed, and what it means. Typer is used in this folder alone."""
