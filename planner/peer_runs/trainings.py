"""Trainings that take turns: a peer's, and ours on this machine or on several hosts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from launch.mpi.job import MpiJob
from launch.reports import Described, JobFailed, Report, StepDone
from planner.cancellation import Cancellation
from planner.errors import TrainingFailedError
from planner.peer_runs.processes import PeerFailedError, PeerProcesses
from planner.peers._reports import PeerBegun, PeerStepDone
from planner.trials.contender import RunningContender, TrialFailedError

_POLL_S = 0.5
_TAIL = 2000


class PeerTraining:
    """A peer's training.

    Args:
        processes: Just started.
        start_limit_s: Time until its first step may begin.
        step_limit_s: Longest time without a step during a turn.

    Attributes:
        begun: What its script said when it was ready.
        start_s: How long that took.

    Raises:
        PeerFailedError: It did not begin.
    """

    def __init__(
        self, processes: PeerProcesses, *, start_limit_s: float, step_limit_s: float
    ) -> None:
        self._processes = processes
        self._step_limit_s = step_limit_s
        began = time.monotonic()
        report = processes.next_report(start_limit_s)
        if report is None:
            raise PeerFailedError(f"it did not begin to train within {start_limit_s:.0f} s")
        assert isinstance(report, PeerBegun), "a script reports that first"
        self.begun = report
        self.start_s = time.monotonic() - began
        processes.stop()

    def make_steps(self, count: int) -> list[PeerStepDone]:
        """Make whole steps; the one that was interrupted before counts for nothing."""
        self._processes.proceed()
        began = time.monotonic()
        steps: list[PeerStepDone] = []
        while len(steps) < count:
            report = self._processes.next_report(self._step_limit_s)
            if report is None:
                raise PeerFailedError(f"it hangs: no step within {self._step_limit_s:.0f} s")
            steps += _whole(report, time.monotonic() - began)
        for report in self._processes.stop():
            steps += _whole(report, time.monotonic() - began)
        return steps


class OwnTraining:
    """Our plan on this machine, as a search times it.

    Args:
        contender: Its workers, just started.
        began_s: Time of the monotonic clock before that.
        step_limit_s: Longest time of a step.
        is_generated: Whether the use case made up the data that it trains on.

    Attributes:
        start_s: Time until the first step was done.

    Raises:
        TrainingFailedError: That one failed.
    """

    def __init__(
        self,
        contender: RunningContender,
        *,
        began_s: float,
        step_limit_s: float,
        is_generated: bool,
    ) -> None:
        self._contender = contender
        self._step_limit_s = step_limit_s
        self.is_generated = is_generated
        self.make_steps(1)
        self.start_s = time.monotonic() - began_s

    def make_steps(self, count: int) -> list[PeerStepDone]:
        """Make so many steps.

        Raises:
            TrainingFailedError: They failed.
        """
        try:
            steps = self._contender.make_steps(count, time_limit_s=count * self._step_limit_s)
        except TrialFailedError as error:
            raise TrainingFailedError(
                f"our own plan: {error.reason}", log_tail=error.log_tail or ""
            ) from error
        return [_own_step(step) for step in steps]


class OwnTrainingOnHosts:
    """Our job on several hosts, whose workers are stopped between its turns.

    Args:
        job: Just started.
        workers: Their supervisors.
        cancellation: Ends the waiting.
        start_limit_s: Time until its first step is done.
        step_limit_s: Longest time without a step during a turn.

    Attributes:
        start_s: Time until the first step was done.
        is_generated: Whether the use case made up the data that it trains on.

    Raises:
        TrainingFailedError: It did not begin.
    """

    def __init__(
        self,
        job: MpiJob,
        workers: PeerProcesses,
        cancellation: Cancellation,
        *,
        start_limit_s: float,
        step_limit_s: float,
    ) -> None:
        self._job = job
        self._workers = workers
        self._cancellation = cancellation
        self._step_limit_s = step_limit_s
        self.is_generated = False
        began = time.monotonic()
        self._next_step(start_limit_s)
        self.start_s = time.monotonic() - began
        self._order(workers.stop)

    def make_steps(self, count: int) -> list[PeerStepDone]:
        """Make whole steps, as `PeerTraining.make_steps` does.

        Raises:
            TrainingFailedError: They failed.
        """
        self._order(self._workers.proceed)
        began = time.monotonic()
        steps: list[PeerStepDone] = []
        while len(steps) < count:
            step = _own_step(self._next_step(self._step_limit_s))
            steps += _whole(step, time.monotonic() - began)
        self._order(self._workers.stop)
        return steps

    def read(self) -> None:
        """Read what the ranks report while the workers stand still: a full pipe would block them.

        Raises:
            TrainingFailedError: The job has failed.
        """
        while (report := self._job.next_report(0.0)) is not None:
            self._check(report)

    def _order(self, give: Callable[[], object]) -> None:
        try:
            give()
        except PeerFailedError as error:
            raise TrainingFailedError(f"our own job: {error}") from error

    def _check(self, report: Report | None) -> None:
        if isinstance(report, JobFailed):
            raise TrainingFailedError(
                f"our own job: {report.node}: {report.message}", log_tail=report.log_tail
            )
        if self._job.is_over:
            said = self._job.read_errors()[-_TAIL:]
            raise TrainingFailedError("our own job ended by itself", log_tail=said)

    def _next_step(self, limit_s: float) -> StepDone:
        give_up = time.monotonic() + limit_s
        while time.monotonic() < give_up:
            self._cancellation.check()
            report = self._job.next_report(_POLL_S)
            if isinstance(report, StepDone):
                return report
            if isinstance(report, Described):
                self.is_generated |= report.facts.is_generated
            self._check(report)
        raise TrainingFailedError(f"our own job hangs: no step within {limit_s:.0f} s")


def _own_step(step: StepDone) -> PeerStepDone:
    if not math.isfinite(step.loss):
        raise TrainingFailedError(f"our own training: its loss is {step.loss}")
    return PeerStepDone(
        time_s=step.time_s, samples=step.samples, loss=step.loss, loading_s=step.input_s
    )


def _whole(report: Report, since_s: float) -> list[PeerStepDone]:
    """Give a step if all of it was in a turn that has lasted so long."""
    if not isinstance(report, PeerStepDone):
        return []
    if not math.isfinite(report.loss):
        raise PeerFailedError(f"its loss is {report.loss}")
    return [report] if report.time_s < since_s else []
