"""Requests of workers to their rank between steps, and the one reply for all of them.

The rank alone receives signals, messages of other nodes and timeouts. It replies when every worker
of the node has sent the same request, and where there are several nodes when the workers of all
have: so all do the same after the same step.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from launch.gradient_sync.node_channel.descriptors import REQUEST_BYTES, SharedDescriptors
from launch.gradient_sync.node_channel.shared_state import Bytes
from launch.system.event_counter import await_events
from launch.system.memory_fence import fence

_REPLY_WORDS = 8
_MAX_NODES = 4096
_WINDOW_START = 1 << 19
"""Before it lie the requests of 15,358 workers, more than Linux can have processors (8,192)."""

_WINDOW_BYTES = REQUEST_BYTES - _WINDOW_START
"""Most bytes of one `WorkerRequest.BROADCAST`."""


class WorkerRequest(IntEnum):
    """Kind of a request."""

    NEXT_DIRECTIVE = 1
    """A step is done: get the next directive."""

    COMPARE_DIGESTS = 2
    """Compare worker 0's digest with those of all nodes."""

    BROADCAST = 3
    """Send the window, which node 0's worker 0 has filled, to all nodes."""

    ADD = 4
    """Add the numbers of the worker 0 of every node."""

    FOLD_ERRORS = 5
    """Give the errors of the wire format, of all nodes, to node 0, for a checkpoint."""

    TAKE_ERRORS = 6
    """Take over such errors from the workers of node 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """What the workers do after a step."""

    checkpoint: bool = False
    """Write a checkpoint before anything else."""

    stop: bool = False
    """End in order, without the steps that are left."""

    node_batches: tuple[int, ...] | None = None
    """Node batches from the next step on, where they change."""

    @classmethod
    def from_flags(cls, flags: int, node_batches: tuple[int, ...] | None = None) -> Directive:
        """Make the directive of these flags, the bits of `flags`."""
        return cls(checkpoint=bool(flags & 1), stop=bool(flags & 2), node_batches=node_batches)

    @property
    def flags(self) -> int:
        """Bits that say what to do."""
        return self.checkpoint | self.stop << 1


class _RequestMemory:
    """Memory of requests and replies, as both sides see it."""

    def __init__(self, memory: int) -> None:
        region = mmap.mmap(memory, REQUEST_BYTES)
        words = np.frombuffer(region, np.int64, _WINDOW_START // 8)
        self.reply = words[:_REPLY_WORDS]
        self.node_batches = words[_REPLY_WORDS : _REPLY_WORDS + _MAX_NODES]
        self.requests = words[_REPLY_WORDS + _MAX_NODES :].reshape(-1, 4)
        self.window = np.frombuffer(region, np.uint8, _WINDOW_BYTES, _WINDOW_START)


class RequestClient:
    """A worker's side. Each method is collective over the workers of the node."""

    def __init__(self, descriptors: SharedDescriptors, local_rank: int) -> None:
        self._descriptors = descriptors
        self._memory = _RequestMemory(descriptors.memory)
        self._own_request = self._memory.requests[local_rank]
        self._is_first = local_rank == 0

    def get_directive(self) -> Directive:
        """Get what to do after a step."""
        flags = self._send(WorkerRequest.NEXT_DIRECTIVE)
        changed = int(self._memory.reply[1])
        batches = tuple(self._memory.node_batches[:changed].tolist())
        return Directive.from_flags(flags, batches or None)

    def is_equal(self, digest: int) -> bool:
        """Compare a digest with those of all nodes.

        Args:
            digest: Of this node, below 2**63; only worker 0's counts.
        """
        return bool(self._send(WorkerRequest.COMPARE_DIGESTS, digest))

    def add(self, value: float) -> float:
        """Add a number of each node; every worker gets the same sum.

        Args:
            value: Of this node; only worker 0's counts.
        """
        return float(np.int64(self._send(WorkerRequest.ADD, float_bits(value))).view(np.float64))

    def fold_errors(self) -> bool:
        """Add up the errors that the nodes carry over to the next step, and let node 0 carry them.

        Afterwards they are in the gradients of node 0, as the sums of a step are: until the next
        step, workers may read them there.

        Returns:
            Whether there are any: an exact wire format has none.
        """
        return bool(self._send(WorkerRequest.FOLD_ERRORS))

    def take_errors(self) -> bool:
        """Carry over to the next step what is in the gradients of node 0, and nothing else.

        Returns:
            Whether the wire format can.
        """
        return bool(self._send(WorkerRequest.TAKE_ERRORS))

    def broadcast(self, num_bytes: int, *, is_source: bool) -> Iterator[Bytes]:
        """Send bytes from worker 0 of the first node to the other nodes, a window at a time.

        Args:
            num_bytes: Equal on every worker.
            is_source: Whether this is the first node.

        Yields:
            Memory of a few MB: to be filled by the worker that sends, filled on other nodes.
            Nothing on the other workers of the first node, which have to iterate too.
        """
        for start in range(0, num_bytes, _WINDOW_BYTES):
            part = self._memory.window[: num_bytes - start]
            if is_source and self._is_first:
                yield part
            self._send(WorkerRequest.BROADCAST, len(part))
            if not is_source:
                yield part

    def broadcast_array(self, content: Bytes, *, is_source: bool) -> None:
        """Overwrite an array on other nodes by that of worker 0 of the first; see `broadcast`."""
        start = 0
        for part in self.broadcast(len(content), is_source=is_source):
            own = content[start : start + len(part)]
            if is_source:
                part[:] = own
            else:
                own[:] = part
            start += len(part)

    def _send(self, request: WorkerRequest, argument: int = 0) -> int:
        """Send a request; return the first word of the reply."""
        replies = self._descriptors.replies[int(self._own_request[0]) % 2]
        self._own_request[1:3] = request, argument
        fence()  # the request before the number that says that it is there
        self._own_request[0] += 1
        os.eventfd_write(self._descriptors.wakeup, 1)
        await_events(replies)
        return int(self._memory.reply[0])


class Responder:
    """A rank's side."""

    def __init__(self, descriptors: SharedDescriptors, workers: int) -> None:
        self._descriptors = descriptors
        self._memory = _RequestMemory(descriptors.memory)
        self._requests = self._memory.requests[:workers]
        self._replied = 0
        self.window = self._memory.window

    def poll_request(self) -> tuple[WorkerRequest, int] | None:
        """Return the workers' request with worker 0's argument; ``None`` until all have sent it."""
        if int(self._requests[:, 0].min()) == self._replied:
            return None
        fence()  # the numbers before the requests
        return WorkerRequest(int(self._requests[0, 1])), int(self._requests[0, 2])

    def find_missing_workers(self) -> list[int]:
        """List the workers that have not sent the request."""
        return [
            i for i, requests in enumerate(self._requests[:, 0]) if int(requests) == self._replied
        ]

    def send_directive(self, directive: Directive) -> None:
        """Reply to `WorkerRequest.NEXT_DIRECTIVE`."""
        batches = directive.node_batches or ()
        self._memory.node_batches[: len(batches)] = batches
        self._memory.reply[:2] = directive.flags, len(batches)
        self._release_workers()

    def reply(self, value: int) -> None:
        """Reply to the other requests."""
        self._memory.reply[0] = value
        self._release_workers()

    def _release_workers(self) -> None:
        os.eventfd_write(self._descriptors.replies[self._replied % 2], len(self._requests))
        self._replied += 1


def float_bits(value: float) -> int:
    """Give the bits of a number as an integer, in which form requests and replies have it."""
    return int(np.float64(value).view(np.int64))
