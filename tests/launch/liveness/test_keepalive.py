"""A rank is missed when it is gone, and only then."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
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
    """Rank 0 of two, of which the other one never comes.

    Args:
        then: What happens once it has told where it listens, before it looks who comes.
    """

    rank, size = 0, 2

    def __init__(self, then: Callable[[], object]) -> None:
        self.where: dict[str, object] = {}
        self._then = then

    def broadcast(self, document: bytes) -> bytes:
        self.where = json.loads(document)
        self._then()
        return document

    def connect(self, said: bytes) -> socket.socket:
        """Connect to where it listens, and say something."""
        connection = socket.create_connection(self.where["addresses"][0])
        connection.sendall(said)
        return connection

    def all_gather(self, document: bytes) -> list[bytes]:
        return [document, b""]


def test_rank_that_dies_is_missed_and_one_that_says_goodbye_is_not():
    ended = run_ranks(3, ["-c", LEAVE])
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [[], [], [1]]


def test_stranger_is_not_taken_for_a_rank(monkeypatch):
    monkeypatch.setattr("launch.liveness.keepalive._SET_UP_LIMIT_S", 1.0)
    strangers: list[socket.socket] = []
    alone = Alone(lambda: strangers.append(alone.connect(bytes(20))))
    with Keepalive(alone) as keepalive:
        assert keepalive.unconnected == (1,)
        assert keepalive.find_lost() == ()
    with strangers[0]:
        assert strangers[0].recv(1) == b""


def test_strangers_are_not_listened_to_when_the_time_is_up(monkeypatch):
    """The story: the limit counted only while nobody knocked: some could hold a launch for ever."""
    monkeypatch.setattr("launch.liveness.keepalive._SET_UP_LIMIT_S", 0.0)
    strangers: list[socket.socket] = []
    alone = Alone(lambda: strangers.append(alone.connect(bytes(20))))
    Keepalive(alone).close()
    with strangers[0], pytest.raises(ConnectionResetError):
        strangers[0].recv(1)


def test_rank_that_gave_up_before_it_was_accepted_is_not_lost():
    """The story: it counted as one whose host is lost, and the job was ended."""

    def give_up() -> None:
        alone.connect(bytes.fromhex(alone.where["token"]) + (1).to_bytes(4, "big")).close()

    alone = Alone(give_up)
    with Keepalive(alone) as keepalive:
        assert keepalive.unconnected == (1,)
        assert keepalive.find_lost() == ()


def open_sockets() -> set[str]:
    """Give what this process has open, as the kernel names it."""
    return {str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()}


def listening_addresses(*, but: Collection[str] = ()) -> set[str]:
    """Give the IPv4 addresses on which this process listens, ``but`` for some sockets."""
    own = open_sockets().difference(but)
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    listening = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]
    return {socket.inet_ntoa(bytes.fromhex(row[1][:8])[::-1]) for row in listening}


def test_rank_listens_on_the_chosen_addresses_alone(monkeypatch):
    """The story: it listened on every interface of the host, also where no rank could come from."""
    monkeypatch.setattr("launch.liveness.keepalive._SET_UP_LIMIT_S", 0.0)
    found: list[set[str]] = []
    before = open_sockets()  # of MPI, where another test has started it in this process
    alone = Alone(lambda: found.append(listening_addresses(but=before)))
    Keepalive(alone, ["127.0.0.0/8"]).close()
    assert found == [{"127.0.0.1"}]
    assert [address for address, _ in alone.where["addresses"]] == ["127.0.0.1"]
