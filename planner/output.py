"""How does an answer reach the user? Text or one JSON document on stdout, the rest on stderr."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console

from planner.report.documents import envelope, error_envelope


class Output:
    """Where one command writes.

    Args:
        command: Its name, such as ``plans best``.
        as_json: Whether stdout gets one JSON document in place of text.
    """

    def __init__(self, command: str, *, as_json: bool) -> None:
        self.command = command
        self.as_json = as_json
        self.console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
        self.errors = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())
        self._warnings: list[str] = []

    def warn(self, message: str) -> None:
        """Say something that does not stop the command; once."""
        if message in self._warnings:
            return
        self._warnings.append(message)
        self.errors.print("[yellow]warning:[/yellow] ", end="")
        self.errors.print(message, markup=False)

    def say(self, text: str) -> None:
        """Write a line of the answer, unless the answer is JSON."""
        if not self.as_json:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def note(self, text: str) -> None:
        """Write a line about the work, which is no part of the answer."""
        self.errors.print(text, markup=False)

    def finish(self, data: Any) -> None:
        """Write the answer as JSON, if that was asked for."""
        if self.as_json:
            sys.stdout.write(envelope(self.command, data, self._warnings))

    def fail(self, code: int, kind: str, message: str) -> None:
        """Write why there is no answer."""
        if self.as_json:
            sys.stdout.write(error_envelope(self.command, code, kind, message, self._warnings))
        self.errors.print("[red]error:[/red] ", end="")
        self.errors.print(message, markup=False)
