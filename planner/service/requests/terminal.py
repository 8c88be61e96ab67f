"""Terminal of the server: what its user is told and who asked is not."""

from __future__ import annotations

import sys
from contextlib import suppress


def tell_terminal(text: str) -> None:
    """Write to stderr, where that is still there: a request is answered without it too."""
    with suppress(OSError, ValueError):  # a pipe that nobody reads any more, a full disk
        sys.stderr.write(text)
