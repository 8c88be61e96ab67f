"""Result of a comparison: every peer with what was measured of it, or why it did not train."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from launch.plan import Plan
from planner.errors import TrainingFailedError
from planner.peer_runs.request import Setting
from planner.peer_runs.turns import Round, Turn
from planner.plans.stored_plan import iso_utc
from planner.quantities import interval_json
from planner.trials.comparison import ratio_interval
from probes import codec
from probes.timing import Interval, Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeParts:
    """Parts of a step's time, as shares of it. ``None``: not measured, or no turn."""

    loading: float | None
    exchange: float | None
    update: float | None

    @staticmethod
    def of(turns: Sequence[Turn]) -> TimeParts:
        """Add up the parts of some turns."""
        whole_s = math.fsum(turn.time_s for turn in turns)

        def share(parts_s: list[float | None]) -> float | None:
            known = [part_s for part_s in parts_s if part_s is not None]
            return math.fsum(known) / whole_s if known and len(known) == len(parts_s) else None

        return TimeParts(
            loading=share([turn.loading_s for turn in turns]),
            exchange=share([turn.exchange_s for turn in turns]),
            update=share([turn.update_s for turn in turns]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerResult:
    """What was measured of a peer in one setting."""

    peer: str
    setting: Setting
    version: str | None

    processes: int | None = None
    """On all hosts."""

    threads: int | None = None
    """Of each."""

    rounds: tuple[Round, ...] = ()
    start_s: tuple[float, ...] = ()
    """From the start of its launcher to its first step, for each start that gave a round."""

    reason: str | None = None
    """Why it did not train, or not to the end."""

    @property
    def ratio(self) -> Interval | None:
        """Samples per second of ours / of the peer, as a search compares two plans.

        ``None`` for fewer than two rounds.
        """
        logs = [math.log(one.ours.samples_per_s / one.peer.samples_per_s) for one in self.rounds]
        return ratio_interval(logs, starts=max(1, len(self.start_s)))

    @property
    def samples_per_s(self) -> Interval | None:
        """Throughput of the peer."""
        return _rates([one.peer for one in self.rounds])

    @property
    def parts(self) -> TimeParts:
        """Where its time goes."""
        return TimeParts.of([one.peer for one in self.rounds])

    def to_json(self) -> dict[str, Any]:
        """Give it as plain values."""
        return {
            "peer": self.peer,
            "setting": str(self.setting),
            "version": self.version,
            "error": self.reason,
            "processes": self.processes,
            "threads_per_process": self.threads,
            "ours_per_peer": interval_json(self.ratio, with_samples=True),
            "throughput_samples_per_s": interval_json(self.samples_per_s, with_samples=True),
            "time_shares": codec.to_builtins(self.parts),
            "start_s": list(self.start_s),
            "rounds": [
                {"ours_samples_per_s": r.ours.samples_per_s, "samples_per_s": r.peer.samples_per_s}
                for r in self.rounds
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedHost:
    """A host that took part."""

    name: str
    cpu: str | None
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Our plan and its peers."""

    use_case: str
    created_at: datetime
    hosts: tuple[ComparedHost, ...]

    node_batch: int
    """Samples of a step on each host."""

    plans: tuple[Plan, ...]
    """Of ours, by host."""

    plan_ids: tuple[int | None, ...]
    software: Mapping[str, str]
    start_s: tuple[float, ...]
    """Of ours, for each start."""

    results: tuple[PeerResult, ...]
    """In the order in which they were asked for, by setting."""

    is_generated: bool = False
    """Whether the use case made its samples up."""

    interrupted: bool = False
    """Whether it was ended from outside before all peers had their turns."""

    failure: TrainingFailedError | None = None
    """How our own training failed, after which nothing more was measured."""

    @property
    def samples_per_s(self) -> Interval | None:
        """Throughput of ours, over all turns."""
        return _rates([one.ours for result in self.results for one in result.rounds])

    @property
    def parts(self) -> TimeParts:
        """Where the time of ours goes."""
        return TimeParts.of([one.ours for result in self.results for one in result.rounds])

    def fastest(self, setting: Setting) -> PeerResult | None:
        """Give the peer that comes nearest to ours, ``None`` where none has two rounds."""
        ran = [(r.ratio.median, r) for r in self.results if r.setting is setting and r.ratio]
        return min(ran, key=lambda one: one[0])[1] if ran else None

    def to_json(self) -> dict[str, Any]:
        """Give it as plain values."""
        fastest = {str(setting): self.fastest(setting) for setting in Setting}
        return {
            "use_case": self.use_case,
            "created_at": iso_utc(self.created_at),
            "hosts": codec.to_builtins(self.hosts),
            "node_batch": self.node_batch,
            "ours": {
                "plans": [
                    {"id": number, **codec.to_builtins(plan)}
                    for number, plan in zip(self.plan_ids, self.plans, strict=True)
                ],
                "throughput_samples_per_s": interval_json(self.samples_per_s, with_samples=True),
                "time_shares": codec.to_builtins(self.parts),
                "start_s": list(self.start_s),
            },
            "software": dict(self.software),
            "peers": [result.to_json() for result in self.results],
            "fastest": {
                setting: None
                if result is None
                else {
                    "peer": result.peer,
                    "ours_per_peer": interval_json(result.ratio, with_samples=True),
                }
                for setting, result in fastest.items()
            },
            "is_generated": self.is_generated,
            "interrupted": self.interrupted,
            "failure": None if self.failure is None else str(self.failure),
        }


def _rates(turns: Sequence[Turn]) -> Interval | None:
    if not turns:
        return None
    return Measurement(samples_s=tuple(turn.samples_per_s for turn in turns)).interval_s()
