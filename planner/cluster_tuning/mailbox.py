"""Mailbox: JSON documents between rank 0 and the other ranks, while all of them work.

A thread of each rank sends and receives them without blocking, and sleeps in between. A blocking
call of MPI would keep a core busy, which a trial may be using.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from mpi4py import MPI

_TAG = 78
_POLL_INTERVAL_S = 0.02


class Mailbox:
    """The way between rank 0 and every other rank.

    Use it in a ``with`` block; leaving it waits until all ranks leave, unless by an exception.
    Inside the block only this may use the communicator. What a rank sends to itself arrives too.
    ``on_document`` takes what arrives, sender and document, in a thread of its own.
    """

    def __init__(self, comm: MPI.Comm, on_document: Callable[[int, bytes], None]) -> None:
        self._comm = comm
        self._rank = comm.Get_rank()
        others = range(1, comm.Get_size()) if self._rank == 0 else (0,)
        self._channels = {rank: _Channel(comm, rank) for rank in others}
        self._on_document = on_document
        self._own: SimpleQueue[bytes] = SimpleQueue()
        self._is_closing = threading.Event()
        self._is_aborted = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="mailbox", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        (self._is_closing if kind is None else self._is_aborted).set()
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def send(self, to: int, document: bytes) -> None:
        """Send a document that is not empty; from any thread, without waiting."""
        if to == self._rank:
            self._own.put(document)
        else:
            self._channels[to].outbox.put(document)

    def _run(self) -> None:
        try:
            while not self._is_aborted.is_set():
                is_busy = self._deliver_own()
                for rank, channel in self._channels.items():
                    for document in channel.poll():
                        self._on_document(rank, document)
                        is_busy = True
                is_idle = not is_busy and self._own.empty()
                if self._is_closing.is_set() and is_idle and self._close_all():
                    return
                time.sleep(0 if is_busy else _POLL_INTERVAL_S)
        except BaseException as error:  # noqa: BLE001 - raised again where it can be seen
            self._failure = error
            os.kill(os.getpid(), signal.SIGTERM)  # the main thread may be waiting for a document

    def _close_all(self) -> bool:
        closed = [channel.close() for channel in self._channels.values()]
        return all(closed)

    def _deliver_own(self) -> bool:
        try:
            document = self._own.get_nowait()
        except Empty:
            return False
        self._on_document(self._rank, document)
        return True


class _Channel:
    """Both directions between this rank and one other. After an empty message none comes."""

    def __init__(self, comm: MPI.Comm, rank: int) -> None:
        self.outbox: SimpleQueue[bytes] = SimpleQueue()
        self._comm = comm
        self._rank = rank
        self._pending_sends: list[MPI.Request] = []
        self._arriving: MPI.Request | None = None
        self._has_sent_close = self._has_received_close = False

    def poll(self) -> list[bytes]:
        """Send and receive what can be now; give what has arrived."""
        while not self.outbox.empty():
            self._send(self.outbox.get())
        self._pending_sends = [one for one in self._pending_sends if not one.Test()]
        arrived = []
        while document := self._receive():
            arrived.append(document)
        return arrived

    def close(self) -> bool:
        """Say that nothing more comes; tell whether the other has said so and all is sent."""
        if not self._has_sent_close and self.outbox.empty():
            self._has_sent_close = True
            self._send(b"")
        return self._has_sent_close and self._has_received_close and not self._pending_sends

    def _send(self, document: bytes) -> None:
        self._pending_sends.append(self._comm.isend(document, self._rank, _TAG))

    def _receive(self) -> bytes | None:
        if self._arriving is None:
            message = self._comm.improbe(self._rank, _TAG)
            if message is None:
                return None
            self._arriving = message.irecv()
        has_arrived, found = self._arriving.test()
        if not has_arrived:
            return None
        self._arriving, document = None, bytes(found or b"")
        self._has_received_close = not document
        return document
