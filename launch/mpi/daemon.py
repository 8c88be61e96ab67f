"""What has mpirun left on a host that is cut off? Its daemon, which would wait there for hours."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_DAEMONS = frozenset({"prted", "orted"})


def end_daemon() -> None:
    """End the daemon that started this rank, where it is one of mpirun's; it ends its ranks.

    Only for a rank whose workers have ended and that has lost rank 0. The daemon may not notice:
    what its rank has said is still on the way, and until the kernel gives that up it asks nobody.
    """
    parent = os.getppid()
    with contextlib.suppress(OSError):
        if Path(f"/proc/{parent}/comm").read_text().strip() in _DAEMONS:
            os.kill(parent, signal.SIGTERM)
