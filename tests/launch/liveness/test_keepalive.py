"""Is a rank missed when it is gone, and only then?"""

from __future__ import annotations

import json
import socket
import threading

from ranks_here import run_ranks

from launch.liveness.keepalive import Keepalive

LEAVE = """
import json, sys, time
from mpi4py import MPI
from launch.liveness.keepalive import Keepalive
from launch.mpi.ranks import Ranks

ranks = Ranks(MPI.COMM_WORLD)
keepalive = Keepalive(ranks)
before = keepalive.find_lost()
ranks.barrier()
if ranks.rank == 1:
    keepalive._connections[0].close()  # as the kernel does for a process that dies
if ranks.rank == 2:
    keepalive.close()
ranks.barrier()
if ranks.rank == 0:
    while not (lost := keepalive.find_lost()):
        time.sleep(0.01)
    sys.stdout.write(json.dumps([keepalive.unconnected, before, lost]))
ranks.barrier()
"""


class Alone:
    """Rank 0 of two, of which the other one never comes."""

    rank, size = 0, 2

    def __init__(self) -> None:
        self.where: dict[str, object] = {}
        self.is_told = threading.Event()

    def broadcast(self, document: bytes) -> bytes:
        self.where = json.loads(document)
        self.is_told.set()
        return document

    def all_gather(self, document: bytes) -> list[bytes]:
        return [document, b""]


def test_rank_that_dies_is_missed_and_one_that_says_goodbye_is_not():
    ended = run_ranks(3, ["-c", LEAVE])
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [[], [], [1]]


def test_stranger_is_not_taken_for_a_rank(monkeypatch):
    monkeypatch.setattr("launch.liveness.keepalive._SET_UP_LIMIT_S", 0.5)
    alone = Alone()
    connected = []

    def knock() -> None:
        alone.is_told.wait()
        with socket.create_connection(("localhost", alone.where["port"])) as stranger:
            stranger.sendall(bytes(20))
            connected.append(stranger.recv(1))

    knocking = threading.Thread(target=knock)
    knocking.start()
    with Keepalive(alone) as keepalive:
        assert keepalive.unconnected == (1,)
        assert keepalive.find_lost() == ()
    knocking.join()
    assert connected == [b""]
