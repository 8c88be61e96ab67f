"""What does a person see while something runs? Live on a terminal, one line per event elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from launch.plan import Plan
from launch.workers.reports import Described, EpochDone, Report, StepDone
from launch.workers.reports import Progress as DataProgress
from planner.quantities import format_duration
from planner.report.plan_line import describe_plan
from planner.report.units import printable
from planner.result import Outcome, Role, TrialResult
from planner.trial import TrialProgress


class Bar:
    """A progress bar for work that may be over before anyone wants to see one."""

    def __init__(self, console: Console) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[figures]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def wait(self, what: str) -> None:
        """Draw that something is under way whose end is not known."""
        self._task = self._bar.add_task(what, total=None, figures="")

    def show(self, what: str, done: int, total: int, figures: str = "") -> None:
        """Draw the state of a piece of work."""
        if self._task is None:
            self._task = self._bar.add_task(what, total=total, figures=figures)
        self._bar.update(self._task, description=what, completed=done, total=total, figures=figures)


class DataBar(Bar):
    """Shows how the data are made ready."""

    def __call__(self, progress: DataProgress) -> None:
        """Show one report."""
        figures = f"{progress.done}/{progress.total}"
        self.show(progress.what, progress.done, progress.total, figures)


class TuneLines:
    """One line per finished trial; on a terminal also the running trial, the best, the time left.

    Args:
        console: Standard error.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._count = 0
        self._best: str | None = None
        self._current = _Current()
        self._live = Live(
            self._current,
            console=console,
            refresh_per_second=4,
            transient=True,
            auto_refresh=console.is_terminal,
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def trial_started(self, plan: Plan, role: Role, left_s: float) -> None:
        """Show that a plan is being tried."""
        self._current.start(f"{role}: {describe_plan(plan)}", left_s)

    def step(self, progress: TrialProgress) -> None:
        """Show a step."""
        self._current.steps = progress.steps
        self._current.rate = progress.throughput_samples_per_s

    def trial_ended(self, result: TrialResult, *, is_best: bool) -> None:
        """Print what a trial found."""
        self._count += 1
        plan = describe_plan(result.plan)
        line = Text(f"{self._count:3}  {finding(result):>12}  {plan}", no_wrap=True)
        if result.outcome is not Outcome.OK:
            line.stylize("dim")
            if not result.outcome.has_times:
                line.append("  " + printable(result.reason or ""), style="red")
        if is_best:
            line.stylize("bold green")
            line.append("  best" if self._count > 1 else "")
            self._current.best = f"{finding(result)}  {plan}"
        self._console.print(line, overflow="ellipsis" if self._console.is_terminal else "ignore")


class _Current:
    """The lines that change: the running trial, the best plan, the time left."""

    def __init__(self) -> None:
        self.best: str | None = None
        self.steps = 0
        self.rate: float | None = None
        self._what = "starting"
        self._end = 0.0

    def start(self, what: str, left_s: float) -> None:
        self._what = what
        self._end = time.monotonic() + left_s
        self.steps, self.rate = 0, None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left = format_duration(max(0.0, self._end - time.monotonic()))
        rate = f"  {self.rate:.1f}/s" if self.rate else ""
        rows = [f"now   {self._what}", f"      step {self.steps}{rate}"]
        if self.best is not None:
            rows.append(f"best  {self.best}")
        rows.append(f"left  {left}   (Ctrl-C keeps what is known)")
        yield Group(*(Text(row, no_wrap=True, overflow="ellipsis") for row in rows))


class TrainingBar(Bar):
    """Shows how the epochs of a job get on."""

    def __init__(self, console: Console, epochs: int) -> None:
        super().__init__(console)
        self._epochs = epochs
        self._samples_in_epoch = 0
        self._epoch = 0
        self._samples = 0
        self._loss = 0.0

    def __call__(self, report: Report) -> None:
        """Show one report."""
        match report:
            case DataProgress():
                figures = f"{report.done}/{report.total}"
                self.show(report.what, report.done, report.total, figures)
            case Described(facts=facts):
                self._samples_in_epoch = facts["train_samples"]
                self.show("starting the workers", 0, self._samples_in_epoch)
            case StepDone():
                self._step(report)
            case EpochDone():
                self._samples = 0

    def _step(self, step: StepDone) -> None:
        self._samples += step.samples
        rate = step.samples / step.time_s
        figures = f"loss {step.loss:.3f}  {rate:.1f}/s"
        what = f"epoch {step.epoch + 1}/{self._epochs}"
        if self._samples >= self._samples_in_epoch:
            what = f"validating {what}"
        self.show(what, self._samples, self._samples_in_epoch, figures)


def finding(result: TrialResult) -> str:
    """Say in a word or two what a trial showed."""
    throughput = result.throughput_samples_per_s()
    if throughput is None:
        return str(result.outcome).replace("_", " ")
    return f"{throughput.median:.1f}/s"
