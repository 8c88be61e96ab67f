"""Which rank died, and of what? mpirun or srun says so in its log, and nowhere else."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

_MPIRUN = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on signal (\d+)")
_SRUN = re.compile(r"^srun: error: \S+: task (\d+): (\w[\w ]*?)(?: \(core dumped\))?$", re.M)
_WORDS = {signal.strsignal(number): int(number) for number in signal.valid_signals()}


@dataclass(frozen=True, slots=True)
class DeadRank:
    """A rank that a signal has ended."""

    rank: int
    signal: int


def find_dead_rank(log: str) -> DeadRank | None:
    """Give the first rank that a signal ended, ``None`` where there was none.

    Args:
        log: What mpirun or srun wrote to stderr. mpirun breaks its lines anywhere.
    """
    if found := _MPIRUN.search(" ".join(log.split())):
        return DeadRank(int(found[1]), int(found[2]))
    for said in _SRUN.finditer(log):
        if (number := _WORDS.get(said[2])) is not None:
            return DeadRank(int(said[1]), number)
    return None
