"""How does an answer reach the user? Text or one JSON document on stdout, the rest on stderr."""

from __future__ import annotations

import sys
from signal import SIGINT, Signals
from typing import Any

from rich.console import Console

from planner.report.documents import envelope, error_envelope
from planner.report.units import printable


class Output:
    """Where one command writes.

    Args:
        command: Its name, such as ``plans best``.
        as_json: Whether stdout gets one JSON document in place of text.
    """

    def __init__(self, command: str, *, as_json: bool) -> None:
        self.command = command
        self.as_json = as_json
        self.is_finished = False
        """Whether stdout has the whole answer, or why there is none."""
        soft_wrap = not sys.stderr.isatty()
        # Without emoji: path/to/file.py:fire:... means no flame.
        self.errors = Console(stderr=True, highlight=False, emoji=False, soft_wrap=soft_wrap)
        self._warnings: list[str] = []
        self._kept: Any = None

    def warn(self, message: str) -> None:
        """Say something that does not stop the command; once."""
        if message in self._warnings:
            return
        self._warnings.append(message)
        self._print_headed("[yellow]warning:[/yellow]", message)

    def say(self, text: str) -> None:
        """Write a line of the answer, unless the answer is JSON."""
        if not self.as_json:
            sys.stdout.write(printable(text) + "\n")
            sys.stdout.flush()

    def note(self, text: str) -> None:
        """Write lines about the work, which are no part of the answer."""
        self.errors.print("\n".join(map(printable, text.splitlines())), markup=False)

    def keep(self, data: Any) -> None:
        """Give what is known by now: the JSON of a command that fails has it beside the error."""
        self._kept = data

    def finish(self, data: Any) -> None:
        """Write the answer as JSON, if that was asked for."""
        if self.as_json:
            sys.stdout.write(envelope(self.command, data, self._warnings))
        self.is_finished = True

    def fail(self, code: int, kind: str, message: str) -> None:
        """Write why there is no answer."""
        self._finish_without(code, kind, message)
        self._print_headed("[red]error:[/red]", message)

    def stopped(self, number: int) -> None:
        """Write that a signal has ended the command before there was an answer."""
        message = "interrupted" if number == SIGINT else f"ended by {Signals(number).name}"
        self._finish_without(128 + number, "signal", message)
        self.note(message)

    def _finish_without(self, code: int, kind: str, message: str) -> None:
        if self.as_json and not self.is_finished:
            warnings, known = self._warnings, self._kept
            sys.stdout.write(
                error_envelope(self.command, code, kind, message, warnings, data=known)
            )
        self.is_finished = True

    def _print_headed(self, head: str, message: str) -> None:
        self.errors.print(head, end=" ")
        self.errors.print(printable(message), markup=False)


_current: list[Output] = []
"""Where the running command writes: what ends it must know what was written already."""


def start_output(command: str, *, as_json: bool) -> Output:
    """Say where the command of this process writes from here on."""
    _current[:] = [Output(command, as_json=as_json)]
    return _current[0]


def current_output() -> Output:
    """Give what `start_output` gave last."""
    return _current[0]


def variable_of(option: str) -> str:
    """Name the environment variable in whose place an option stands: ``DDLPLAN_<OPTION>``."""
    return "DDLPLAN_" + option.removeprefix("--").replace("-", "_").upper()
