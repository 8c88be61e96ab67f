"""A rank that says where it is and what it is sent: ``hello_rank [wait | watch | fail]``."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time

from mpi4py import MPI

from launch.liveness.keepalive import Keepalive
from launch.liveness.watchdog import end_daemon
from launch.mpi.ranks import Ranks
from launch.reports import Warned


def say(message: str) -> None:
    os.write(1, Warned(message=message).encode())


def watch(ranks: Ranks) -> None:
    """Talk until a rank is lost, and leave it to the job to end."""
    with Keepalive(ranks) as keepalive:
        say(f"rank {ranks.rank} watches all but {keepalive.unconnected}")
        while not keepalive.find_lost():
            time.sleep(0.05)
            say(f"rank {ranks.rank} goes on")
        end_daemon()
        os._exit(3)


def main(what: str) -> None:
    ranks = Ranks(MPI.COMM_WORLD)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda given, _: say(f"rank {ranks.rank} got {given}"))
    names = ranks.all_gather(socket.gethostname().encode())
    say(f"rank {ranks.rank} of {b' '.join(names).decode()}")
    ranks.barrier()
    if what == "fail" and ranks.rank == 1:
        raise ValueError("rank 1 was told to fail")
    parent = os.getppid()
    if what == "watch":
        watch(ranks)
    while what in ("wait", "fail") and os.getppid() == parent:
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
