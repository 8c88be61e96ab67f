"""All-reduce server: a rank's part in the steps of several nodes, in one thread.

It sums gradients over the nodes as they become final, and replies to the requests of the workers
between steps. It alone waits for MPI. It never spins: while the workers compute it sleeps until one
of them writes to the wake-up descriptor, and while messages are in flight until a socket is ready,
or for a moment.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from launch.gradient_sync.allreduce.agreement import Agreement
from launch.gradient_sync.allreduce.backoff import PollBackoff
from launch.gradient_sync.allreduce.bucket_order import BucketOrder, FixedOrder, agree_on_order
from launch.gradient_sync.allreduce.buckets import Bucket, make_buckets
from launch.gradient_sync.allreduce.consistency import compare_data, compare_models
from launch.gradient_sync.allreduce.encoded_sum import make_sum
from launch.gradient_sync.allreduce.rebalancer import Rebalancer
from launch.gradient_sync.allreduce.socket_wait import SocketWait
from launch.gradient_sync.allreduce.step_sum import StepSum
from launch.gradient_sync.node_channel.descriptors import SharedDescriptors
from launch.gradient_sync.node_channel.gradient_layout import GradientLayout
from launch.gradient_sync.node_channel.requests import Directive, WorkerRequest, float_bits
from launch.gradient_sync.node_channel.shared_state import SharedStepState
from launch.gradient_sync.node_channel.step_server import StepServer, StepSyncTimes
from launch.system.memory_fence import fence

_POLL_S = 0.0005
"""Pause between two polls while the thread waits for the other ranks alone."""


@dataclass(slots=True)
class _Step:
    """A step whose sum is in flight."""

    sum: StepSum
    sent_before: int
    """Bytes that this rank had sent."""
    computed_at: float | None = None
    """When the last gradient of this node was final."""
    waited_s: float = 0.0
    """Time that its workers had waited for the sums of the step before."""
    agreement: Agreement | None = None
    is_waiting_for_nodes: bool = True
    """Whether some node has not reported that it has computed its gradients."""
    released_at: float | None = None
    """When the workers began the next step, if before the sum was done."""
    node_batches: tuple[int, ...] | None = None


class AllReduceServer(StepServer):
    """A rank's part in the steps of a job of several nodes.

    Nothing else may use ``comm``, of all ranks of the job, from now on.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        descriptors: SharedDescriptors,
        workers: int,
        on_sync: Callable[[StepSyncTimes], None] = lambda _: None,
        *,
        hosts: Sequence[str],
        rebalancer: Rebalancer | None = None,
        all_reduce: str = "ring",
        wire: str = "fp32",
    ) -> None:
        super().__init__(descriptors, workers, on_sync)
        self._comm = comm
        self._hosts = hosts
        self._rebalancer = rebalancer
        self._bucket_sum = make_sum(comm, all_reduce=all_reduce, wire=wire)
        self._pending_layout: GradientLayout | None = None
        self._state: SharedStepState | None = None
        self._buckets: list[Bucket] = []
        self._number = 1
        self._order: BucketOrder = FixedOrder()
        self._step: _Step | None = None
        self._backoff = PollBackoff()
        self._socket_wait = SocketWait(descriptors.wakeup)
        self._directive = Directive()
        self._is_odd_step = True
        """Whether the workers do more in this step than in others: they begin an epoch, or change
        their shares."""

    def set_layout(self, layout: GradientLayout) -> None:
        self._pending_layout = layout
        self._wake()

    def find_late_workers(self) -> list[int]:
        if self._state is None or len(self._state.done) != self._workers:
            return super().find_late_workers()
        for is_late in (np.less(self._state.done, self._number), self._state.waits_for_node == 0):
            late: list[int] = np.flatnonzero(is_late).tolist()
            if 0 < len(late) < self._workers:
                return late
        return super().find_late_workers()

    def run(self) -> None:
        super().run()
        self._order.close()

    def _sleep(self) -> None:
        step = self._step
        if step is not None and (
            step.sum.is_moving or (step.agreement is not None and step.is_waiting_for_nodes)
        ):  # other nodes may send something
            self._socket_wait.sleep(self._backoff.pause_s)
        else:
            super()._sleep()

    def _serve(self) -> bool:
        if self._pending_layout is not None:
            layout, self._pending_layout = self._pending_layout, None
            self.is_waiting = True
            self._prepare(layout)
            self.is_waiting = False
            return True
        if self._state is None:
            return False  # requests come later: all ranks must do the same in the same order
        has_progressed = self._advance(self._state)
        return super()._serve() or has_progressed

    def _prepare(self, layout: GradientLayout) -> None:
        memory = np.frombuffer(mmap.mmap(self._descriptors.memory, 0), np.uint8)
        gradients = layout.by_parameter()
        compare_data(self._comm, layout.samples, self._hosts)
        layouts = [replicas[0].layout for replicas in gradients]
        has_same_layout = compare_models(self._comm, layouts, self._hosts)
        self._buckets = make_buckets(gradients, has_same_layout, memory)
        if not self._bucket_sum.wire_format.is_exact:
            for bucket in self._buckets:
                bucket.keep_errors()
        if len(self._buckets) > self._bucket_sum.max_in_flight:
            self._order = agree_on_order(self._comm, len(self._buckets))
        self._state = SharedStepState(
            memory[layout.state_offset :], layout.participants, layout.parameters
        )
        self._state.owners[:] = [replicas[0].participant for replicas in gradients]
        for number, bucket in enumerate(self._buckets, start=1):
            if len(bucket.parameters) > 1:
                self._state.buckets[list(bucket.parameters)] = number

    def _reply(self, request: WorkerRequest, argument: int) -> None:
        # After a step the workers continue, perhaps until they need what is still being summed.
        self.is_waiting = request is not WorkerRequest.NEXT_DIRECTIVE or self._step is not None
        match request:
            case WorkerRequest.NEXT_DIRECTIVE:
                super()._reply(request, argument)
                if self._step is not None:
                    self._step.released_at = self.replied_at
                return
            case WorkerRequest.COMPARE_DIGESTS:
                digests = self._all_gather(np.array([argument], np.int64))
                reply = int((digests == digests[0]).all())
            case WorkerRequest.BROADCAST:
                window = self._responder.window[:argument]
                self._wait(self._comm.Ibcast([window, argument, MPI.BYTE]))
                reply = True
            case WorkerRequest.ADD:
                # In the order of the ranks: the same on each of them, to the last bit.
                values = self._all_gather(np.array([argument], np.int64)).view(np.float64)
                reply = float_bits(values.sum())
            case WorkerRequest.FOLD_ERRORS:
                reply = self._fold_errors()
            case WorkerRequest.TAKE_ERRORS:
                reply = self._take_errors()
        self._is_odd_step = True
        self.is_waiting = False
        self.replied_at = time.monotonic()
        self._responder.reply(reply)

    def _fold_errors(self) -> bool:
        """Give the errors of all nodes to node 0; return whether there are any."""
        errors = [bucket.errors for bucket in self._buckets if bucket.errors is not None]
        if not errors:
            return False
        make_sum(self._comm).sum_all(errors, is_cancelled=lambda: self._is_closed)
        for bucket in self._buckets:
            if self._comm.rank == 0:
                bucket.show_errors()
            else:
                bucket.keep_errors()
        return True

    def _take_errors(self) -> bool:
        """Take the errors from the workers of node 0; return whether they are carried over."""
        if self._bucket_sum.wire_format.is_exact:
            return False
        for bucket in self._buckets:
            if self._comm.rank == 0:
                bucket.take_errors()
            else:
                bucket.keep_errors()
        return True

    def _next_directive(self) -> Directive:
        directive, self._directive = self._directive, Directive()
        self._is_odd_step = directive != Directive()
        return directive

    def _advance(self, state: SharedStepState) -> bool:
        """Advance the step without waiting; return whether that was any farther."""
        if self._step is None:
            if int(state.ready.max()) < self._number:
                return False
            sum_ = StepSum(state, self._buckets, self._bucket_sum, self._order, self._number)
            self._step = _Step(sum_, self._bucket_sum.sent_bytes)
        step = self._step
        has_progressed = step.sum.advance()
        self._backoff.record(has_progressed=has_progressed)
        if step.computed_at is None and int(state.done.min()) >= self._number:
            self._start_agreement(step, state)
        if step.is_waiting_for_nodes and step.agreement is not None and step.agreement.is_done():
            self._finish_agreement(step, step.agreement)
            has_progressed = True
        if step.sum.is_done and step.agreement is not None and not step.is_waiting_for_nodes:
            self._end(step, step.agreement)
            has_progressed = True
        self._socket_wait.record(has_progressed=has_progressed)
        return has_progressed

    def _start_agreement(self, step: _Step, state: SharedStepState) -> None:
        fence()  # the flags before what they say is there
        step.computed_at = time.monotonic()
        step.waited_s = float(state.waited_s.min())
        self.is_waiting = True
        computed_s = step.computed_at - self.replied_at - step.waited_s
        control_flags, self._control_flags = self._control_flags, 0
        step.agreement = Agreement(self._comm, state, computed_s, control_flags)

    def _finish_agreement(self, step: _Step, agreement: Agreement) -> None:
        """Release the workers that can continue without all the sums."""
        step.is_waiting_for_nodes = False
        is_like_others = agreement.is_full and not self._is_odd_step
        if self._rebalancer is not None and is_like_others:
            step.node_batches = self._rebalancer.add(agreement.computed_s)
        self._directive = Directive.from_flags(agreement.control_flags, step.node_batches)
        self._release_workers(self._descriptors.agreements)

    def _end(self, step: _Step, agreement: Agreement) -> None:
        self._step = None
        self.is_waiting = False
        self._release_workers(self._descriptors.sums)
        self._number += 1
        assert step.computed_at is not None, "a step ends after it was computed"
        waited_until = step.released_at or time.monotonic()
        self._on_sync(
            StepSyncTimes(
                computed_s=agreement.computed_s,
                waited_s=step.waited_s + waited_until - step.computed_at,
                sent_bytes=self._bucket_sum.sent_bytes - step.sent_before,
                node_batches=step.node_batches,
            )
        )

    def _release_workers(self, semaphores: tuple[int, int]) -> None:
        assert self._state is not None, "workers wait after the layout is set"
        os.eventfd_write(semaphores[self._number % 2], len(self._state.done))

    def _all_gather(self, values: NDArray[Any]) -> NDArray[Any]:
        """Give the values of every rank, one row each."""
        rows = np.empty((self._comm.size, len(values)), values.dtype)
        self._wait(self._comm.Iallgather(values, rows))
        return rows

    def _wait(self, request: MPI.Request) -> None:
        while not request.Test() and not self._is_closed:
            time.sleep(_POLL_S)
