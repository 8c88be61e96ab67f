"""Live display of a search or a job: what is going on now, and a line for each event."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
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
from planner.trials.reports import (
    RoundEnded,
    StudyOpened,
    TrialEnded,
    TrialProgress,
    TrialStarted,
)
from planner.trials.result import Outcome, Role, TrialResult

_LOG_EVERY_S = 60.0
"""Between lines that say how far the work is, where no terminal shows it."""


class LiveDisplay:
    """Shows reports on standard error, as a `Listener`. Use it in a ``with`` block.

    Warnings, notes and finished trials are a line each. On a terminal a bar, or the running trial
    with the best plan and the time left, stands below them. Elsewhere a line a minute says it.

    Args:
        out: Where the command writes.
        hosts: Names of all hosts, for the width of their column; none for this machine alone.
        epochs: Of the training, if there is one.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        out: Output,
        hosts: tuple[str, ...] = (),
        *,
        epochs: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._clock = clock
        self._logged_s: float | None = None
        """When the last line said how far the work is; ``None`` where none shall."""
        self._log_line = ""
        self._unlogged_samples, self._unlogged_s = 0, 0.0
        """Of steps since that line."""
        self._width = max(map(len, hosts), default=0)
        self._epochs = epochs
        self._samples_in_epoch = self._samples = 0
        self._doing = ""
        self._trial: _RunningTrial | None = None
        self._first_with: dict[str, int] = {}
        """Numbers of the trials of this search that failed first for a reason."""
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
        else:
            self._logged_s = self._clock()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, report: Report, host: str | None = None, /) -> None:
        """Show one report; those that have nothing for a person are left out."""
        match report:
            case Warned(message=message):
                self._out.warn(message if host is None else f"{host}: {message}")
            case Noted(message=message):
                self._out.note(message if host is None else f"{host:{self._width}}  {message}")
            case Working(what=what):
                self._doing, self._trial = what, None
                self._show(what)
            case DataProgress(what=what, done=done, total=total):
                where = "" if host is None else f"{self._doing}, {host}: "
                self._show(f"{where}{what}", done, total, f"{done}/{total}")
            case StudyOpened():
                self._first_with.clear()
            case TrialStarted():
                self._trial = self._trial or _RunningTrial(self._clock)
                self._trial.start(report)
            case TrialProgress() if self._trial is not None:
                self._trial.progress = report
            case RoundEnded() if self._trial is not None:
                self._trial.end_round(report)
            case TrialEnded():
                self._end_trial(report, host)
            case Described(facts=facts):
                self._samples, self._samples_in_epoch = 0, facts.train_samples
                self._show("starting the workers", 0, self._samples_in_epoch)
            case StepDone():
                self._step(report)
            case EpochDone():
                self._samples, self._log_line = 0, ""
        self._log()

    def _log(self) -> None:
        """Say how far the work is, where that is due."""
        if self._logged_s is None or self._clock() - self._logged_s < _LOG_EVERY_S:
            return
        if line := self._log_line if self._trial is None else self._trial.describe():
            self._out.note(line)
            self._logged_s = self._clock()
            self._unlogged_samples, self._unlogged_s = 0, 0.0

    def _render(self) -> RenderableType:
        trial = self._trial  # another thread draws
        return self._bar if trial is None else trial.render()

    def _show(self, what: str, done: int = 0, total: int | None = None, figures: str = "") -> None:
        self._log_line = f"{what}: {figures}" if figures else what
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
        self._unlogged_samples += step.samples
        self._unlogged_s += step.time_s
        loss, rate = f"loss {step.loss:.3f}", self._unlogged_samples / self._unlogged_s
        of_all = f"{self._samples:,} of {self._samples_in_epoch:,} samples"
        what = f"epoch {step.epoch + 1}/{self._epochs}"
        line = f"{what}: {of_all}, {loss}, {rate:.1f} samples/s"
        if self._samples >= self._samples_in_epoch:
            line = what = f"validating {what}"
        figures = f"{loss}  {step.samples / step.time_s:.1f}/s"
        self._show(what, self._samples, self._samples_in_epoch, figures)
        self._log_line = line

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
                line.append("  " + self._shorten(ended, host), style="red")
        if is_best:
            line.stylize("bold green")
            line.append(word if number > 0 else "")
        if result.is_disturbed:
            line.append("  disturbed", style="yellow")
        if is_best and self._trial is not None:
            self._trial.best = f"{shown}  {plan}"
        errors = self._out.errors
        errors.print(line, overflow="ellipsis" if errors.is_terminal else "ignore")

    def _shorten(self, ended: TrialEnded, host: str | None) -> str:
        """Give the reason of a failure; of one that was shown, the first trial that had it."""
        key = f"{host}: {ended.result.reason_of_any_worker}"
        first = self._first_with.setdefault(key, ended.number)
        if first != ended.number:
            return f"the same as trial {first}"
        return printable(ended.result.reason or "")


class _RunningTrial:
    """The lines that change during a search: the running trial, the best plan, the time left."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.best: str | None = None
        self.progress: TrialProgress | None = None
        self._clock = clock
        self._what = ""
        self._racing = 0
        self._leading_rate: float | None = None
        self._end = 0.0

    def start(self, started: TrialStarted) -> None:
        self._what = f"{started.role}: {describe_plan(started.plan)}"
        self._end = self._clock() + started.left_s
        self.progress, self._racing = None, 0

    def end_round(self, ended: RoundEnded) -> None:
        """Note who races, and how fast the first of them is: it is no ended trial yet."""
        self._end = self._clock() + ended.left_s
        self._racing = len(ended.standings)
        rates = [one.throughput_samples_per_s for one in ended.standings if one.is_leading]
        self._leading_rate = rates[0] if rates else self._leading_rate

    def describe(self) -> str:
        doing = f"racing {self._racing} plans" if self._racing > 1 else self._what
        rate = self._leading_rate
        best = self.best if rate is None else f"{rate:.1f} samples/s"
        return ", ".join(filter(None, [doing, best and f"best {best}", f"{self._left()} left"]))

    def _left(self) -> str:
        return format_duration(max(0.0, self._end - self._clock()))

    def render(self) -> RenderableType:
        step = "step 0"
        if (progress := self.progress) is not None:
            step = f"step {progress.steps}  {progress.throughput_samples_per_s:.1f}/s"
        rows = [f"now   {self._what}", f"      {step}"]
        if self.best is not None:
            rows.append(f"best  {self.best}")
        rows.append(f"left  {self._left()}   (Ctrl-C keeps what is known)")
        return Group(*(Text(row, no_wrap=True, overflow="ellipsis") for row in rows))


def _describe_result(result: TrialResult) -> str:
    """Describe the result of a trial in a word or two."""
    rate = result.reported_samples_per_s()
    return result.outcome.words if rate is None else f"{rate:.1f}/s"
