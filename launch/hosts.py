"""Which machines take part? The host file."""

from __future__ import annotations

import codecs
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from launch.errors import HostFileError
from launch.host_line import MAX_HOSTS, Host, Line
from launch.this_machine import is_this_machine

__all__ = ["Host", "HostList", "is_this_machine", "read_host_file"]

MAX_FILE_BYTES = 4 * 2**20
"""Room for 4096 of the longest names, several times over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostList:
    """The hosts of a file, in its order, each once."""

    hosts: tuple[Host, ...]

    notes: tuple[str, ...] = ()
    """What was read but has no effect, for the user to know."""


def read_host_file(path: str | Path) -> HostList:
    """Read a host file.

    Raises:
        HostFileError: The file cannot be read, or what it says cannot be understood. The message
            names file, line and token, and says what was expected.
        UnsafeHostError: A name could be taken for an option or a command.
    """
    file = str(path)
    hosts: dict[str, Host] = {}
    # Not splitlines(): it would also split where an editor shows no new line.
    for number, text in enumerate(_decoded(file, _read(file)).split("\n"), start=1):
        line = Line(file, number)
        for host in line.hosts(text.removesuffix("\r"), room=MAX_HOSTS - len(hosts)):
            if (first := hosts.get(host.name)) is not None:
                where = f"it is already on line {first.line}: expected each host once"
                raise line.error(host.name, where)
            hosts[host.name] = host
    if not hosts:
        raise HostFileError(f"{file}: it names no host: write one host a line")
    return HostList(hosts=tuple(hosts.values()), notes=_notes(file, hosts.values()))


def _read(file: str) -> bytes:
    """Read a regular file; what else there may be could wait or go on for ever."""
    try:
        # A look before opening: to open a tape or a watchdog is to start it.
        mode = Path(file).stat().st_mode
        if stat.S_ISREG(mode):
            with Path(file).open("rb") as stream:
                content = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise HostFileError(f"host file {file!r}: {reason.lower()}") from error
    if stat.S_ISDIR(mode):
        raise HostFileError(f"host file {file}: it is a directory: name a file")
    if not stat.S_ISREG(mode):
        raise HostFileError(f"host file {file}: it is a device or pipe: name a regular file")
    if len(content) > MAX_FILE_BYTES:
        raise HostFileError(f"host file {file}: expected at most {MAX_FILE_BYTES} bytes")
    return content


def _decoded(file: str, content: bytes) -> str:
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        wrong = content[error.start : error.start + 1]
        raise HostFileError(f"{file}:{number}: {wrong!r}: expected text in UTF-8") from error


def _notes(file: str, hosts: Iterable[Host]) -> tuple[str, ...]:
    lines = {host.line for host in hosts if host.slots is not None or host.max_slots is not None}
    if not lines:
        return ()
    where = f"line {min(lines)}" if len(lines) == 1 else f"{len(lines)} lines"
    return (f"{file}: slots on {where} are ignored: ddlplan starts one rank per node",)
