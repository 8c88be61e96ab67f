"""Part of a log: so many bytes from a place on, as text."""

from __future__ import annotations

import os
from codecs import getincrementaldecoder
from dataclasses import dataclass
from pathlib import Path

MOST_LOG_BYTES = 256 * 1024
"""Of one look at a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """Part of a log."""

    text: str
    offset: int
    """Byte at which the part begins."""

    next_offset: int
    """Byte at which the next part begins."""

    size: int
    """Bytes of the log when this was read."""


def read_log_part(path: Path, offset: int = 0, most_bytes: int = MOST_LOG_BYTES) -> LogPart:
    """Read a part of a log, an empty one where there is no log; links are not followed.

    Args:
        path: Of the log.
        offset: First byte; below 0 it counts from the end.
        most_bytes: At most so many, and never more than `MOST_LOG_BYTES`.
    """
    most_bytes = max(1, min(most_bytes, MOST_LOG_BYTES))
    try:
        # Non-blocking: what stands in a log's place may be a pipe that nobody writes to.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return LogPart(text="", offset=0, next_offset=0, size=0)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        size = os.fstat(descriptor).st_size
        first = max(0, size + offset) if offset < 0 else min(offset, size)
        content = os.pread(file.fileno(), most_bytes, first) if size else b""
    # A character that the part cuts in two belongs to the next part.
    decoder = getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(content)
    left = len(decoder.getstate()[0]) if text else 0
    text = text or content.decode("utf-8", "replace")
    return LogPart(text=text, offset=first, next_offset=first + len(content) - left, size=size)
