"""Programs of ours in a process of their own, under a time limit.

Importing torch takes seconds and starts drivers that cannot be stopped again, so whoever needs
torch for a moment runs a child. It writes JSON, one document a line, each replacing the one
before: so what was known when its time was up is not lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from probes import codec

T = TypeVar("T")

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """Output of a child that has ended."""

    document: dict[str, Any] | None
    """Its last whole document; ``None`` where there is none."""

    failure: str | None
    """Why the document may be incomplete, in a few words; ``None`` for a good end."""

    is_late: bool = False
    """Whether it was killed because its time was up."""


def module_command(module: str, *arguments: str) -> list[str]:
    """Give the command line that runs a module of ours.

    ``-P`` leaves the working folder off the path: a user's ``probes/`` must not be taken for ours.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def run_child(command: Sequence[str], *, limit_s: float) -> ChildResult:
    """Run a program and read its last document.

    When its time is up, or when this process is interrupted, the child is killed together with
    all processes of its group.
    """
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return ChildResult(document=None, failure=f"cannot start {command[0]}: {error.strerror}")
    try:
        output, errors = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _kill_group(child)
        output, _ = child.communicate()
        failure = f"not done after {limit_s:.3g} s"
        return ChildResult(document=find_document(output), failure=failure, is_late=True)
    except BaseException:
        _kill_group(child)
        child.wait()
        raise
    return ChildResult(
        document=find_document(output), failure=_describe_end(child.returncode, errors)
    )


def find_document(output: str, key: str = "") -> dict[str, Any] | None:
    """Find the last JSON object that is a whole line of a program's output, ``None`` without any.

    Args:
        output: What the program, and libraries or logins around it, wrote to stdout.
        key: First key of the object; empty for any.
    """
    for line in reversed(output.splitlines()):
        if line.startswith(f'{{"{key}"' if key else "{"):
            with contextlib.suppress(ValueError, RecursionError):  # the last line may be cut off
                return dict(json.loads(line))
    return None


def read_request(as_type: type[T]) -> T:
    """Read what this program is asked, the first line of stdin; exit where that ends before.

    From now on signals exit as well, through the end of all that is started.
    """
    for number in ENDING_SIGNALS:
        signal.signal(number, lambda *_: sys.exit(0))
    line = b""
    while not line.endswith(b"\n"):  # byte by byte: what follows is read elsewhere
        if not (byte := os.read(0, 1)):
            sys.exit(0)
        line += byte
    return codec.decode(line, as_type, source="request")


def _kill_group(child: subprocess.Popen[str]) -> None:
    # not yet waited for, so its number cannot belong to another group by now
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _describe_end(exit_code: int, errors: str) -> str | None:
    if exit_code == 0:
        return None
    lines = errors.strip().splitlines()
    return f"exit code {exit_code}" + (f" ({lines[-1].strip()})" if lines else "")
