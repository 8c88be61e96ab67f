"""What does a person see while several nodes work? A line per finished trial, with its host."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from types import TracebackType
from typing import Self

from rich.status import Status
from rich.text import Text

from launch.workers.reports import Progress
from planner.output import Output
from planner.report.live import finding
from planner.report.plan_line import describe_plan
from planner.report.units import printable
from planner.result import Outcome, TrialResult


class TogetherLines:
    """One line per event, with the host before it; on a terminal also what is going on.

    Use it in a ``with`` block.

    Args:
        out: Where the command writes.
        hosts: All of them, for the width of their names.
        doing: What is going on.
    """

    def __init__(self, out: Output, hosts: list[str], doing: str) -> None:
        self._out = out
        self._width = max(map(len, hosts))
        self._counts: Counter[str] = Counter()
        self._doing = doing
        is_terminal = out.errors.is_terminal
        self._status: Status | None = out.errors.status(doing) if is_terminal else None

    def __enter__(self) -> Self:
        (self._status or nullcontext()).__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def progress(self, host: str, progress: Progress) -> None:
        """Show how far a node's data are."""
        if self._status is not None:
            done = f"{progress.what} {progress.done}/{progress.total}"
            self._status.update(f"{self._doing} ({printable(host)}: {printable(done)})")

    def note(self, host: str, message: str) -> None:
        """Show a line about a node's work."""
        self._out.note(f"{host:{self._width}}  {message}")

    def warn(self, host: str, message: str) -> None:
        """Warn of something on a node."""
        self._out.warn(f"{host}: {message}")

    def trial_ended(self, host: str, result: TrialResult, *, is_best: bool) -> None:
        """Show what a trial found."""
        if self._status is not None:
            self._status.update(self._doing)
        self._counts[host] += 1
        head = f"{host:{self._width}} {self._counts[host]:3}  {finding(result):>12}"
        line = Text(f"{head}  {result.role}  {describe_plan(result.plan)}", no_wrap=True)
        if result.outcome is not Outcome.OK:
            line.stylize("dim")
            if not result.outcome.has_times:
                line.append("  " + printable(result.reason or ""), style="red")
        if is_best:
            line.stylize("bold green")
            line.append("  best" if self._counts[host] > 1 else "")
        errors = self._out.errors
        errors.print(line, overflow="ellipsis" if errors.is_terminal else "ignore")
