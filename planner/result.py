"""What did a trial show? Its outcome, its times and its reason, as frozen values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from launch.plan import Plan, Setting
from probes.timing import Interval, Measurement


class Outcome(StrEnum):
    """How a trial ended."""

    OK = "ok"
    """Measured until its interval was narrow enough or its time was up."""

    SLOWER = "slower"
    """Ended early: its interval lay wholly above the best plan's time per sample."""

    OUT_OF_MEMORY = "out_of_memory"
    TIME_LIMIT = "time_limit"
    CRASH = "crash"
    NAN_LOSS = "nan_loss"

    @property
    def has_times(self) -> bool:
        """Whether a trial with this outcome is evidence of speed."""
        return self in (Outcome.OK, Outcome.SLOWER)


class Role(StrEnum):
    """Why a trial was run."""

    BASELINE = "baseline"
    SEARCH = "search"
    FINAL = "final"
    """A finalist, measured again."""

    EXACT = "exact"
    """The best plan, but in fp32: what its precision gains."""

    SHARE = "share"
    """The best plan with a smaller batch: what a step of a share takes. No plan to choose."""

    @property
    def is_unbiased(self) -> bool:
        """Whether the plan was chosen before this measurement, not by it."""
        return self in (Role.FINAL, Role.EXACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """One plan, run for a short time."""

    plan: Plan
    role: Role
    outcome: Outcome

    measurement: Measurement | None = None
    """Times of the steps in seconds; ``None`` where no step was finished."""

    peak_memory_bytes: int | None = None
    """Highest sum over all processes of the trial, shared pages counted once."""

    reason: str | None = None
    """One line, for every outcome but ``ok``."""

    compile_s: float | None = None
    """Time that the plan took to compile, before or in its first steps; ``None`` where it compiled
    nothing. Little where it found its kernels in the cache: see `with_longest_compile`."""

    log_tail: str | None = None
    """Last lines of the failed worker's stderr."""

    elapsed_s: float
    """Wall time of the whole trial, from start of its processes to their end."""

    parameters: Mapping[str, Setting] = field(default_factory=dict)
    """What the search drew, by the names it gave; empty where it drew nothing."""

    def to_json(self) -> dict[str, Any]:
        """Give the result as plain values that JSON can hold."""
        measured = self.measurement
        times = None
        if measured is not None:
            warmup_s, samples_s = list(measured.warmup_s), list(measured.samples_s)
            times = {"warmup_s": warmup_s, "samples_s": samples_s, "compile_s": self.compile_s}
        return {
            "role": self.role.value,
            "outcome": self.outcome.value,
            "plan": self.plan.to_json(),
            "parameters": dict(self.parameters),
            "measurement": times,
            "peak_memory_bytes": self.peak_memory_bytes,
            "reason": self.reason,
            "log_tail": self.log_tail,
            "elapsed_s": self.elapsed_s,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrialResult:
        """Read a result back from `to_json`; unknown keys are left out.

        Raises:
            TypeError: A value is of the wrong kind; likewise KeyError and ValueError.
        """
        measured = values["measurement"]
        times = {} if measured is None else json_object(measured)
        return cls(
            plan=Plan.from_json(json_object(values["plan"])),
            role=Role(values["role"]),
            outcome=Outcome(values["outcome"]),
            measurement=None if measured is None else _measurement(times),
            # Trials of the first release compiled nothing and have no word of it.
            compile_s=times.get("compile_s"),
            peak_memory_bytes=values["peak_memory_bytes"],
            reason=values["reason"],
            log_tail=values["log_tail"],
            elapsed_s=values["elapsed_s"],
            parameters=json_object(values["parameters"]),
        )

    def throughput_samples_per_s(self, over_samples: float = math.inf) -> Interval | None:
        """Give samples per second with its 95 % interval, ``None`` without evidence of speed.

        Args:
            over_samples: Samples of a training that begins with compiling; by default so many that
                this takes no part of its time.
        """
        if self.measurement is None or not self.outcome.has_times:
            return None
        step_s = self.measurement.interval_s()
        batch = self.plan.node_batch
        more_s = (self.compile_s or 0.0) * batch / over_samples
        return Interval(
            median=batch / (step_s.median + more_s),
            low=batch / (step_s.high + more_s),
            high=batch / (step_s.low + more_s),
            count=step_s.count,
        )


def json_object(values: object) -> dict[str, Any]:
    """Hold what JSON gave against what was written.

    Raises:
        TypeError: It is no object.
    """
    if not isinstance(values, dict):
        raise TypeError(f"{values!r:.60}: expected an object")
    return values


def _measurement(times: Mapping[str, Any]) -> Measurement:
    return Measurement(warmup_s=tuple(times["warmup_s"]), samples_s=tuple(times["samples_s"]))


def with_longest_compile(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Give results with the longest time that each one's plan is known to take to compile.

    Only its first trial compiles; those after it find the kernels in the cache, and a plan would
    seem to cost nothing once it was measured again.
    """
    longest: dict[str, float] = {}
    for result in results:
        if result.compile_s is not None:
            key = repr(result.plan)
            longest[key] = max(result.compile_s, longest.get(key, 0.0))
    return [
        result
        if result.compile_s is None
        else replace(result, compile_s=longest[repr(result.plan)])
        for result in results
    ]
