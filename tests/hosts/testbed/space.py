"""Space: a network, a host name and mounts of its own, which programs in it take for a machine."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from testbed.cgroups import CGroup
from testbed.programs import TestbedError

_ENTER = 'for file in {files}; do echo $$ > "$file" || exit 125; done; exec "$@"'
_BOUND = ("setpriv", "--pdeathsig", "KILL")
_GO = 'cd "$0" && exec "$@"'


class Space:
    """Namespaces, held by a process that sleeps and that dies with this one."""

    def __init__(self, kinds: Sequence[str], group: CGroup, setup: str = "") -> None:
        self._kinds = [f"--{kind}" for kind in kinds]
        files = " ".join(shlex.quote(str(file)) for file in group.files)
        self._enter = ["sh", "-c", _ENTER.format(files=files), "sh"]
        script = f"set -e\n{setup}\necho ready\nexec sleep infinity"
        self._keeper = subprocess.Popen(
            [*self._enter, *_BOUND, "unshare", *self._kinds, "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != "ready\n":
            _, said = self._keeper.communicate()
            raise TestbedError(f"namespaces {' '.join(kinds)}: {said.strip()}")

    @property
    def pid(self) -> int:
        """A process that is in there for good."""
        return self._keeper.pid

    @property
    def network(self) -> int:
        """The number of its network namespace, which every process in there shares."""
        return network_of(self.pid)

    def command(self, argv: Sequence[str], folder: Path) -> list[str]:
        """Give the command that runs a program in there; it becomes that program."""
        where = f"--target={self.pid}"
        inside = ["sh", "-c", _GO, str(folder), *argv]
        return [*self._enter, "nsenter", where, *self._kinds, "--", *inside]

    def close(self) -> None:
        """Let go of the namespaces; they vanish with the last process in them."""
        self._keeper.send_signal(signal.SIGKILL)
        self._keeper.communicate()


def is_alive(pid: int) -> bool:
    """Whether a process is there, and is more than an exit status that nobody has asked for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def network_of(pid: int) -> int:
    """Give the number of a process's network namespace; 0 where it has gone."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino  # noqa: PTH116 - a link that leads nowhere
    except OSError:
        return 0
