"""Options of jobs that a request may name: what, how long and how, but no file, program or host.

They are those of the commands, by their long names. What would be a path is taken from what the
server was started with, or made by it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from launch.gradient_sync.algorithms import algorithm_names
from launch.gradient_sync.wire_formats import wire_format_names
from launch.strategies import strategy_names
from planner.plans.objective import TIME_TO_LOSS
from planner.quantities import parse_duration_s
from planner.sweeps.sweep_request import BEST
from probes.codec import Count, Natural, Positive, Share

_COUNTS = re.compile(r"[1-9][0-9]{0,8}(,[1-9][0-9]{0,8}){0,63}")
"""Up to 64 numbers, which a command line takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """Options of a search."""

    use_case: str
    """A built-in one, or one that the server was started with."""

    on_hosts: bool = False
    """On the hosts that the server was started with, in place of its own machine."""

    seed: Natural | None = None
    epochs: Count | None = None
    budget: str | None = None
    trials: Natural | None = None
    strategies: str | None = None
    batch_size: Count | None = None
    effective_batch: Count | None = None
    max_batch: Count | None = None
    precision: Literal["fp32", "bf16", "auto"] | None = None
    objective: Literal["throughput", "time-to-loss"] | None = None
    lr_scaling: Literal["none", "linear", "sqrt"] | None = None
    target: Positive | None = None
    target_accuracy: Share | None = None
    no_cache: bool = False
    fresh: bool = False
    verbose: bool = False
    no_wait: bool = False

    def __post_init__(self) -> None:
        _check_duration("budget", self.budget)
        _check_one_of(self, "batch_size", "effective_batch", "max_batch")
        _check_one_of(self, "target", "target_accuracy")
        for name in ("target", "target_accuracy"):
            if getattr(self, name) is not None and self.objective != TIME_TO_LOSS:
                raise ValueError(f"{name} without objective {TIME_TO_LOSS}: give both")
        known = strategy_names()
        for name in (self.strategies or known[0]).split(","):
            _check_known("strategies", name.strip(), known)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """Options of a training."""

    use_case: str
    """A built-in one, or one that the server was started with."""

    on_hosts: bool = False
    """On the hosts that the server was started with, in place of its own machine."""

    checkpoint: bool = False
    """Write checkpoints into a folder that the server makes, so that it can be resumed."""

    seed: Natural | None = None
    epochs: Count | None = None
    plan: Count | None = None
    global_batch: Count | None = None
    effective_batch: Count | None = None
    lr_scaling: Literal["none", "linear", "sqrt"] | None = None
    allow_stale: bool = False
    checkpoint_every: str | None = None
    max_restarts: Natural | None = None
    hang_timeout: str | None = None
    allow_nan: bool = False
    keep_best: bool = False
    no_noise_scale: bool = False
    all_hosts: bool = False
    keep_shares: bool = False
    wire: str | None = None
    all_reduce: str | None = None

    def __post_init__(self) -> None:
        _check_duration("checkpoint_every", self.checkpoint_every)
        _check_duration("hang_timeout", self.hang_timeout)
        _check_known("wire", self.wire, wire_format_names())
        _check_known("all_reduce", self.all_reduce, algorithm_names())
        _check_one_of(self, "global_batch", "effective_batch")
        if self.checkpoint_every is not None and not self.checkpoint:
            raise ValueError("checkpoint_every and no checkpoint: set that to true")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """Options of a sweep, on the server's own machine."""

    use_case: str
    """A built-in one, or one that the server was started with."""

    batches: str
    """Samples per step: ``32,64,128``."""

    devices: str | None = None
    """Numbers of workers, or of GPUs: ``1,2``."""

    plans: str | None = None
    """``best``, or numbers of stored plans: ``3,7``."""

    seed: Natural | None = None
    epochs: Count | None = None
    fresh: bool = False
    allow_stale: bool = False
    no_wait: bool = False

    def __post_init__(self) -> None:
        _check_counts("batches", self.batches)
        _check_counts("devices", self.devices)
        if self.plans != BEST:
            _check_counts("plans", self.plans)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """Options of a probe."""

    on_hosts: bool = False
    """On the hosts that the server was started with, in place of its own machine."""

    quick: bool = False
    no_wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Options of a check."""

    on_hosts: bool = False
    """On the hosts that the server was started with, in place of its own machine."""

    use_case: str | None = None
    """A built-in one, or one that the server was started with."""


JobOptions = TuneOptions | LaunchOptions | SweepOptions | ProbeOptions | DoctorOptions


def _check_counts(name: str, text: str | None) -> None:
    if text is not None and not _COUNTS.fullmatch(text):
        raise ValueError(f"{name}: expected whole numbers from 1 on, as 1,2,4")


def _check_known(name: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        raise ValueError(f"{name}: choose from {', '.join(known)}")


def _check_one_of(options: object, *names: str) -> None:
    """Refuse two options of which one at most makes sense."""
    given = [name for name in names if getattr(options, name) is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} exclude each other: give one")


def _check_duration(name: str, text: str | None) -> None:
    if text is None:
        return
    try:
        if len(text) > 20:
            raise ValueError
        parse_duration_s(text)
    except ValueError:
        raise ValueError(f"{name}: expected a duration such as 90, 90s, 5m or 1h") from None
