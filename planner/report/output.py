"""Output of a command: text or one JSON document on stdout, all else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from signal import SIGINT, Signals
from typing import TYPE_CHECKING, Any, TextIO

from planner.errors import NoDatabaseError, OutputError
from planner.quantities import printable

if TYPE_CHECKING:
    from rich.console import Console

    from planner.report.table import Column, Row, Terminal, WithCommand

SCHEMA_VERSION = 1

_NAME_WIDTH = 11
"""Characters before the value of a fact: the longest name is ``checkpoint``."""


class Output:
    """Where one command writes.

    Args:
        command: Its name, such as ``plans best``.
        as_json: Whether stdout gets one JSON document in place of text.
        as_csv: Whether it gets CSV in place of a table.
    """

    def __init__(self, command: str, *, as_json: bool, as_csv: bool = False) -> None:
        self.command = command
        self.as_json = as_json
        self.as_csv = as_csv
        self.is_finished = False
        """Whether stdout has the whole answer, or why there is none."""
        self._warnings: list[str] = []
        self._partial_data: Any = None

    @cached_property
    def errors(self) -> Console:
        """Console for stderr."""
        from rich.console import Console  # not at the start of commands that never need it

        soft_wrap = not sys.stderr.isatty()
        # Without emoji: path/to/file.py:fire:... means no flame.
        return Console(stderr=True, highlight=False, emoji=False, soft_wrap=soft_wrap)

    def warn(self, message: str) -> None:
        """Say something that does not stop the command; once."""
        if message in self._warnings:
            return
        self._warnings.append(message)
        self._print_headed("warning:", "yellow", message)

    @contextmanager
    def missing_as_empty(self) -> Iterator[None]:
        """Let a database that is missing count as an empty one, but say so: it may be mistyped."""
        try:
            yield
        except NoDatabaseError as error:
            self.warn(str(error))

    def write_line(self, text: str | WithCommand) -> None:
        """Write a line of the answer, unless the answer is JSON."""
        if not self.as_json:
            from planner.report.table import render_line  # as for tables

            self.write_text(lambda terminal: render_line(text, terminal))

    def write_fact(self, name: str, value: str | WithCommand) -> None:
        """Write a name with its value as a part of the answer, unless the answer is JSON."""
        self.write_facts([(name, value)], name_width=_NAME_WIDTH)

    def write_facts(
        self, facts: Sequence[tuple[str, str | WithCommand]], *, name_width: int | None = None
    ) -> None:
        """Write several, the names as wide as the longest needs, or as wide as is asked for."""
        if not self.as_json:
            from planner.report.table import render_facts  # as for tables

            self.write_text(lambda terminal: render_facts(facts, terminal, name_width=name_width))

    def write_text(self, draw: Callable[[Terminal], str]) -> None:
        """Write what is drawn for the terminal as a part of the answer, unless that is JSON."""
        if not self.as_json:
            from planner.report.table import detect_terminal  # as for tables

            sys.stdout.write(draw(detect_terminal(sys.stdout, os.environ)))
            sys.stdout.flush()

    def write_text_or_csv(
        self, draw: Callable[[Terminal], str], make_csv: Callable[[], str]
    ) -> None:
        """Write what is drawn for the terminal, or CSV where that was asked for."""
        if self.as_csv:
            sys.stdout.write(make_csv())
        else:
            self.write_text(draw)

    def note(self, text: str) -> None:
        """Write lines about the work, which are no part of the answer."""
        self.errors.print("\n".join(map(printable, text.splitlines())), markup=False)

    def write_table(self, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        """Write a table as a part of the answer, unless the answer is JSON."""
        if not self.as_json:
            _write_table(sys.stdout, rows, columns)

    def note_table(self, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        """Write a table about the work, which is no part of the answer."""
        _write_table(sys.stderr, rows, columns)

    def set_partial_data(self, data: Any) -> None:
        """Give what is known by now: the JSON of a command that fails has it beside the error."""
        self._partial_data = data

    def finish(self, data: Any) -> None:
        """Write the answer as JSON, if that was asked for."""
        if self.as_json:
            self._write_document({"data": data})
        self.is_finished = True

    def fail(self, code: int, kind: str, message: str) -> None:
        """Write why there is no answer."""
        self._finish_without(code, kind, message)
        self._print_headed("error:", "red", message)

    def report_signal(self, number: int) -> None:
        """Write that a signal has ended the command before there was an answer."""
        message = "interrupted" if number == SIGINT else f"ended by {Signals(number).name}"
        self._finish_without(128 + number, "signal", message)
        self.note(message)

    def _finish_without(self, code: int, kind: str, message: str) -> None:
        if self.as_json and not self.is_finished:
            known = {} if self._partial_data is None else {"data": self._partial_data}
            error = {"code": code, "kind": kind, "message": message}
            with suppress(OutputError):  # on stderr is all that a person needs
                self._write_document({**known, "error": error})
        self.is_finished = True

    def _write_document(self, content: Mapping[str, object]) -> None:
        head = document_head(self.command, self._warnings)
        # NaN and infinity are no JSON; what holds one is a bug, better seen here than by a script.
        sys.stdout.write(json.dumps({**head, **content}, indent=2, allow_nan=False) + "\n")

    def _print_headed(self, head: str, style: str, message: str) -> None:
        # As one text: a terminal breaks its lines where both together reach the edge.
        from rich.text import Text

        self.errors.print(Text.assemble((head, style), " ", printable(message)))


def _write_table(stream: TextIO, rows: Sequence[Row], columns: Sequence[Column]) -> None:
    from planner.report.table import detect_terminal, render_table  # for tables alone

    if rows:
        stream.write(render_table(rows, columns, detect_terminal(stream, os.environ)))
        stream.flush()


def document_head(command: str, warnings: Sequence[str]) -> dict[str, object]:
    """Give what every JSON document begins with."""
    return {"schema_version": SCHEMA_VERSION, "command": command, "warnings": list(warnings)}


_current: list[Output] = []
"""Where the running command writes: what ends it must know what was written already."""


def start_output(command: str, *, as_json: bool, as_csv: bool = False) -> Output:
    """Say where the command of this process writes from here on."""
    _current[:] = [Output(command, as_json=as_json, as_csv=as_csv)]
    return _current[0]


def current_output() -> Output:
    """Give what `start_output` gave last."""
    return _current[0]


def environment_variable(option: str) -> str:
    """Name the environment variable in whose place an option stands: ``DDLPLAN_<OPTION>``."""
    return "DDLPLAN_" + option.removeprefix("--").replace("-", "_").upper()
