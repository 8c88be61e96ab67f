"""Counts, values and durations as text, JSON and CSV, and durations read from the command line."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probes.timing import Interval

_PREFIXES = ("B", "KiB", "MiB", "GiB", "TiB")
_FIGURES = 3
_LARGE = 1e9
"""From it on a value, of a loss that diverges say, has a power of ten."""

_WIDE = 0.2
"""Of a value: an interval that reaches farther says little."""

_UNRELIABLE = 2.0
"""Upper end of an interval / lower end, above which a figure says nothing."""

_LOPSIDED = 1.5
_ROUNDING = 1e-6
"""0.7 times 10 is a little more than 7 to a computer."""

_LONGEST_S = 1e9
"""Of a duration, thirty years: the system's own waits end at some hundred."""

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[a-z]*)", re.ASCII)


def format_count(count: int, noun: str) -> str:
    """Write how many there are: ``1 epoch``, ``2 epochs``, ``2 processes``."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending}"


def format_bytes(size_bytes: int | None) -> str:
    """Write a size: ``2.1 GiB``; nothing where it is not known."""
    if size_bytes is None:
        return ""
    size, power = float(size_bytes), 0
    while size >= 999.5 and power < len(_PREFIXES) - 1:
        size, power = size / 1024, power + 1
    return f"{format_number(size) if power else size_bytes} {_PREFIXES[power]}"


def format_number(value: float) -> str:
    """Write a number from 0 on with three figures, more where it is large: ``0.452``, ``42.8``."""
    digits = 0
    while 0 < value < 10 ** (_FIGURES - 1 - digits) and digits < 9:
        digits += 1
    return f"{value:.{digits}f}"


def format_value(value: float) -> str:
    """Write a value of any size with four figures, more where it is large: ``-0.05``, ``11090``."""
    return f"{value:.0f}" if 9999.5 <= abs(value) < _LARGE else f"{value:.4g}"


def format_interval(interval: Interval | None) -> str:
    """Write a value with the longer side of its interval: ``42.8 ±0.7``.

    The side rounds up, since an interval that is shown narrower than it is claims too much. A wide
    interval with one side much longer than the other has both ends instead: ``20 (4 to 103)``.
    """
    if interval is None:
        return ""
    sides = (interval.median - interval.low, interval.high - interval.median)
    if is_uncertain(interval) and max(sides) > _LOPSIDED * min(sides):
        return format_range(interval)
    digits = len(format_number(interval.median).partition(".")[2])
    side = math.ceil(max(sides) * 10**digits - _ROUNDING) / 10**digits
    return f"{interval.median:.{digits}f} ±{side:.{digits}f}"


def is_uncertain(interval: Interval | None) -> bool:
    """Whether an interval reaches more than 20 % of its value to a side."""
    if interval is None:
        return False
    side = max(interval.high - interval.median, interval.median - interval.low)
    return side > _WIDE * interval.median


def is_unreliable(interval: Interval) -> bool:
    """Whether an interval's upper end is more than twice its lower end."""
    return interval.high > _UNRELIABLE * interval.low


def format_range(interval: Interval) -> str:
    """Write a value with both ends of its interval: ``42.8 (42.1 to 43.3)``."""
    values = (interval.median, interval.low, interval.high)
    median, low, high = (format_number(value) for value in values)
    return f"{median} ({low} to {high})"


def interval_json(
    interval: Interval | None, *, with_samples: bool = False
) -> dict[str, Any] | None:
    """Give an interval under the names that scripts rely on, if wanted with how many it is of."""
    if interval is None:
        return None
    document = {"median": interval.median, "ci_low": interval.low, "ci_high": interval.high}
    return document | {"samples": interval.count} if with_samples else document


def interval_cells(name: str, interval: Interval | None) -> dict[str, float]:
    """Give an interval as cells of three columns of CSV; none where it is not known."""
    if interval is None:
        return {}
    return {name: interval.median, f"{name}_low": interval.low, f"{name}_high": interval.high}


def with_ends(value: float, low: float, high: float) -> str:
    """Write a value near 1 with the ends of its interval, where it has one.

    >>> with_ends(0.531, 0.48, 0.6), with_ends(1.0, 1.0, 1.0)
    ('0.53 (0.48 to 0.60)', '1.00')
    """
    text, ends = f"{value:.2f}", (f"{low:.2f}", f"{high:.2f}")
    return text if ends == (text, text) else f"{text} ({' to '.join(ends)})"


def printable(text: str) -> str:
    """Show control characters as escapes: a terminal would obey them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def parse_duration_s(text: str) -> float:
    """Read ``90``, ``90s``, ``5m`` or ``1h`` as seconds.

    Raises:
        ValueError: It is none of these, not above zero, or longer than 30 years; the message has
            the expected forms.
    """
    found = _NUMBER.fullmatch(text.strip().lower())
    value = float(found["number"]) * _SECONDS.get(found["unit"], 0.0) if found else 0.0
    if not 0 < value <= _LONGEST_S:
        what = "no duration above zero" if value <= 0 else "longer than 30 years"
        raise ValueError(f"{text!r:.60} is {what}: write 90, 90s, 5m or 1h")
    return value


def format_duration(seconds: float) -> str:
    """Write a duration in seconds, minutes or hours.

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


def format_seconds(time_s: float) -> str:
    """Write the time of a step or of a part of one.

    >>> format_seconds(1230.4), format_seconds(1.28), format_seconds(0.031), format_seconds(2.5e-4)
    ('1230 s', '1.28 s', '31 ms', '250 us')
    """
    if time_s >= 999.5 or time_s == 0:
        return f"{time_s:.0f} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if time_s >= 0.9995 * size:
            return f"{time_s / size:.3g} {unit}"
    return f"{time_s / 1e-6:.3g} us"
