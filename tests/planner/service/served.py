"""``ddlplan serve`` as a process, from when it has said where it is."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Server:
    """A server that runs in a folder.

    Attributes:
        start: Starts ddlplan there.
        options: It was started with.
    """

    start: Callable[..., subprocess.Popen[str]]
    options: tuple[object, ...]
    process: subprocess.Popen[str] | None = None
    address: str = ""

    def begin(self) -> None:
        """Start it, and wait for its address."""
        self.process = self.start("serve", *self.options)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address, self.process.stderr.read()

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal and give its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        return self.process.returncode


def write_token(folder: Path) -> str:
    """Make the file ``token`` in a folder, readable by its owner alone, and give its content."""
    token = "a-token-of-more-than-thirty-two-characters"
    file = folder / "token"
    file.touch(mode=0o600)
    file.write_text(f"{token}\n")
    return token
