"""Rank channel: connections from the processes of a script that make steps."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from launch.scripts.recognition import Fetch, OptimizerEvent

_READ_BYTES = 1 << 16
_MOST_LINE_BYTES = 1 << 24
_CREDENTIALS = struct.Struct("3i")


class Rank:
    """A process that makes steps, and the events that it has reported."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.pid, self.rank, self.world = 0, 0, 1
        self.threads: int | None = None
        self.is_known = False
        self.is_async = False
        self.waits = False
        self.has_ended = False
        self.unseen_batches = 0
        """That it has read for its training since its last step; 0 where they are few."""
        self.smaller_steps = 0
        """Its last ones in a row whose batches are smaller than most."""
        self.steps_s = 0.0
        """Of all its steps after the first one."""
        self.rest_s: float | None = None
        """From its last step to its end; ``None`` before that."""
        self.rest_batches = 0
        """That it read for its training, and for no step, in that time."""
        self.ended_by: str | None = None
        """Words of the error that ends it; ``None`` where there is none, or not yet."""
        self.patched: frozenset[str] = frozenset()
        """Patches that have changed something in it."""
        self.optimizers: dict[int, str] = {}
        self.idle_optimizers = 0
        """Others that there are when the first one steps."""
        self.loader_workers: dict[int, int | None] = {}
        """Of each data loader; ``None`` where they are not seen."""
        self._data: dict[int, int] = {}
        """Of each data loader."""
        self._step_data: set[int] | None = None
        """That all of its steps which read batches have in common; ``None``: none has read any."""
        self.events: list[OptimizerEvent] = []
        self._unread = b""
        self._has_stepped = False

    @property
    def has_read(self) -> bool:
        """Whether it has read batches for its steps: another rank may read them for it."""
        return self._step_data is not None

    def permit(self, steps: int, boundary: int) -> None:
        """Let it make so many steps more.

        Args:
            steps: Of the optimizer ``boundary``.
            boundary: -1: of any optimizer.
        """
        self.waits = False
        try:
            turn = json.dumps({"steps": steps, "boundary": boundary})
            self.connection.sendall(turn.encode() + b"\n")
        except OSError:
            self.has_ended = True

    def read(self, token: str) -> None:
        """Take what it has told."""
        try:
            block = self.connection.recv(_READ_BYTES)
        except OSError:
            block = b""
        if not block:
            self.has_ended = True
            return
        *lines, self._unread = (self._unread + block).split(b"\n")
        if len(self._unread) > _MOST_LINE_BYTES:
            self.has_ended = True
        for line in lines:
            document = json.loads(line)
            if self.is_known:
                self._take(document)
            elif hmac.compare_digest(str(document.get("token")), token):
                self.is_known = True
                self.pid, self.threads = document["pid"], document["threads"]
                self.rank, self.world = document["rank"], document["world"]
                self.is_async = document["is_async"]
                self.patched = frozenset(document["patched"])
            else:
                self.has_ended = True
                return

    def _take(self, document: Mapping[str, Any]) -> None:
        for new in document["news"]:
            if "optimizer" in new:
                self.idle_optimizers = self.idle_optimizers if self.optimizers else new["idle"]
                self.optimizers[new["optimizer"]] = new["name"]
            else:
                self.loader_workers[new["loader"]] = new["workers"]
                self._data[new["loader"]] = new["data"]
        events = _events(document["events"])
        self.steps_s += sum(event.time_s for event in events[0 if self._has_stepped else 1 :])
        self._has_stepped = self._has_stepped or bool(events)
        for event in events:
            if read := {self._data.get(fetch.loader, -1) for fetch in event.trained}:
                self._step_data = read if self._step_data is None else self._step_data & read
            self.events.append(self._without_evaluation(event))
        if "rest" in document:
            self.rest_s, self.rest_batches = document["rest_s"], self._count(document["rest"])
        self.ended_by = document.get("ended_by", self.ended_by)
        # They came after the events of the same report.
        if "unseen" in document:
            self.unseen_batches = self._count(document["unseen"])
        elif events:
            self.unseen_batches = 0
        self.waits = self.waits or document.get("waits", False)

    def _without_evaluation(self, event: OptimizerEvent) -> OptimizerEvent:
        """Mark what an evaluation read that records gradients where it reads."""
        fetches = tuple(
            fetch if self._may_train(fetch) else replace(fetch, is_training=False)
            for fetch in event.fetches
        )
        return event if fetches == event.fetches else replace(event, fetches=fetches)

    def _may_train(self, fetch: Fetch) -> bool:
        """Tell whether it may be of a step.

        All that is read with gradients may be, where the steps that show have no data in common.
        Where they have, other data are those of an evaluation.
        """
        data = self._data.get(fetch.loader, -1)
        return fetch.is_training and (not self._step_data or data in self._step_data)

    def _count(self, told: Sequence[Sequence[Any]]) -> int:
        """Count batches that may be those of steps that do not show."""
        return sum(fetch.count for fetch in _fetches(told) if self._may_train(fetch))


class RankChannel:
    """A socket of this user's processes on this machine, with a token that the shim is given."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self.address = f"ddlplan-{secrets.token_hex(16)}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind("\0" + self.address)
        self.socket.listen(1024)
        self.socket.setblocking(False)
        self._all: list[Rank] = []

    @property
    def settings(self) -> dict[str, object]:
        """What the shim has to know to connect."""
        return {"address": self.address, "token": self.token}

    @property
    def ranks(self) -> list[Rank]:
        """Those that have named themselves, by rank."""
        known = [rank for rank in self._all if rank.is_known]
        return sorted(known, key=lambda rank: (rank.rank, rank.pid))

    @property
    def readable(self) -> list[socket.socket]:
        """What may have something to read."""
        return [self.socket, *(rank.connection for rank in self._all if not rank.has_ended)]

    def read(self, file: socket.socket) -> None:
        """Take what one of `readable` has."""
        if file is self.socket:
            self._accept()
            return
        for rank in self._all:
            if rank.connection is file:
                rank.read(self.token)
                if rank.has_ended and not rank.is_known:
                    rank.connection.close()
                    self._all.remove(rank)
                return

    def close(self) -> None:
        """Close all connections."""
        for rank in self._all:
            rank.connection.close()
        self.socket.close()

    def _accept(self) -> None:
        try:
            connection, _ = self.socket.accept()
        except BlockingIOError:
            return
        packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(packed)[1] != os.geteuid():
            connection.close()
            return
        self._all.append(Rank(connection))


def _events(told: Sequence[list[Any]]) -> list[OptimizerEvent]:
    """Make the events of a report: of one like the last of its optimizer, only times are told."""
    last: dict[int, OptimizerEvent] = {}
    made: list[OptimizerEvent] = []
    for optimizer, time_ns, input_ns, *rest in told:
        if rest:
            fetches, backwards, loss = rest
            event = OptimizerEvent(
                optimizer=optimizer,
                time_s=time_ns / 1e9,
                input_s=input_ns / 1e9,
                fetches=_fetches(fetches),
                backwards=backwards,
                loss=loss,
            )
        else:
            event = replace(
                last[optimizer], time_s=time_ns / 1e9, input_s=input_ns / 1e9, loss=None
            )
        last[optimizer] = event
        made.append(event)
    return made


def _fetches(told: Sequence[Sequence[Any]]) -> tuple[Fetch, ...]:
    return tuple(
        Fetch(loader=loader, size=size, is_training=bool(trains), count=count)
        for loader, size, trains, count in told
    )
