"""Study record: a study as the database holds it, with how many of its trials ended how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from launch.case_facts import CaseFacts

_NOT_FAILED = ("ok", "slower", "no_time")
"""Outcomes, as `planner.trials.result.Outcome.has_failed` knows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCount:
    """How often trials of a study failed for one reason."""

    outcome: str
    reason: str | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecord:
    """A study as stored, without its trials."""

    id: int
    created_at: datetime
    generation: int
    """From 1; a search that begins afresh makes a later one."""

    use_case: str
    node: str
    fingerprint: str
    precision: str
    software: Mapping[str, str]

    facts: CaseFacts | None = None
    """What is trained; ``None`` in studies of the first releases."""

    finished_trials: int = 0
    """Its first trials, which belong to searches that ended."""

    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Trials by their outcome."""

    last_trial_at: datetime | None = None

    @property
    def num_trials(self) -> int:
        return sum(self.outcomes.values())

    @property
    def num_failed(self) -> int:
        """Trials that failed; those that had no time have not."""
        return self.num_trials - sum(self.outcomes.get(one, 0) for one in _NOT_FAILED)

    @property
    def is_open(self) -> bool:
        """Whether it has trials of a search that did not end: it runs, or can go on."""
        return self.num_trials > self.finished_trials
