"""Host file, or the list of nodes that Slurm gives."""

from __future__ import annotations

import codecs
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.errors import HostFileError
from launch.hosts.host_line import MAX_HOSTS, Host, HostFileLine

_ENTRY = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)+")
"""Text between commas; commas in brackets do not count."""

MAX_FILE_BYTES = 4 * 2**20
"""Enough for 4096 of the longest names, several times over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostList:
    """The hosts of a file, in its order, each once."""

    hosts: tuple[Host, ...]

    notes: tuple[str, ...] = ()
    """Entries without effect, for the user to know."""


def read_host_file(path: str | Path) -> HostList:
    """Read a host file.

    Raises:
        HostFileError: The file cannot be read, or its text cannot be understood. The message
            names file, line and token, and says what was expected.
        UnsafeHostError: A name could be taken for an option or a command.
    """
    file = str(path)
    # Not splitlines(): it would also split where an editor shows no new line.
    lines = _decoded(file, _read(file)).split("\n")
    return _host_list(file, [line.removesuffix("\r") for line in lines], "one host a line")


def expand_hosts(text: str, *, source: str = "host list") -> HostList:
    """Read hosts with commas between them, as Slurm lists the nodes of an allocation.

    Args:
        text: Such as ``gpu[01-03,07],login1``.
        source: What messages call it, in place of a file; the n-th entry counts as line n.

    Raises:
        HostFileError: It cannot be understood, or names no host.
        UnsafeHostError: A name could be taken for an option or a command.
    """
    if len(text) > MAX_FILE_BYTES:
        raise HostFileError(f"{source}: expected at most {MAX_FILE_BYTES} characters")
    return _host_list(source, _ENTRY.findall(text), "hosts with commas")


def _host_list(source: str, texts: Sequence[str], expected: str) -> HostList:
    hosts: dict[str, Host] = {}
    for number, text in enumerate(texts, start=1):
        line = HostFileLine(source, number)
        for host in line.hosts(text, max_names=MAX_HOSTS - len(hosts)):
            if (first := hosts.get(host.key)) is not None:
                where = f"it is already on line {first.line}: expected each host once"
                raise line.error(host.name, where)
            hosts[host.key] = host
    if not hosts:
        raise HostFileError(f"{source}: it names no host: write {expected}")
    return HostList(hosts=tuple(hosts.values()), notes=_notes(source, hosts.values()))


def _read(file: str) -> bytes:
    """Read a regular file; any other could block or be endless."""
    try:
        # stat before opening: to open a tape or a watchdog starts it.
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
    return (f"{file}: slots on {where} are ignored: ddlplan starts one rank per host",)
