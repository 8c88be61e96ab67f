"""Watchdog thread of a rank: ends the rank where another host is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from threading import Event, Thread

from launch.liveness.heartbeat import Heartbeat
from launch.liveness.keepalive import Keepalive
from launch.reports import Alive, make_lost_host_failure
from launch.system.process_end import read_parent_name
from launch.system.report_stream import ReportStream

_POLL_S = 0.25
_ALIVE_INTERVAL_S = 2.0
_MPIRUN_END_LIMIT_S = 4.0
_DAEMONS = ("prted", "orted")


class Watchdog:
    """Ends this rank where another host is lost. Use it in a ``with`` block.

    Rank 0 also reports every two seconds that the job is alive.
    """

    def __init__(
        self,
        keepalive: Keepalive,
        heartbeat: Heartbeat,
        rank: int,
        hosts: Sequence[str],
        report_stream: ReportStream,
    ) -> None:
        self._keepalive = keepalive
        self._heartbeat = heartbeat
        self._rank = rank
        self._hosts = hosts
        self._report_stream = report_stream
        self._is_over = Event()
        self._thread = Thread(target=self._run, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        alive_at = time.monotonic()
        while not self._is_over.wait(_POLL_S):
            if lost := self._keepalive.find_lost() or self._heartbeat.poll():
                self._end_job(lost)
                return
            if self._rank == 0 and time.monotonic() >= alive_at:
                self._report_stream.try_send(Alive())
                alive_at = time.monotonic() + _ALIVE_INTERVAL_S

    def _end_job(self, lost: Sequence[int]) -> None:
        """End this rank, and with it the job.

        Not at once: where a rank was killed, mpirun is about to report how, and ends all others.
        Where it does not, this host is cut off, with a daemon that waits for ever.
        """
        others = len(self._hosts) - 1
        if self._rank == 0 and len(lost) == others > 1:
            host = self._hosts[0]
            message = f"lost all of the other {others} hosts at once: is its network cut?"
        else:
            host = self._hosts[lost[0]]
            message = f"does not answer {self._hosts[self._rank]} any more"
        self._report_stream.try_send(make_lost_host_failure(host, message))
        if not self._is_over.wait(_MPIRUN_END_LIMIT_S):
            end_daemon()
            os._exit(1)  # the kernel then ends its workers


def end_daemon() -> None:
    """End the daemon that started this rank, where it is one of mpirun's; it ends its ranks.

    Only for a rank whose workers have ended and that has lost rank 0. The daemon may not notice: it
    still has output of its rank to send, and until the kernel gives that up it probes nobody.
    """
    if read_parent_name() in _DAEMONS:
        with contextlib.suppress(ProcessLookupError):
            os.kill(os.getppid(), signal.SIGTERM)
