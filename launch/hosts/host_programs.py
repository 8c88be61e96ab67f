"""Programs of ours, one on each of some hosts, which end with their owner."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProgram(Generic[T]):
    """A program on a host, with the first line of its stdin."""

    name: str
    host: Host | None
    """``None`` for this machine."""

    request: T


class HostPrograms:
    """The same program on some hosts. Use it in a ``with`` block; leaving it ends all.

    They also end when this process does, however that happens.

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
        with ExitStack() as opened:
            opened.callback(self.close)
            for one in starts:
                self._channels.append(self._start(one))
            opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all, in bounded time, and what those have left that were killed."""
        with defer_signals():
            _close(self._channels)
            started = zip(self._starts, self._channels, strict=False)
            _close([self._start(one, END) for one, channel in started if channel.was_killed])
            self._channels.clear()

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
