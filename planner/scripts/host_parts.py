"""Parts of a script on several hosts: a program of ours on each, what it says, and their end."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from launch.errors import HostUnreachableError, ScriptError
from launch.hosts.host_programs import HostProgram, HostPrograms
from launch.hosts.program_channel import ProgramChannel
from launch.scripts.host_part import HostPartRequest, PartEnded, PartOutput, PartReady, PartRefused
from planner.scripts.passed_signals import passing_on

_POLL_S = 0.2
_READY_LIMIT_S = 60.0
_END_LIMIT_S = 15.0
_SIGNAL_GRACE_S = 35.0
"""After a signal for the script: torchrun itself gives its processes 30 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsEnd:
    """How all parts ended."""

    ended: Mapping[str, PartEnded]
    """By host; one that was lost is not among them."""

    first_failed: str | None
    """Host that failed first, or was lost."""

    lost: str | None
    """What was said of the connection to that host, where it was lost."""

    passed_signal: int | None
    """The last one that was passed on to the script."""


class ScriptParts(HostPrograms):
    """The parts of a script, by rank."""

    def __init__(
        self, starts: Sequence[HostProgram[HostPartRequest]], *, ssh_config: Path | None
    ) -> None:
        super().__init__("launch.scripts.host_part", starts, ssh_config=ssh_config)

    def await_ready(self) -> dict[str, PartReady]:
        """Wait until every host can start; give what each would.

        Raises:
            ScriptError: The command cannot be started on one.
            HostUnreachableError: One does not answer.
        """
        ready: dict[str, PartReady] = {}
        give_up = time.monotonic() + _READY_LIMIT_S
        while len(ready) < len(self._channels):
            for channel in self._read():
                for report in channel.take():
                    if isinstance(report, PartRefused):
                        raise ScriptError(f"host {channel.name}: {report.message}")
                    if isinstance(report, PartReady):
                        ready[channel.name] = report
                if channel.is_over:
                    raise HostUnreachableError(f"host {channel.name}: {_last_words(channel)}")
            if time.monotonic() > give_up:
                names = [one.name for one in self._channels if one.name not in ready]
                raise HostUnreachableError(f"host {names[0]}: no answer in {_READY_LIMIT_S:g} s")
        return ready

    def train(self, port: int, *, keeps_stdout: bool) -> PartsEnd:
        """Let all start, and wait until all have ended; one that fails ends the others.

        Args:
            port: Of the first host.
            keeps_stdout: Send what they write on stdout to stderr.
        """
        ended: dict[str, PartEnded] = {}
        first_failed = lost = passed = None
        give_up = float("inf")
        received: deque[int] = deque()
        with passing_on(received.append), _kept_running():
            for channel in self._channels:
                channel.send(b"start %d\n" % port)
            while any(not channel.is_over for channel in self._channels):
                while received:
                    passed = received.popleft()
                    for channel in self._channels:
                        channel.send(b"signal %d\n" % passed)
                for channel in self._read():
                    for report in channel.take():
                        if isinstance(report, PartOutput):
                            _write(2 if keeps_stdout else report.stream, report.text)
                        elif isinstance(report, PartEnded):
                            ended[channel.name] = report
                    is_lost = channel.is_over and channel.name not in ended
                    if is_lost and first_failed is None:
                        lost = _last_words(channel)
                    has_failed = channel.name in ended and ended[channel.name].code != 0
                    if (is_lost or has_failed) and first_failed is None:
                        first_failed = channel.name
                        grace_s = 0.0 if passed is None else _SIGNAL_GRACE_S
                        give_up = time.monotonic() + grace_s
                if time.monotonic() > give_up:
                    for channel in self._channels:
                        channel.hang_up()
                    if time.monotonic() > give_up + _END_LIMIT_S:
                        break
        return PartsEnd(ended=ended, first_failed=first_failed, lost=lost, passed_signal=passed)

    def _read(self) -> Iterator[ProgramChannel]:
        """Give the channels that have something new, after some time none."""
        by_file = {one.stdout: one for one in self._channels if not one.is_over}
        for file in select.select(list(by_file), [], [], _POLL_S)[0]:
            by_file[file].read()
            yield by_file[file]


def _last_words(channel: ProgramChannel) -> str:
    """Give why there is no more to read from a part."""
    lines = channel.read_errors().splitlines()
    return lines[-1].strip() if lines else "its part has ended"


@contextmanager
def _kept_running() -> Iterator[None]:
    """Ignore Ctrl-Z, which would stop only this process."""
    usual = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, usual)


def _write(stream: int, text: str) -> None:
    left = memoryview(text.encode("latin-1"))
    while left:
        with suppress(InterruptedError):
            left = left[os.write(stream, left) :]
