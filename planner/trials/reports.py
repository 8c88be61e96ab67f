"""Reports of a search, and who receives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from launch.plan import Plan
from launch.reports import Report
from planner.records.progress import ContenderStanding
from planner.trials.result import Role, TrialResult


class Listener(Protocol):
    """Receives the reports of a search or a job, in the thread that runs it. It must be quick."""

    def __call__(self, report: Report, host: str | None = None, /) -> None:
        """Receive one report.

        Args:
            report: Progress, a warning, a trial, a step, ...: see `launch.reports`.
            host: The host that it is from; ``None`` for this machine, or for the job as a whole.
        """


def ignore(_report: Report, _host: str | None = None, /) -> None:
    """Ignore a report: the `Listener` of those who want none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOpened(Report):
    """The search has found its study, or begun one."""

    study_id: int
    is_generated: bool = False
    """Whether the use case made its samples up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnded(Report):
    """A round of a race is over."""

    left_s: float
    """Rest of the budget."""

    standings: tuple[ContenderStanding, ...]
    """Of those that still take turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted(Report):
    """A plan is being tried."""

    plan: Plan
    role: Role
    left_s: float
    """Rest of the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialProgress(Report):
    """A plan has made steps: of its warm-up, or a turn."""

    steps: int
    """So far."""

    elapsed_s: float
    throughput_samples_per_s: float
    """As far as it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded(Report):
    """One more trial."""

    result: TrialResult
    """As it is stored."""

    number: int
    """Position in its study, from 0, as `StoredTrial` has it."""

    is_best: bool = False
    """Whether its plan is the fastest so far, with the drift between turns taken out; of a look:
    the fastest of the looks."""
