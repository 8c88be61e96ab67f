"""Where is a worker that does not go on? As faulthandler wrote it into the worker's log."""

from __future__ import annotations

import sysconfig

_FOLDERS = map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
_LIBRARIES = tuple(f'File "{folder}/' for folder in _FOLDERS)


def waiting_line(log: str) -> str | None:
    """Give the innermost line of the user's own, or of all where there is none.

    Args:
        log: End of what a worker wrote after `launch.workers.group.WorkerGroup.say_where`.

    Returns:
        Such as ``File "case.py", line 7 in dataset``; ``None`` where the worker did not say.
    """
    *_, stack = log.rpartition("Current thread ")
    frames = [line.strip() for line in stack.splitlines()[1:] if line.startswith("  File ")]
    own = [frame for frame in frames if not frame.startswith(_LIBRARIES)]
    return next(iter(own or frames), None)
