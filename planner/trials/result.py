"""Result of a trial: its outcome, its times and its reason, as frozen values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from launch.plan import Plan, Setting
from probes.codec import NonNegative, Whole
from probes.timing import Interval, Measurement

_WORKER = re.compile(r"^worker \d+: ")
"""Before the reason of a failure: whichever of a plan's workers was the first to fail."""


class Outcome(StrEnum):
    """How a trial ended."""

    OK = "ok"
    """Timed, and not shown to be slower than another."""

    SLOWER = "slower"
    """Ended early: its interval lay wholly above the best plan's time per sample."""

    OUT_OF_MEMORY = "out_of_memory"
    TIME_LIMIT = "time_limit"
    """Took longer than such a plan may."""

    NO_TIME = "no_time"
    """The budget ended before its first turn: nothing is known of it, and nothing against it."""

    CRASH = "crash"
    NAN_LOSS = "nan_loss"

    @property
    def has_times(self) -> bool:
        """Whether a trial with this outcome is evidence of speed."""
        return self in (Outcome.OK, Outcome.SLOWER)

    @property
    def has_failed(self) -> bool:
        """Whether a trial with this outcome speaks against its plan."""
        return not self.has_times and self is not Outcome.NO_TIME

    @property
    def words(self) -> str:
        """The same for people: ``out of memory``."""
        return self.value.replace("_", " ")


class Role(StrEnum):
    """Why a trial was run."""

    BASELINE = "baseline"
    """One core, or one GPU: what the papers compare with."""

    DEFAULTS = "defaults"
    """PyTorch's defaults on this node, with the use case's batch: what speedups refer to."""

    OWN_BATCH = "own_batch"
    """The best plan with the use case's batch: what the settings gain without a larger batch."""

    SEARCH = "search"
    LOOK = "look"
    """A plan with a part of the batch that may be chosen: what it shows is of the whole one."""

    FINAL = "final"
    """A finalist, measured again."""

    EXACT = "exact"
    """The best plan, but in fp32: what its precision gains. Only of earlier releases; it is `FINAL`
    now."""

    SHARE = "share"
    """The best plan with a smaller batch: what a step of a share takes. No plan to choose."""

    @property
    def was_started_afresh(self) -> bool:
        """Whether the plan was chosen before this measurement, not by it."""
        return self in (Role.FINAL, Role.EXACT)

    @property
    def is_rare(self) -> bool:
        """Whether a few turns are enough: the plan is only compared with."""
        return self in (Role.BASELINE, Role.OWN_BATCH, Role.SHARE)

    @property
    def is_for_choice(self) -> bool:
        """Whether the plan may be chosen: others were measured for comparison alone."""
        return self not in (Role.SHARE, Role.OWN_BATCH, Role.LOOK)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """One plan, run for a short time."""

    plan: Plan
    role: Role
    outcome: Outcome

    measurement: Measurement | None = None
    """Times of the steps in seconds; ``None`` where no step was finished."""

    peak_memory_bytes: Whole | None = None
    """Highest sum over all processes of the trial, shared pages counted once."""

    peak_device_memory_bytes: int | None = None
    """Most memory that the worker that tells of steps held of its GPU; ``None`` on CPUs."""

    reason: str | None = None
    """One line, for every outcome but ``ok``."""

    compile_s: NonNegative | None = None
    """Time that the plan took to compile, before or in its first steps; ``None`` where it compiled
    nothing. Little where it found its kernels in the cache: see `with_longest_compile`."""

    log_tail: str | None = None
    """Last lines of the failed worker's stderr."""

    elapsed_s: NonNegative
    """Time that it took from others: its starts, warm-up and turns, since it was last kept."""

    parameters: Mapping[str, Setting] = field(default_factory=dict)
    """What the search drew, by the names it gave; empty where it drew nothing."""

    def throughput_samples_per_s(self, training_samples: float = math.inf) -> Interval | None:
        """Give samples per second with its 95 % interval, the machine's drift taken out.

        ``None`` without evidence of speed.

        Args:
            training_samples: Samples of a training that begins with compiling; by default so many
                that this takes no part of its time.
        """
        if self.measurement is None or not self.outcome.has_times:
            return None
        step_s, drift = self.measurement.interval_s(), self.measurement.drift
        batch = self.plan.node_batch
        more_s = (self.compile_s or 0.0) * batch / training_samples
        return Interval(
            median=batch / (step_s.median / drift + more_s),
            low=batch / (step_s.high / drift + more_s),
            high=batch / (step_s.low / drift + more_s),
            count=step_s.count,
        )

    @property
    def reason_of_any_worker(self) -> str:
        """The reason without the number of the worker, so that it is the same where any had it."""
        return _WORKER.sub("", self.reason or "")

    @property
    def is_disturbed(self) -> bool:
        """Whether others computed beside most of its turns."""
        return self.measurement is not None and self.measurement.most_slowed > 1

    def reported_samples_per_s(self) -> float | None:
        """Give the samples per second that a search tells of; ``None`` without evidence of speed.

        Next to a plan that others slow more, one would seem faster than it ever was: beside others
        it is the rate that it had.
        """
        rate, known = self.throughput_samples_per_s(), self.measurement
        if rate is None or known is None:
            return None
        return self.plan.node_batch / known.median_s if self.is_disturbed else rate.median


def with_longest_compile(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Give results with the longest time that each one's plan is known to take to compile.

    Only its first trial compiles; those after it find the kernels in the cache, and a plan would
    seem to cost nothing once it was measured again.
    """
    longest: dict[Plan, float] = {}
    for result in results:
        if result.compile_s is not None:
            longest[result.plan] = max(result.compile_s, longest.get(result.plan, 0.0))
    return [
        result if result.compile_s is None else replace(result, compile_s=longest[result.plan])
        for result in results
    ]
