"""Step counter: the steps of a launched script, which never waits for who counts them."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from socket import socket

from launch.errors import ScriptRefusedError
from launch.scripts.rank_channel import Rank, RankChannel
from launch.scripts.recognition import (
    LEAST_ROUNDS,
    MOST_SMALL_STEPS,
    OptimizerEvent,
    RecognisedSteps,
    recognise,
)

_WARMUP_STEPS = 8
"""The first ones do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedSteps:
    """Steps of a whole run of a script."""

    made: int
    """Over all ranks; a step of all of them is one."""

    counted: int
    """Those after the warm-up, without those that a validation came before."""

    time_s: float
    """Of the counted ones."""

    samples: int | None = None
    """That a process reads for a step of whole batches, or another one for it; ``None`` where that
    is not seen."""

    ranks: int = 1
    """That make them on this machine."""

    whole_share: float = 1.0
    """Samples that were read for the counted steps, as a part of as many whole ones: the last batch
    of an epoch may be smaller. Steps of batches that the script keeps are whole, as in a trial."""


@dataclass(slots=True)
class _Tally:
    """What one rank has done."""

    early: list[OptimizerEvent] = field(default_factory=list)
    boundary: int | None = None
    samples: int | None = None
    is_whole: bool = False
    """Whether ``samples`` are those of whole batches: there is no such thing among many sizes."""
    made: int = 0
    counted: int = 0
    time_s: float = 0.0
    _read: int = 0
    """Samples of the counted steps."""
    _is_seen: bool = True
    """Whether the samples of all of them are."""
    _kept: int = 0
    """Counted steps of batches that the script has kept."""
    _unread: int = 0
    """Counted steps for which nothing was read, since something was."""
    _step_read: int = 0
    _step_s: float = 0.0
    _validates: bool = False

    def take(self, rank: Rank) -> None:
        """Take what a rank has told.

        Raises:
            ScriptRefusedError: What a step is cannot be told.
        """
        events, rank.events = rank.events, []
        if self.boundary is None:
            self.early += events
            seen = self._recognise(rank)
            if seen is None:
                return
            self.boundary = seen.boundary
            self.samples = seen.whole_samples or seen.samples_per_step
            self.is_whole = seen.whole_samples is not None
            events, self.early = self.early, []
        for event in events:
            self._add(event)

    def _recognise(self, rank: Rank) -> RecognisedSteps | None:
        """Recognise the steps by as few events as a trial does, also where many came at once."""
        count = LEAST_ROUNDS
        while count <= len(self.early):
            seen = recognise(
                self.early[:count], rank.optimizers, ranks=1, idle=rank.idle_optimizers
            )
            if seen is not None:
                return seen
            count *= 2
        return None

    @property
    def whole_share(self) -> float:
        """Part of whole batches that was read, at most 1: a validation may seem to train."""
        if not self.samples or not self._read or not self._is_seen:
            return 1.0
        kept = self._kept + (self._unread if self._unread > MOST_SMALL_STEPS else 0)
        share = (self._read / self.samples + kept) / self.counted
        return min(1.0, share) if self.is_whole else share

    def _add(self, event: OptimizerEvent) -> None:
        self._step_s += event.time_s
        self._validates |= len(event.trained) < len(event.fetches)
        self._step_read += sum((fetch.size or 0) * fetch.count for fetch in event.trained)
        if self.made >= _WARMUP_STEPS:
            self._is_seen &= all(fetch.size is not None for fetch in event.trained)
        if event.optimizer != self.boundary:
            return
        self.made += 1
        if self.made > _WARMUP_STEPS:
            self._add_read(self._step_read)
            if not self._validates:
                self.counted += 1
                self.time_s += self._step_s
        self._step_read, self._step_s, self._validates = 0, 0.0, False

    def _add_read(self, read: int) -> None:
        """Add what was read for a step after the warm-up."""
        if read:
            self._kept += self._unread if self._unread > MOST_SMALL_STEPS else 0
            self._unread = 0
        elif not self._validates:
            self._unread += 1
        if self._validates:  # what its own step leaves was read ahead, for steps that count
            own = self.samples if self.is_whole and self.samples else read
            read = max(0, read - own)
        self._read += read


class StepCounter:
    """Counts in a thread while the script runs. Use it in a ``with`` block.

    What goes wrong with it ends the counting, never the script.

    Args:
        errors_alone: Whether only the words of an error that ends the script are wanted.
    """

    def __init__(self, *, errors_alone: bool = False) -> None:
        self._errors_alone = errors_alone
        self._channel = RankChannel()
        self._tallies: dict[Rank, _Tally] = {}
        self._is_lost = False
        self.ended_by: str | None = None
        """Words of the first error that ended a process of the script."""
        self._wake, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._read, daemon=True)

    @property
    def settings(self) -> Mapping[str, object]:
        """What the shim has to know."""
        told = {"errors_alone": True} if self._errors_alone else {}
        return {**self._channel.settings, "runs_on": True, **told}

    def __enter__(self) -> StepCounter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._waker)
        self._thread.join()
        os.close(self._wake)
        self._channel.close()

    def result(self, processes: int | None = None) -> CountedSteps | None:
        """Give what was counted, after the block; ``None`` where the steps cannot be told.

        Args:
            processes: That train on this machine; ``None``: all.
        """
        ranks = [rank for rank in self._channel.ranks if rank in self._tallies]
        if self._is_lost or not ranks:
            return None
        if len(ranks) != (processes or max(rank.world for rank in ranks)):
            return None
        first, readers = self._tallies[ranks[0]], sum(rank.has_read for rank in ranks)
        if not first.counted:
            return None
        samples = first.samples
        if samples is not None and readers < len(ranks):  # the first rank reads those of all
            samples = samples * readers // max(rank.world for rank in ranks)
        return CountedSteps(
            made=first.made,
            counted=first.counted,
            time_s=first.time_s,
            samples=samples,
            ranks=len(ranks),
            whole_share=first.whole_share,
        )

    def _read(self) -> None:
        # The main thread sleeps in calls that a signal has to wake it from.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        is_over = False
        while not is_over:
            files: list[socket | int] = [self._wake, *self._channel.readable]
            ready = select.select(files, [], [])[0]
            is_over = ready == [self._wake]  # and nothing is left to read
            for file in ready:
                if not isinstance(file, int):
                    self._take(file)

    def _take(self, connection: socket) -> None:
        try:
            self._channel.read(connection)
            for rank in self._channel.ranks:
                self.ended_by = self.ended_by or rank.ended_by
                if self._is_lost:
                    rank.events.clear()
                else:
                    self._tallies.setdefault(rank, _Tally()).take(rank)
        except (ScriptRefusedError, ValueError, KeyError, TypeError):
            self._is_lost = True
            self._tallies.clear()
