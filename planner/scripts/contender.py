"""Script contender: a script under a plan that makes steps when it has its turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from launch.errors import (
    InvalidPlanError,
    ScriptEndedError,
    ScriptError,
    ScriptFailedError,
    ScriptRefusedError,
)
from launch.plan import Plan
from launch.reports import StepDone
from launch.scripts.environment import patches_of
from launch.scripts.program import BATCH
from launch.scripts.rank_steps import StepSeen
from launch.scripts.recognition import MOST_SMALL_STEPS, check_losses
from launch.scripts.running_script import RunningScript
from launch.scripts.whole_run import WholeRun
from planner.quantities import format_count
from planner.trials.contender import TrialFailedError
from planner.trials.result import Outcome
from probes.disturbance import Disturbance, DisturbanceWatch
from probes.hardware import Hardware
from probes.sampling.gpu_watch import GpuWatch
from probes.usage import find_group, resident_bytes

_WARMUP_STEPS = 8
"""Steps of another start that do not count."""

_SLOWER_START = 2.0
"""How many times as long as the first start another one may take."""

StartScript = Callable[[Plan], RunningScript | WholeRun]
"""Starts the processes of a script under a plan."""


class ScriptContender:
    """A script that runs under a plan: a `planner.trials.contender.Contender`.

    One that comes to its end is started again, and warmed up again; that time is in no step, and
    it is not in the limit of a turn, which a start may exceed.

    Args:
        plan: Whose ``node_batch`` is what each of its steps has to train.
        start: Starts it.
        node: This machine.
        own_losses: Of the first steps of the script as it is, where ``plan`` trains the same: those
            of a patched script are held against them. Empty: they are not known.
        start_s: Time that ``plan`` is known to take to its first steps.

    Raises:
        TrialFailedError: It cannot be started here.
    """

    def __init__(
        self,
        plan: Plan,
        start: StartScript,
        node: Hardware,
        *,
        own_losses: Sequence[float | None] = (),
        start_s: float = 0.0,
    ) -> None:
        self.peak_memory_bytes: int | None = None
        self.compile_s: float | None = None
        self.disturbance: Disturbance | None = None
        self.failure: ScriptFailedError | None = None
        """Why it made no more steps."""
        self._plan, self._start, self._own_losses = plan, start, own_losses
        self._cpu = node.cpu
        self._watch = DisturbanceWatch(node.cpu)
        self._made = 0
        self._start_s = start_s
        self._is_cut = False
        """Whether its time was up within a step, which the next turn would have the end of."""
        # Its plan does not say which GPUs it uses. First: nobody could end a script that has begun.
        self._gpu_watch = GpuWatch(node.gpu_uuids(), are_used=False)
        try:
            with _as_results():
                self._script = start(plan)
        except BaseException:
            self._gpu_watch.close()
            raise

    def make_steps(self, count: int, *, time_limit_s: float) -> Sequence[StepDone]:
        """Make so many steps; see `planner.trials.contender.Contender.make_steps`."""
        self._gpu_watch.begin()
        self._watch.begin()
        began = time.monotonic()
        with _as_results():
            try:
                seen = self._make(count, began + time_limit_s)
            except ScriptFailedError as error:
                self.failure = error
                raise
            patches = patches_of(self._plan)
            if patches and not self._made:
                check_losses(self._script.first_losses, self._own_losses, list(patches))
        if not self._made:
            self._start_s = max(self._start_s, time.monotonic() - began)
        pids = find_group(*self._script.pids)
        # What processes that are gone by now have used cannot be told from what others have.
        self.disturbance = self._gpu_watch.end(self._watch.end(pids) if pids else None)
        used = resident_bytes(pids) or 0
        self.peak_memory_bytes = max(self.peak_memory_bytes or 0, used) or None
        steps = []
        self._check_samples()
        for step in seen:
            self._made += 1
            steps.append(
                StepDone(
                    step=self._made,
                    epoch=1,
                    time_s=step.time_s,
                    samples=self._plan.node_batch if step.samples is None else step.samples,
                    loss=math.nan,
                    input_s=step.input_s or 0.0,
                )
            )
        return steps

    def close(self) -> None:
        """End all its processes."""
        self._script.close()
        self._gpu_watch.close()

    def _make(self, count: int, deadline: float) -> list[StepSeen]:
        try:
            if not self._is_cut:
                return self._make_whole(count, deadline)
        except ScriptEndedError:
            if not self._made:
                raise
        self._script.close()
        self._script = self._start(self._plan)
        self._is_cut = False
        self._watch = DisturbanceWatch(self._cpu)  # the one before knows the processes before
        began = time.monotonic()
        limit_s = max(deadline - began, _SLOWER_START * self._start_s)
        try:
            self._script.make_steps(_WARMUP_STEPS, time_limit_s=limit_s)
            self._made += _WARMUP_STEPS  # the next number shows that steps are missing
            return self._make_whole(count, deadline + time.monotonic() - began)
        except ScriptEndedError as error:
            raise ScriptRefusedError(
                f"a run of it has no {_WARMUP_STEPS + count} steps, which a turn needs: let it "
                "make more, or pass --no-python to time whole runs",
                error.log_tail,
            ) from error

    def _make_whole(self, count: int, deadline: float) -> list[StepSeen]:
        """Make so many steps, and some more until one has a whole batch or the time is up."""
        steps = self._script.make_steps(count, time_limit_s=deadline - time.monotonic())
        seen = self._script.recognised
        whole = None if seen is None else seen.whole_samples
        try:
            for _ in range(MOST_SMALL_STEPS):
                if whole is None or any(step.samples in (None, whole) for step in steps):
                    break
                steps += self._script.make_steps(1, time_limit_s=deadline - time.monotonic())
        except ScriptEndedError:
            pass  # the next turn finds that out again
        except ScriptFailedError as error:
            if not error.is_time_limit:
                raise
            self._is_cut = True
        return steps

    def _check_samples(self) -> None:
        """Refuse a script that trains another batch than the plan says: its rate would be wrong."""
        seen = self._script.recognised
        samples = None if seen is None else seen.whole_samples
        if seen is not None and samples not in (None, self._plan.node_batch):
            ranks = format_count(seen.ranks, "rank")
            remedy = (
                "the script does not follow {batch}, or another placeholder changes its batch"
                if BATCH in self._plan.options
                else "name the placeholder of its batch {batch}"
            )
            raise TrialFailedError(
                Outcome.CRASH,
                f"a step of {samples} samples over {ranks}, and "
                f"node_batch={self._plan.node_batch} by the plan: {remedy}",
            )


@contextmanager
def _as_results() -> Iterator[None]:
    """Raise failures of a script as results of its trial."""
    try:
        yield
    except ScriptFailedError as error:
        outcome = Outcome.OUT_OF_MEMORY if error.out_of_memory else Outcome.CRASH
        if error.is_time_limit:
            outcome = Outcome.TIME_LIMIT
        raise TrialFailedError(
            outcome, error.reason, error.log_tail or None, lacks_port=error.lacks_port
        ) from error
    except (InvalidPlanError, ScriptError) as error:
        raise TrialFailedError(Outcome.CRASH, str(error)) from error
