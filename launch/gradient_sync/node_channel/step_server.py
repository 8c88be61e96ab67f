"""Server of the workers between steps where their node is the only one: a thread of its rank."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass

from launch.gradient_sync.node_channel.descriptors import SharedDescriptors
from launch.gradient_sync.node_channel.gradient_layout import GradientLayout
from launch.gradient_sync.node_channel.requests import Directive, Responder, WorkerRequest

_IDLE_POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSyncTimes:
    """Times and bytes of one step's sync, as this rank saw them."""

    computed_s: tuple[float, ...]
    """Of each node: from the start of the step until its last gradient was final."""
    waited_s: float
    """Time that this node waited for others instead of computing."""
    sent_bytes: int
    """By this rank."""
    node_batches: tuple[int, ...] | None
    """Node batches from the next step on, where they change."""


class StepServer:
    """Replies to the requests of one node's workers.

    After each sum over the nodes it calls ``on_sync``, in its own thread.
    """

    def __init__(
        self,
        descriptors: SharedDescriptors,
        workers: int,
        on_sync: Callable[[StepSyncTimes], None] = lambda _: None,
    ) -> None:
        self._on_sync = on_sync
        self._descriptors = descriptors
        self._workers = workers
        self._responder = Responder(descriptors, workers)
        self._control_flags = 0
        self._is_closed = False
        self.steps = 0
        """Steps that the workers have made."""
        self.replied_at = time.monotonic()
        """When the last reply was sent."""
        self.is_waiting = False
        """Whether this node has done its part of a step and waits for others."""

    def set_layout(self, layout: GradientLayout) -> None:
        """Set where the gradients will be, once all workers have reported theirs."""
        return

    def set_control_flags(self, *, checkpoint: bool = False, stop: bool = False) -> None:
        """Request something of all nodes after the next step."""
        flags = Directive(checkpoint=checkpoint, stop=stop).flags
        self._control_flags |= flags  # without a call: a signal may add others in the midst of one
        self._wake()

    def find_late_workers(self) -> list[int]:
        """List the workers that the others of this node wait for; empty where that is not known."""
        late = self._responder.find_missing_workers()
        return late if len(late) < self._workers else []

    def close(self) -> None:
        """End `run`, which may be in the middle of anything."""
        self._is_closed = True
        self._wake()

    def run(self) -> None:
        """Serve the workers until `close`; the body of a thread."""
        while not self._is_closed:
            if not self._serve():
                self._sleep()

    def _serve(self) -> bool:
        """Serve what is pending; return whether there was anything."""
        request_and_argument = self._responder.poll_request()
        if request_and_argument is not None:
            self._reply(*request_and_argument)
        return request_and_argument is not None

    def _reply(self, request: WorkerRequest, argument: int) -> None:
        if request is WorkerRequest.NEXT_DIRECTIVE:
            self.steps += 1
            directive = self._next_directive()
            self.replied_at = time.monotonic()
            self._responder.send_directive(directive)
        else:
            self.replied_at = time.monotonic()
            # The only node has the model of all, and the sum of all.
            self._responder.reply(argument if request is WorkerRequest.ADD else True)

    def _next_directive(self) -> Directive:
        control_flags, self._control_flags = self._control_flags, 0
        return Directive.from_flags(control_flags)

    def _sleep(self) -> None:
        """Sleep until a worker writes to the wake-up descriptor, or for a second."""
        if select.select([self._descriptors.wakeup], [], [], _IDLE_POLL_S)[0]:
            os.eventfd_read(self._descriptors.wakeup)

    def _wake(self) -> None:
        os.eventfd_write(self._descriptors.wakeup, 1)
