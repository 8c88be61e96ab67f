"""How are durations written on the command line?"""

from __future__ import annotations

import math
import re

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[a-z]*)", re.ASCII)


def parse_duration_s(text: str) -> float:
    """Read ``90``, ``90s``, ``5m`` or ``1h`` as seconds.

    Raises:
        ValueError: It is none of these, or not above zero; the message says what is expected.
    """
    found = _NUMBER.fullmatch(text.strip().lower())
    value = float(found["number"]) * _SECONDS.get(found["unit"], 0.0) if found else 0.0
    if not 0 < value < math.inf:
        raise ValueError(f"{text!r} is no duration above zero: write 90, 90s, 5m or 1h")
    return value


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
