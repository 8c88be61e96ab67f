"""Turns: two contenders that never compute at the same time, in rounds A B, B A, A B, ..."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from planner.peers._reports import PeerStepDone

_WARMUP_STEPS = 3
_LEAST_STEPS = 2
_LEAST_ROUNDS = 2
_MOST_STEPS = 1000


class TurnTaker(Protocol):
    """A training that makes steps when it is told to, and stands still between."""

    def make_steps(self, count: int) -> Sequence[PeerStepDone]:
        """Make so many whole steps or more, and stand still again.

        Raises:
            PeerFailedError: It cannot.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The steps of one contender in one round, added up."""

    time_s: float
    samples: int
    loading_s: float | None
    exchange_s: float | None
    update_s: float | None

    @property
    def samples_per_s(self) -> float:
        """Throughput."""
        return self.samples / self.time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A turn of each."""

    ours: Turn
    peer: Turn


def take_turns(
    ours: TurnTaker, peer: TurnTaker, *, budget_s: float, turn_s: float
) -> Iterator[Round]:
    """Let two trainings take turns until the budget is spent.

    Every other round goes backwards, so that what drifts evenly favours neither. There are two
    rounds at least.

    Args:
        ours: Warm already, or not.
        peer: Just started.
        budget_s: Of all turns, the warm-up included.
        turn_s: Least time of a turn. It has at least two steps.
    """
    began = time.monotonic()
    counts = [_find_count(one, turn_s) for one in (peer, ours)]
    number, longest_s = 0, 0.0
    while number < _LEAST_ROUNDS or time.monotonic() - began + longest_s < budget_s:
        round_began = time.monotonic()
        if number % 2 == 0:
            own, other = _take(ours, counts[1]), _take(peer, counts[0])
        else:
            other, own = _take(peer, counts[0]), _take(ours, counts[1])
        yield Round(ours=own, peer=other)
        longest_s = max(longest_s, time.monotonic() - round_began)
        number += 1


def _find_count(one: TurnTaker, turn_s: float) -> int:
    """Warm a contender up; give the steps of its turns."""
    steps = one.make_steps(_WARMUP_STEPS)
    shortest_s = min(step.time_s for step in steps)
    return min(max(_LEAST_STEPS, math.ceil(turn_s / shortest_s)), _MOST_STEPS)


def _take(one: TurnTaker, count: int) -> Turn:
    steps = one.make_steps(count)
    return Turn(
        time_s=math.fsum(step.time_s for step in steps),
        samples=sum(step.samples for step in steps),
        loading_s=_sum([step.loading_s for step in steps]),
        exchange_s=_sum([step.exchange_s for step in steps]),
        update_s=_sum([step.update_s for step in steps]),
    )


def _sum(times_s: Sequence[float | None]) -> float | None:
    known = [time_s for time_s in times_s if time_s is not None]
    return math.fsum(known) if len(known) == len(times_s) else None
