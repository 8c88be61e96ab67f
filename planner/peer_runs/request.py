"""Request of a comparison: which peers, set how, for how long."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from launch.workload import Workload


class Setting(StrEnum):
    """How a peer is set."""

    DEFAULTS = "defaults"
    """As its users start it, by its guide."""

    OURS = "ours"
    """With the memory format, threads and processes of our plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """What is to be compared."""

    workload: Workload
    peers: tuple[str, ...]
    settings: tuple[Setting, ...] = (Setting.DEFAULTS, Setting.OURS)

    batch_size: int | None = None
    """Samples of a step on each host; ``None`` for that of our plan."""

    plan_id: int | None = None
    """Of ours; ``None`` for the best."""

    allow_stale: bool = False
    loader_workers: int = 0
    """Of each process of a peer."""

    starts: int = 2
    """How often everything is started anew: plans and peers differ from start to start."""

    budget_s: float = 60.0
    """Of the turns of each peer, after each start."""

    turn_s: float = 2.0
    """Least time of a turn."""

    start_limit_s: float = 180.0
    """In which a peer must begin to train."""

    step_limit_s: float = 120.0
    """In which it must make a step."""
