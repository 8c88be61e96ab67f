"""Supervisor of a script: starts it, adopts what it leaves behind, and ends all of it.

A program, ``python -m launch.scripts.supervisor``. It reads a `ScriptRequest` as the first line of
stdin. On stdout it tells how the script's first process ended. When stdin ends, because who
started it says so or is gone, it ends every process below it: a daemon too has it as its parent
then, because it is their subreaper.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launch.scripts.private_view import cover
from launch.system.process_end import die_with_parent, kill_group, prefer_for_oom_kill
from launch.system.process_tree import (
    adopt_orphans,
    end_descendants,
    find_descendants,
    has_ended,
    open_end,
    reap_all,
    reap_orphans,
    send_signal,
)
from launch.system.session import defer_signals
from launch.system.temporary_folder import remove_folders
from probes.child_process import ENDING_SIGNALS, read_request

INTERRUPT_S, GRACE_S = 1.5, 1.5
"""Time to end after SIGINT, as after Ctrl-C, and then after SIGTERM."""

_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRequest:
    """What a supervisor is to start."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    """All variables."""

    folder: str
    layers: tuple[str, str] | None = None
    """Of the overlay that covers the folder."""

    private: tuple[str, ...]
    """Folders that are removed in the end: who started it may be gone by then."""

    locks: tuple[int, ...] = ()
    """Inherited descriptors of files in them."""

    cores: tuple[int, ...] = ()
    output: int
    """Inherited descriptor for what it writes."""


def supervise(request: ScriptRequest) -> None:
    """Run a script until stdin ends."""
    adopt_orphans()
    owner = os.getpid()
    if request.layers is not None:
        cover(request.folder, *request.layers)

    def prepare() -> None:  # in the script's process, before it becomes the script
        die_with_parent(owner, signal.SIGKILL)
        prefer_for_oom_kill()
        if request.cores:
            os.sched_setaffinity(0, request.cores)
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    began = time.perf_counter()
    try:
        child = subprocess.Popen(
            request.command,
            cwd=request.folder,
            env=dict(request.environment),
            stdin=subprocess.DEVNULL,
            stdout=request.output,
            stderr=request.output,
            start_new_session=True,
            preexec_fn=prepare,  # safe: this process has one thread
        )
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        _tell({"failed": f"{request.command[0]}: {error}"})
        return
    finally:
        os.close(request.output)
    _tell({"pid": child.pid})
    code: int | None = None
    end = open_end(child.pid)  # to know the moment
    while True:
        ready = select.select([0] if code is not None else [0, *end], [], [], _POLL_S)[0]
        now = time.perf_counter()
        if 0 in ready and not os.read(0, 4096):
            break
        reap_orphans(child.pid)
        if code is None and has_ended(child.pid):
            code = child.wait()
            _tell({"ended": code, "time_s": now - began})
    send_signal(find_descendants(owner), signal.SIGCONT)  # those that stand still between turns
    if code is None:
        kill_group(child.pid, signal.SIGINT)
        _await_ends(INTERRUPT_S)
    end_descendants(grace_s=GRACE_S)


def _await_ends(limit_s: float) -> None:
    give_up = time.monotonic() + limit_s
    while find_descendants(os.getpid()) and time.monotonic() < give_up:
        reap_all()
        time.sleep(0.01)


def _tell(document: Mapping[str, object]) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(document).encode() + b"\n")


def main() -> None:
    """Read the request and look after the script."""
    request = read_request(ScriptRequest)
    try:
        supervise(request)
    except OSError as error:
        _tell({"failed": str(error)})
    finally:
        with defer_signals():
            end_descendants(grace_s=0.0)
            remove_folders(map(Path, request.private), request.locks)


if __name__ == "__main__":
    main()
