"""Calls of the system's programs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

SSHD = "/usr/sbin/sshd"


class TestbedError(Exception):
    """The machine does not let us build or change a testbed."""


def run(argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what it has to say is the error where it fails."""
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, **options)
    if ended.returncode != 0:
        said = (ended.stderr or ended.stdout).strip()
        raise TestbedError(f"{' '.join(argv)}: exit code {ended.returncode}: {said}")
    return ended
