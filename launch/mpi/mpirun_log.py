"""Log of mpirun or srun: the rank that died, and the host that was lost."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

_MPIRUN = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on signal (\d+)")
_SRUN = re.compile(r"^srun: error: \S+: task (\d+): (\w[\w ]*?)(?: \(core dumped\))?$", re.M)
_SIGNALS_BY_NAME = {signal.strsignal(number): int(number) for number in signal.valid_signals()}
_LOST = re.compile(
    r"lost communication with a remote daemon.*?Remote daemon:[^\n]* on node (\S+)", re.S
)

LOGIN_BROKEN = (0, 255)
"""Exit codes of mpirun where the ssh that it had started was killed, and where that has lost a host
before mpirun did: its log is empty."""


@dataclass(frozen=True, slots=True)
class DeadRank:
    """A rank that a signal has ended."""

    rank: int
    signal: int


def find_dead_rank(log: str) -> DeadRank | None:
    """Find the first rank that a signal ended, ``None`` where there was none.

    Args:
        log: What mpirun or srun wrote to stderr. mpirun breaks its lines anywhere.
    """
    if found := _MPIRUN.search(" ".join(log.split())):
        return DeadRank(int(found[1]), int(found[2]))
    for found in _SRUN.finditer(log):
        if (number := _SIGNALS_BY_NAME.get(found[2])) is not None:
            return DeadRank(int(found[1]), number)
    return None


def find_lost_host(log: str) -> str | None:
    """Find the first host that stopped answering, named as `launch.hosts.ssh.ssh_name` has it."""
    found = _LOST.search(log)
    return found.group(1) if found else None
