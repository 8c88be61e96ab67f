"""One line of a host file, in any of the dialects that are in use.

line    = [entry {option}] ["#" comment]
entry   = [user "@"] name [":" slots]
name    = host name | IPv4 address | "[" IPv6 address "]" | name with ranges, as Slurm writes
option  = ("slots" | "max_slots" | "max-slots" | "port") "=" number
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from itertools import product

from launch.errors import HostFileError, UnsafeHostError

MAX_HOSTS = 4096
_MAX_PORT = 65535
_MAX_TOKEN = 65536

_SHELL = frozenset(";&|`$()<>\\\"'*?!{}~^%")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")
_NUMBER = re.compile(r"[0-9]{1,9}")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine that a host file names."""

    name: str
    """Host name as it is written, or an address; an IPv6 address without brackets.

    ssh takes ``Host GPU1`` of its configuration for ``GPU1`` alone, and Slurm its nodes likewise.
    """

    user: str | None = None
    port: int | None = None

    slots: int | None = None
    """Read because the dialects have it, and ignored: one rank starts per node."""

    max_slots: int | None = None
    """Likewise."""

    line: int
    """Line of the host file, from 1."""

    @property
    def key(self) -> str:
        """The name in the form in which names are compared: no two differ in capitals alone."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class HostFileLine:
    """A line of a host file, which makes the errors about itself."""

    file: str
    number: int

    def error(self, token: str, expected: str) -> HostFileError:
        """Make the error for a token that cannot be understood."""
        return HostFileError(f"{self.file}:{self.number}: {_quoted(token)}: {expected}")

    def unsafe(self, token: str, expected: str) -> UnsafeHostError:
        """Make the error for a token that must not reach a program."""
        return UnsafeHostError(f"{self.file}:{self.number}: {_quoted(token)}: {expected}")

    def hosts(self, text: str, *, max_names: int) -> Iterator[Host]:
        """Read the line; ranges give several hosts, comments and blank lines none.

        Args:
            text: The line without its line ending.
            max_names: Hosts that may still come.

        Raises:
            HostFileError: The line cannot be understood, or names too many hosts.
            UnsafeHostError: It holds what a program could take for an option or a command.
        """
        tokens = text.partition("#")[0].replace("\t", " ").split(" ")
        tokens = [token for token in tokens if token]
        if not tokens:
            return
        for token in tokens:
            self._check_safe(token)
        entry, *rest = tokens
        if max_names < 1:
            raise self._too_many(entry)
        user, name, slots = self._entry(entry)
        options = self._options(rest)
        if slots is not None and "slots" in options:
            raise self.error(entry, "slots are given twice: expected them once")
        for one in self._names(name, max_names):
            yield Host(
                name=one,
                user=user,
                port=options.get("port"),
                slots=options.get("slots", slots),
                max_slots=options.get("max_slots"),
                line=self.number,
            )

    def _check_safe(self, token: str) -> None:
        if len(token) > _MAX_TOKEN:
            raise self.error(token, f"expected at most {_MAX_TOKEN} characters without a space")
        if token.startswith("-") or "@-" in token:
            raise self.unsafe(token, "a program could take it for an option: expected a host name")
        for char in token:
            if char in _SHELL or unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp"):
                raise self.unsafe(
                    token, f"{_quoted(char)} has no place here: expected a host name and options"
                )
        if not token.isascii():
            raise self.error(token, "expected ASCII letters (write an xn--... name for others)")

    def _entry(self, entry: str) -> tuple[str | None, str, int | None]:
        user, at, rest = entry.rpartition("@")
        if at and not _USER.fullmatch(user):
            raise self.error(entry, "expected user@name")
        name, colon, slots = rest.rpartition(":")
        if not colon or rest.endswith("]"):
            return user or None, rest, None
        if ":" in name and not name.startswith("["):
            raise self.error(entry, "expected an IPv6 address in brackets, such as [2001:db8::1]")
        return user or None, name, self._number(entry, slots, "expected a number of slots after :")

    def _options(self, tokens: list[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for token in tokens:
            name, equals, value = token.partition("=")
            name = name.replace("-", "_")
            if not equals or name not in ("slots", "max_slots", "port"):
                raise self.error(
                    token, "expected slots=N, max_slots=N, port=N or a comment after #"
                )
            if name in found:
                raise self.error(token, f"{name} is given twice: expected it once")
            found[name] = self._number(token, value, f"expected a whole number after {name}=")
            if name == "port" and found[name] > _MAX_PORT:
                raise self.error(token, f"expected a port from 1 to {_MAX_PORT}")
        return found

    def _number(self, token: str, digits: str, expected: str) -> int:
        if not _NUMBER.fullmatch(digits) or int(digits) < 1:
            raise self.error(token, f"{expected}, at least 1")
        return int(digits)

    def _names(self, name: str, max_names: int) -> Iterator[str]:
        if name.startswith("["):
            yield self._ipv6(name)
        elif "[" in name or "]" in name:
            yield from self._expanded(name, max_names)
        else:
            yield self._checked(name, name)

    def _ipv6(self, name: str) -> str:
        try:
            if name.endswith("]"):
                return IPv6Address(name[1:-1]).compressed
        except ValueError:
            pass
        raise self.error(name, "expected an IPv6 address between [ and ]")

    def _expanded(self, name: str, max_names: int) -> Iterator[str]:
        parts = _BRACKETS.split(name)  # text, list, text, list, ..., text
        if any(bracket in text for text in parts[::2] for bracket in "[]"):
            raise self.error(name, "expected ranges in pairs of brackets, such as gpu[01-03,07]")
        ranges = [[self._range(name, item) for item in part.split(",")] for part in parts[1::2]]
        # Counted before any name is made: a few characters can stand for a billion hosts.
        if math.prod(sum(len(numbers) for numbers, _ in group) for group in ranges) > max_names:
            raise self._too_many(name)
        choices = [
            [f"{number:0{width}d}" for numbers, width in group for number in numbers]
            for group in ranges
        ]
        for numbers in product(*choices):
            pieces = [text + number for text, number in zip(parts[::2], numbers, strict=False)]
            yield self._checked(name, "".join(pieces) + parts[-1])

    def _range(self, name: str, item: str) -> tuple[range, int]:
        match = _RANGE.fullmatch(item)
        if match is None:
            raise self.error(name, f"{_quoted(item)}: expected a number or a range such as 01-03")
        first, last = match[1], match[2] or match[1]
        if int(first) > int(last):
            raise self.error(name, f"{_quoted(item)}: expected the smaller number first")
        return range(int(first), int(last) + 1), len(first)

    def _checked(self, token: str, name: str) -> str:
        if len(name) > 253 or not _NAME.fullmatch(name):
            raise self.error(
                token, "expected a host name: letters, digits, - and _, in parts joined by dots"
            )
        if name.rpartition(".")[2].isdigit():
            try:
                return str(IPv4Address(name))
            except ValueError:
                raise self.error(
                    token, "expected an IPv4 address, such as 192.0.2.1, or a name"
                ) from None
        return name

    def _too_many(self, token: str) -> HostFileError:
        return self.error(token, f"expected at most {MAX_HOSTS} hosts in all")


def _quoted(token: str) -> str:
    return ascii(token if len(token) <= 60 else token[:57] + "...")
