"""Sum of one step's gradients over all nodes, bucket after bucket as they become final."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from launch.gradient_sync.allreduce.bucket_order import BucketOrder
from launch.gradient_sync.allreduce.bucket_sum import BucketSum
from launch.gradient_sync.allreduce.buckets import Bucket
from launch.gradient_sync.node_channel.shared_state import SharedStepState
from launch.system.memory_fence import fence


class StepSum:
    """The sum of one step's gradients over all nodes.

    Args:
        state: Read for final gradients, written for finished sums.
        buckets: Of all gradients, in the order of a backward pass.
        bucket_sum: Sums the buckets, and has nothing else in flight.
        order: In which buckets are started.
        number: Of the sum.
    """

    def __init__(
        self,
        state: SharedStepState,
        buckets: Sequence[Bucket],
        bucket_sum: BucketSum,
        order: BucketOrder,
        number: int,
    ) -> None:
        self._state = state
        self._buckets = buckets
        self._bucket_sum = bucket_sum
        self._order = order
        self._number = number
        self._ready = self._done = 0
        self._in_flight: dict[int, Bucket] = {}
        self._missing = Counter(index for bucket in buckets for index in bucket.parameters)
        """Buckets of each parameter that are not summed yet."""
        without_elements = [i for i in range(len(state.summed)) if i not in self._missing]
        state.summed[without_elements] = number
        order.begin()

    @property
    def is_done(self) -> bool:
        """Whether all gradients are summed."""
        return self._done == len(self._buckets)

    @property
    def is_moving(self) -> bool:
        """Whether the other nodes may send something."""
        return self._ready > self._done

    def advance(self) -> bool:
        """Advance without waiting; return whether that was any farther."""
        before = (self._ready, self._bucket_sum.sent_bytes, self._done)
        while self._ready < len(self._buckets) and self._next_is_ready():
            self._ready += 1
        if self._ready > before[0]:
            fence()  # the flags before the gradients
        self._start()
        for flat in self._bucket_sum.take_finished():
            self._take(self._in_flight.pop(id(flat)))
        return before != (self._ready, self._bucket_sum.sent_bytes, self._done)

    def _next_is_ready(self) -> bool:
        return self._buckets[self._ready].is_ready(self._state, self._number)

    def _start(self) -> None:
        while (
            chosen := self._order.next(self._ready, has_capacity=self._bucket_sum.has_capacity)
        ) is not None:
            bucket = self._buckets[chosen]
            bucket.sum_replicas()
            self._in_flight[id(bucket.flat)] = bucket
            self._bucket_sum.start(bucket.flat, bucket.errors)

    def _take(self, bucket: Bucket) -> None:
        bucket.write_back()
        fence()  # the sums before their flags
        self._done += 1
        for index in bucket.parameters:
            self._missing[index] -= 1
            if not self._missing[index]:
                self._state.summed[index] = self._number
