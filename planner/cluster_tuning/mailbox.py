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
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from mpi4py import MPI

_TAG = 78
_POLL_INTERVAL_S = 0.02
_CLOSED = 0


class Mailbox:
    """The way between rank 0 and every other rank.

    Use it in a ``with`` block; leaving it waits until all ranks leave, unless by an exception.
    Inside the block only this may use the communicator. What a rank sends to itself arrives too.

    Args:
        comm: The ranks.
        on_document: Takes what arrives, in a thread of its own: sender and document.
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
    """Both directions between this rank and one other. A document follows its length."""

    def __init__(self, comm: MPI.Comm, rank: int) -> None:
        self.outbox: SimpleQueue[bytes] = SimpleQueue()
        self._comm = comm
        self._rank = rank
        self._pending_sends: list[tuple[MPI.Request, Any]] = []
        self._length = np.zeros(1, dtype=np.int64)
        self._pending_receive: MPI.Request | None = comm.Irecv(self._length, rank, _TAG)
        self._body: np.ndarray[Any, np.dtype[np.uint8]] | None = None
        self._has_sent_close = False

    def poll(self) -> list[bytes]:
        """Send and receive what can be now; give what has arrived."""
        while not self.outbox.empty():
            self._start_sending(self.outbox.get())
        self._pending_sends = [
            (request, buffer) for request, buffer in self._pending_sends if not request.Test()
        ]
        arrived = []
        while (document := self._receive()) is not None:
            arrived.append(document)
        return arrived

    def close(self) -> bool:
        """Say that nothing more comes; tell whether the other has said so and all is sent."""
        if not self._has_sent_close and self.outbox.empty():
            self._has_sent_close = True
            self._send(np.array([_CLOSED], dtype=np.int64))
        return self._has_sent_close and self._pending_receive is None and not self._pending_sends

    def _start_sending(self, document: bytes) -> None:
        self._send(np.array([len(document)], dtype=np.int64))
        self._send(np.frombuffer(document, dtype=np.uint8))

    def _send(self, values: Any) -> None:
        self._pending_sends.append((self._comm.Isend(values, self._rank, _TAG), values))

    def _receive(self) -> bytes | None:
        if self._pending_receive is None or not self._pending_receive.Test():
            return None
        if self._body is None:
            if self._length[0] == _CLOSED:
                self._pending_receive = None
                return None
            self._body = np.empty(int(self._length[0]), dtype=np.uint8)
            self._pending_receive = self._comm.Irecv(self._body, self._rank, _TAG)
            return self._receive()
        document = self._body.tobytes()
        self._body = None
        self._pending_receive = self._comm.Irecv(self._length, self._rank, _TAG)
        return document
