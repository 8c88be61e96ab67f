"""Live display of a search or a job: what is going on now, and a line for each event."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from launch.reports import (
    DataProgress,
    Described,
    EpochDone,
    Noted,
    Report,
    StepDone,
    Warned,
    Working,
)
from planner.quantities import format_duration, printable
from planner.report.output import Output
from planner.report.plan_line import describe_plan
from planner.trials.reports import TrialEnded, TrialProgress, TrialStarted
from planner.trials.result import Outcome, Role, TrialResult


class LiveDisplay:
    """Shows reports on standard error, as a `Listener`. Use it in a ``with`` block.

    Warnings, notes and finished trials are a line each. On a terminal a bar, or the running trial
    with the best plan and the time left, stands below them.

    Args:
        out: Where the command writes.
        hosts: Names of all hosts, for the width of their column; none for this machine alone.
        epochs: Of the training, if there is one.
    """

    def __init__(self, out: Output, hosts: tuple[str, ...] = (), *, epochs: int = 1) -> None:
        self._out = out
        self._width = max(map(len, hosts), default=0)
        self._epochs = epochs
        self._samples_in_epoch = self._samples = 0
        self._doing = ""
        self._trial: _RunningTrial | None = None
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[figures]}", markup=False),
            console=out.errors,
        )
        self._task = self._bar.add_task("", total=None, figures="", visible=False)
        self._live = Live(
            get_renderable=self._render,
            console=out.errors,
            refresh_per_second=4,
            transient=True,
            # Lines of the answer go around the display, but not into it where stdout is a file.
            redirect_stdout=sys.stdout.isatty(),
        )

    def __enter__(self) -> Self:
        if self._out.errors.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def __call__(self, report: Report, host: str | None = None, /) -> None:
        """Show one report; those that have nothing for a person are left out."""
        match report:
            case Warned(message=message):
                self._out.warn(message if host is None else f"{host}: {message}")
            case Noted(message=message):
                self._out.note(message if host is None else f"{host:{self._width}}  {message}")
            case Working(what=what):
                self._doing = what
                self._show(what)
            case DataProgress(what=what, done=done, total=total):
                where = "" if host is None else f"{self._doing}, {host}: "
                self._show(f"{where}{what}", done, total, f"{done}/{total}")
            case TrialStarted():
                self._trial = self._trial or _RunningTrial()
                self._trial.start(report)
            case TrialProgress() if self._trial is not None:
                self._trial.progress = report
            case TrialEnded():
                self._end_trial(report, host)
            case Described(facts=facts):
                self._samples, self._samples_in_epoch = 0, facts.train_samples
                self._show("starting the workers", 0, self._samples_in_epoch)
            case StepDone():
                self._step(report)
            case EpochDone():
                self._samples = 0

    def _render(self) -> RenderableType:
        return self._bar if self._trial is None else self._trial.render()

    def _show(self, what: str, done: int = 0, total: int | None = None, figures: str = "") -> None:
        self._bar.update(
            self._task,
            description=printable(what),
            completed=done,
            total=total,
            figures=figures,
            visible=True,
        )

    def _step(self, step: StepDone) -> None:
        self._samples += step.samples
        figures = f"loss {step.loss:.3f}  {step.samples / step.time_s:.1f}/s"
        what = f"epoch {step.epoch + 1}/{self._epochs}"
        if self._samples >= self._samples_in_epoch:
            what = f"validating {what}"
        self._show(what, self._samples, self._samples_in_epoch, figures)

    def _end_trial(self, ended: TrialEnded, host: str | None) -> None:
        result, number, is_best = ended.result, ended.number, ended.is_best
        shown, plan = _describe_result(result), describe_plan(result.plan)
        word = "  best look" if result.role is Role.LOOK else "  best"
        if host is None:
            line = Text(f"{number:3}  {shown:>12}  {plan}", no_wrap=True)
        else:
            head = f"{host:{self._width}} {number:3}  {shown:>12}"
            line = Text(f"{head}  {result.role}  {plan}", no_wrap=True)
            self._show(self._doing)
        if result.outcome is not Outcome.OK:
            line.stylize("dim")
            if not result.outcome.has_times:
                line.append("  " + printable(result.reason or ""), style="red")
        if is_best:
            line.stylize("bold green")
            line.append(word if number > 0 else "")
        if is_best and self._trial is not None:
            self._trial.best = f"{shown}  {plan}"
        errors = self._out.errors
        errors.print(line, overflow="ellipsis" if errors.is_terminal else "ignore")


class _RunningTrial:
    """The lines that change during a search: the running trial, the best plan, the time left."""

    def __init__(self) -> None:
        self.best: str | None = None
        self.progress: TrialProgress | None = None
        self._what = ""
        self._end = 0.0

    def start(self, started: TrialStarted) -> None:
        self._what = f"{started.role}: {describe_plan(started.plan)}"
        self._end = time.monotonic() + started.left_s
        self.progress = None

    def render(self) -> RenderableType:
        left = format_duration(max(0.0, self._end - time.monotonic()))
        step = "step 0"
        if (progress := self.progress) is not None:
            step = f"step {progress.steps}  {progress.throughput_samples_per_s:.1f}/s"
        rows = [f"now   {self._what}", f"      {step}"]
        if self.best is not None:
            rows.append(f"best  {self.best}")
        rows.append(f"left  {left}   (Ctrl-C keeps what is known)")
        return Group(*(Text(row, no_wrap=True, overflow="ellipsis") for row in rows))


def _describe_result(result: TrialResult) -> str:
    """Describe the result of a trial in a word or two."""
    throughput = result.throughput_samples_per_s()
    if throughput is None:
        return str(result.outcome).replace("_", " ")
    return f"{throughput.median:.1f}/s"
