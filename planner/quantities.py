"""How are durations and sizes written on the command line?"""

from __future__ import annotations

import math
import re

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
_NUMBER = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[a-z]*)", re.ASCII)


def parse_duration_s(text: str) -> float:
    """Read ``90``, ``90s``, ``5m`` or ``1h`` as seconds.

    Raises:
        ValueError: It is none of these, or not above zero; the message says what is expected.
    """
    value = _parse(text, _SECONDS)
    if value is None or not 0 < value < math.inf:
        raise ValueError(f"{text!r} is no duration above zero: write 90, 90s, 5m or 1h")
    return value


def parse_size_bytes(text: str) -> int:
    """Read ``512MiB`` or ``4GB`` as bytes.

    Raises:
        ValueError: It is neither; the message says what is expected.
    """
    value = _parse(text, _BYTES)
    if value is None:
        raise ValueError(f"{text!r} is no size: write 512MiB or 4GB")
    return int(value)


def format_duration(seconds: float) -> str:
    """Write a duration for people.

    >>> format_duration(83.4), format_duration(4.25), format_duration(7265)
    ('1m 23s', '4.2s', '2h 1m')
    """
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    return f"{whole // 3600}h {whole % 3600 // 60}m"


def _parse(text: str, units: dict[str, float] | dict[str, int]) -> float | None:
    found = _NUMBER.fullmatch(text.strip().lower())
    if found is None or found["unit"] not in units:
        return None
    return float(found["number"]) * units[found["unit"]]
