"""Comparer: starts ours and every peer, some times anew, and lets them take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from launch.errors import LaunchError
from launch.reports import Noted, Working
from planner.errors import CancelledError, TrainingFailedError
from planner.peer_runs.launcher import PeerLauncher
from planner.peer_runs.processes import PeerFailedError
from planner.peer_runs.request import CompareRequest, Setting
from planner.peer_runs.result import PeerResult
from planner.peer_runs.trainings import PeerTraining
from planner.peer_runs.turns import TurnTaker, take_turns
from planner.peers import load_peer
from planner.peers._base import Peer
from planner.quantities import format_count, format_interval
from planner.trials.reports import Listener

SETTING_WORDS = {
    Setting.DEFAULTS: "at its defaults",
    Setting.OURS: "with our settings",
}


class OwnTurns(TurnTaker, Protocol):
    """Our own training, which has just started."""

    @property
    def start_s(self) -> float:
        """Time from its start to its first step."""

    @property
    def is_generated(self) -> bool:
        """Whether the use case made up the data that it trains on."""


StartOurs = Callable[[], AbstractContextManager[OwnTurns]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPeers:
    """What was measured."""

    results: tuple[PeerResult, ...]
    own_start_s: tuple[float, ...]
    is_generated: bool
    interrupted: bool
    failure: TrainingFailedError | None
    """How our own training failed, after which nothing more was measured."""


class Comparer:
    """Compares ours with every peer of a request. Leaving the context of our training ends that."""

    def __init__(
        self,
        request: CompareRequest,
        start_ours: StartOurs,
        launcher: PeerLauncher,
        listener: Listener,
    ) -> None:
        self._request = request
        self._start_ours = start_ours
        self._launcher = launcher
        self._listener = listener
        self._peers = {name: load_peer(name) for name in request.peers}
        self._own_start_s: list[float] = []
        self._is_generated = False
        self._results = {
            (setting, name): self._judge(peer, setting)
            for setting in request.settings
            for name, peer in self._peers.items()
        }

    def run(self) -> MeasuredPeers:
        """Measure. What is known by then is given where Ctrl-C, a request or our failure ends it.

        Raises:
            TrainingFailedError: Our own training failed before the first round.
        """
        interrupted, failure = False, None
        try:
            for start in range(self._request.starts):
                order = list(self._results)
                self._run_start(order if start % 2 == 0 else order[::-1], start)
        except (KeyboardInterrupt, CancelledError, TrainingFailedError) as error:
            if not any(result.rounds for result in self._results.values()):
                raise
            if isinstance(error, TrainingFailedError):
                failure = error
            interrupted = failure is None
        return MeasuredPeers(
            results=tuple(self._results.values()),
            own_start_s=tuple(self._own_start_s),
            is_generated=self._is_generated,
            interrupted=interrupted,
            failure=failure,
        )

    def _judge(self, peer: Peer, setting: Setting) -> PeerResult:
        setup = self._launcher.make_setup(peer, setting)
        return PeerResult(
            peer=peer.name,
            setting=setting,
            version=peer.version,
            reason=peer.find_obstacle(setup),
        )

    def _run_start(self, order: Sequence[tuple[Setting, str]], start: int) -> None:
        left = [key for key in order if self._results[key].reason is None]
        if not left:
            return
        self._listener(Working(what="starting ours"))
        with self._start_ours() as ours:
            self._own_start_s.append(ours.start_s)
            self._is_generated |= ours.is_generated
            for number, key in enumerate(left, start=1):
                setting, name = key
                what = f"{name} {SETTING_WORDS[setting]}"
                where = f"start {start + 1} of {self._request.starts}, {number} of {len(left)}"
                self._listener(Working(what=f"{where}: {what}"))
                self._run_peer(key, ours)
                self._listener(Noted(message=_describe(what, self._results[key])))

    def _run_peer(self, key: tuple[Setting, str], ours: OwnTurns) -> None:
        setting, name = key
        peer, request = self._peers[name], self._request
        setup = self._launcher.make_setup(peer, setting)
        before = self._results[key]
        try:
            with self._launcher.start(peer, setup) as processes:
                training = PeerTraining(
                    processes,
                    start_limit_s=request.start_limit_s,
                    step_limit_s=request.step_limit_s,
                )
                begun = training.begun
                if begun.processes != setup.world_size:
                    raise PeerFailedError(
                        f"it trains with {format_count(begun.processes, 'process')}, "
                        f"not {setup.world_size}"
                    )
                known = replace(before, processes=begun.processes, threads=begun.threads)
                self._results[key] = known
                for one in take_turns(
                    ours, training, budget_s=request.budget_s, turn_s=request.turn_s
                ):
                    known = replace(
                        known,
                        rounds=(*known.rounds, one),
                        start_s=(*before.start_s, training.start_s),
                    )
                    self._results[key] = known
        except PeerFailedError as error:
            self._results[key] = replace(self._results[key], reason=str(error))
            if error.log_tail:
                self._listener(Noted(message=f"{name} wrote last:\n{error.log_tail[-2000:]}"))
        except LaunchError as error:
            self._results[key] = replace(self._results[key], reason=str(error))


def _describe(what: str, result: PeerResult) -> str:
    if result.reason is not None:
        return f"{what}: {result.reason}"
    return (
        f"{what}: {format_interval(result.samples_per_s)} samples/s, ours / it "
        f"{format_interval(result.ratio)}"
    )
