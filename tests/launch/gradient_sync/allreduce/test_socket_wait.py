"""A rank that waits for others sleeps until a connection tells of something."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress

import pytest

from launch.gradient_sync.allreduce import socket_wait as arrivals
from launch.gradient_sync.allreduce.socket_wait import SocketWait, find_connections

LONG_S = 60.0


@pytest.fixture
def wakeup():
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


@pytest.fixture
def waiting(wakeup, pair, monkeypatch):
    """One that knows its connection, and would wait for it for a minute."""
    monkeypatch.setattr(arrivals, "_MAX_WAIT_S", LONG_S)
    monkeypatch.setattr(arrivals, "find_connections", lambda: frozenset([pair[0].fileno()]))
    found = SocketWait(wakeup)
    found.sleep(0.0)
    found.record(has_progressed=True)  # nobody has told of that: it looks who could have
    found.sleep(0.0)  # no longer than until a poll that reads nothing
    return found


def soon(do) -> threading.Timer:
    timer = threading.Timer(0.05, do)
    timer.start()
    return timer


def drain(stream: socket.socket) -> None:
    with suppress(BlockingIOError):
        while stream.recv(2**20, socket.MSG_DONTWAIT):
            pass


def test_what_arrives_ends_the_sleep(waiting, pair):
    timer = soon(lambda: pair[1].send(b"a part"))
    waiting.sleep(0.0)
    timer.join()
    assert pair[0].recv(100) == b"a part"


def test_message_that_ended_while_it_was_read_is_polled_for_before_a_sleep(waiting, pair, wakeup):
    """Small steps waited up to 50 ms for what MPI had read, and told of in its next call."""
    pair[1].send(b"the last part")
    waiting.sleep(0.0)
    pair[0].recv(100)  # by a poll of MPI, which has not told of it
    would_end_it = threading.Timer(2.0, lambda: os.eventfd_write(wakeup, 1))
    would_end_it.start()
    waiting.sleep(0.0)
    assert would_end_it.is_alive()
    would_end_it.cancel()


def test_room_to_write_ends_the_sleep_only_where_there_was_none(waiting, pair):
    ours, theirs = pair
    with suppress(BlockingIOError):
        while ours.send(bytes(65536)):
            pass
    timer = soon(lambda: drain(theirs))
    waiting.sleep(0.0)
    assert ours.send(b"more") == 4
    timer.join()


def test_room_that_comes_in_the_pause_ends_the_sleep(waiting, pair, wakeup):
    """What MPI had left to send lay there for up to 50 ms where no other host sent anything."""
    ours, theirs = pair
    with suppress(BlockingIOError):
        while ours.send(bytes(65536)):
            pass
    timer = soon(lambda: drain(theirs))
    would_end_it = threading.Timer(2.0, lambda: os.eventfd_write(wakeup, 1))
    would_end_it.start()
    waiting.sleep(0.2)
    assert would_end_it.is_alive()
    would_end_it.cancel()
    timer.join()


def test_worker_ends_the_sleep(waiting, wakeup):
    timer = soon(lambda: os.eventfd_write(wakeup, 1))
    waiting.sleep(0.0)
    timer.join()
    with pytest.raises(BlockingIOError):
        os.eventfd_read(wakeup)  # it was taken


@pytest.fixture
def scans(pair, monkeypatch):
    """How often connections were looked for; there is one, which tells of nothing."""
    found = []
    monkeypatch.setattr(arrivals, "_MAX_WAIT_S", 0.0)
    monkeypatch.setattr(
        arrivals, "find_connections", lambda: found.append(1) or frozenset([pair[0].fileno()])
    )
    return found


def test_connections_that_tell_of_nothing_are_not_waited_for_any_more(wakeup, scans, monkeypatch):
    found = SocketWait(wakeup)
    for _ in range(20):
        os.eventfd_write(wakeup, 1)
        found.sleep(0.0)  # a worker's word is none of theirs
        found.record(has_progressed=True)
        found.sleep(0.0)
        found.sleep(0.0)
        found.record(has_progressed=True)
    assert len(scans) == arrivals._MAX_MISSED - 1
    monkeypatch.setattr(arrivals, "_MAX_WAIT_S", LONG_S)
    found.sleep(0.0)
    found.sleep(0.0)  # would else last a minute


def test_one_sleep_that_nobody_ended_counts_once_however_much_moves_after_it(wakeup, scans):
    found = SocketWait(wakeup)
    found.sleep(0.0)
    for _ in range(20):
        found.record(has_progressed=True)
    assert len(scans) == 1


def test_connections_to_this_machine_and_sockets_of_other_kinds_are_none():
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.connect(("192.0.2.1", 9))
        with client, datagrams, server.accept()[0] as accepted:
            ours = {one.fileno() for one in (server, client, accepted, datagrams)}
            assert not ours & find_connections()


def test_connection_to_another_machine_is_found(testbed):
    bed = testbed(1)
    with socket.create_connection((bed.hosts[0].address, 22)) as to_sshd:
        assert to_sshd.fileno() in find_connections()
