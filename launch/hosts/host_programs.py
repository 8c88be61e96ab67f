"""Programs of ours, one on each of some hosts, which end with their owner."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from launch.hosts.host_line import Host
from launch.hosts.program_channel import ProgramChannel
from launch.hosts.ssh import remote_command
from launch.system.session import defer_signals
from probes.child_process import module_command

T = TypeVar("T")

END = "end"
"""Argument with which a program ends what one that was killed has left."""

BEAT_S = 2.0
"""Between two empty lines, which say that the owner of a program is alive."""

SILENCE_LIMIT_S = 30.0
"""Time without any line after which a program on another host may end by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProgram(Generic[T]):
    """A program on a host, with the first line of its stdin."""

    name: str
    host: Host | None
    """``None`` for this machine."""

    request: T


class HostPrograms:
    """The same program on some hosts. Use it in a ``with`` block; leaving it ends all.

    They also end when this process does, however that happens. Where the network between is cut
    that may reach them never, so they get an empty line every few seconds.

    Args:
        module: That they run.
        starts: What starts each.
        ssh_config: What `launch.hosts.ssh.write_ssh_config` wrote; ``None`` to start by Slurm.
    """

    def __init__(
        self, module: str, starts: Sequence[HostProgram[Any]], *, ssh_config: Path | None
    ) -> None:
        self._module, self._starts, self._ssh_config = module, tuple(starts), ssh_config
        self._channels: list[ProgramChannel] = []
        self._is_over = threading.Event()
        self._beat = threading.Thread(target=self._say_alive, daemon=True)
        with ExitStack() as opened:
            opened.callback(self.close)
            for one in starts:
                self._channels.append(self._start(one))
            self._beat.start()
            opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all, in bounded time, and what those have left that were killed."""
        with defer_signals():
            self._is_over.set()
            if self._beat.is_alive():
                self._beat.join()
            _close(self._channels)
            started = zip(self._starts, self._channels, strict=False)
            _close([self._start(one, END) for one, channel in started if channel.was_killed])
            self._channels.clear()

    def _say_alive(self) -> None:
        # The main thread sleeps in calls that a signal has to wake it from.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while not self._is_over.wait(BEAT_S):
            for channel in list(self._channels):
                channel.send(b"\n")

    def _start(self, one: HostProgram[Any], *arguments: str) -> ProgramChannel:
        command = module_command(self._module, *arguments)
        if one.host is not None:
            command = remote_command(one.host, command, ssh_config=self._ssh_config)
        return ProgramChannel(one.name, command, one.request)


def _close(channels: Sequence[ProgramChannel]) -> None:
    """Let programs end side by side, and wait for that."""
    for channel in channels:
        channel.hang_up()
    for channel in channels:
        channel.close()
