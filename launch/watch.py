"""Is this rank's job still there? A thread looks, whatever the rank itself is doing meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread

from launch.mpi.daemon import end_daemon
from launch.mpi.lifeline import Lifeline
from launch.pulse import Pulse
from launch.voice import Voice
from launch.workers.reports import Alive, lost_host

_LOOK_S = 0.25
_SPEAK_EVERY_S = 2.0
_SPEAK_LIMIT_S = 1.0
_END_LIMIT_S = 4.0


class Watch:
    """Ends this rank where another host is lost. Use it in a ``with`` block.

    Rank 0 also says now and then that the job is alive.

    Args:
        lifeline: Knows which ranks are lost.
        pulse: Knows which ranks stand still.
        rank: Of this process.
        hosts: By rank.
        voice: Says so.
        end: Ends this process at once; the kernel then closes what its workers hang on, which
            end with it.
    """

    def __init__(
        self,
        lifeline: Lifeline,
        pulse: Pulse,
        rank: int,
        hosts: Sequence[str],
        voice: Voice,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._lifeline = lifeline
        self._pulse = pulse
        self._rank = rank
        self._hosts = hosts
        self._voice = voice
        self._end = end
        self._is_over = Event()
        self._thread = Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        speak_at = time.monotonic()
        while not self._is_over.wait(_LOOK_S):
            if lost := self._lifeline.find_lost() or self._pulse.look():
                self._end_job(lost)
                return
            if self._rank == 0 and time.monotonic() >= speak_at:
                self._voice.try_to_say(Alive(), _SPEAK_LIMIT_S)
                speak_at = time.monotonic() + _SPEAK_EVERY_S

    def _end_job(self, lost: Sequence[int]) -> None:
        """End this rank, and with it the job.

        Not at once: where a rank was killed, mpirun is about to say how, and ends all the others.
        Where it does not, it is this host that is cut off, with a daemon that waits for ever.
        """
        others = len(self._hosts) - 1
        if self._rank == 0 and len(lost) == others > 1:
            host = self._hosts[0]
            message = f"lost all of the other {others} hosts at once: is its network cut?"
        else:
            host = self._hosts[lost[0]]
            message = f"does not answer {self._hosts[self._rank]} any more"
        self._voice.try_to_say(lost_host(host, message), _SPEAK_LIMIT_S)
        if not self._is_over.wait(_END_LIMIT_S):
            end_daemon()
            self._end(1)
