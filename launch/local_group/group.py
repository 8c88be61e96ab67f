"""Groups of workers inside a node, which can wait for one another and share memory."""

from __future__ import annotations

import mmap
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from launch.gradient_sync.node_channel.descriptors import REQUEST_BYTES, SharedDescriptors
from launch.gradient_sync.node_channel.gradient_layout import GradientLayout
from launch.gradient_sync.node_channel.shared_state import SharedStepState
from launch.gradient_sync.worker_sync.reducer import CrossNodeReducer, trained_parameters
from launch.local_group.alignment import aligned
from launch.system.event_counter import await_events


class LocalGroup(ABC):
    """The workers of one node, seen from one of them.

    `make_reducer`, `barrier` and `share_bytes` are collective: each worker of the group makes the
    same calls in the same order, or the others wait until their node ends them.
    """

    local_rank: int
    size: int
    cores: tuple[int, ...]
    """Logical CPUs of this worker."""
    has_other_nodes: bool = False
    """Whether other nodes train with this one."""
    reducers: Sequence[CrossNodeReducer] = ()
    """Reducers of this worker; none where there are no other nodes."""
    rendezvous_path: str | None = None
    """File by which torch's process groups connect; ``None`` for threads of a process."""

    def make_reducer(self, model: nn.Module) -> CrossNodeReducer | None:
        """Make this worker's reducer; ``None`` where there are no other nodes. Collective."""
        return None

    @abstractmethod
    def barrier(self) -> None:
        """Wait, without burning a core, until every worker calls it."""

    @abstractmethod
    def share_bytes(self, num_bytes: int) -> Tensor:
        """Allocate zeroed memory that every worker of the group sees.

        Returns:
            A uint8 tensor of ``num_bytes`` elements, aligned to a page.
        """


class LocalProcessGroup(LocalGroup):
    """Worker processes of one node.

    Worker 0 counts the others at a barrier, and then releases them. They wait on descriptors, so
    that what a worker has written before a barrier is seen by the others after it, on every
    processor (see `launch.system.memory_fence`).
    """

    def __init__(
        self,
        local_rank: int,
        size: int,
        cores: Sequence[int],
        descriptors: SharedDescriptors,
        *,
        has_other_nodes: bool = False,
    ) -> None:
        self.local_rank = local_rank
        self.size = size
        self.cores = tuple(cores)
        self.has_other_nodes = has_other_nodes
        self.rendezvous_path = f"/proc/self/fd/{descriptors.rendezvous}"
        self._descriptors = descriptors
        self._barriers = 0
        self._shared_bytes = REQUEST_BYTES
        self._regions: list[tuple[int, int, int]] = []
        self._layout: GradientLayout | None = None

    def make_reducer(self, model: nn.Module) -> CrossNodeReducer | None:
        return self.make_reducers(self.size, model, [self.local_rank], [model])[0]

    def make_reducers(
        self,
        participants: int,
        model: nn.Module,
        numbers: Sequence[int],
        models: Sequence[nn.Module],
    ) -> Sequence[CrossNodeReducer | None]:
        """Make the shared step state, and the reducers of this process. Collective.

        Args:
            participants: Number of participants on this node.
            model: The whole model.
            numbers: Of the participants in this process.
            models: Their replicas of the model.
        """
        if not self.has_other_nodes:
            return [None] * len(numbers)
        parameters = len(trained_parameters(model))
        memory = self.share_bytes(SharedStepState.num_bytes(participants, parameters))
        self._layout = GradientLayout(
            state_offset=self._offset_of(memory),
            participants=participants,
            parameters=parameters,
            locations=(),
            samples={},
        )
        state = SharedStepState(memory.numpy(), participants, parameters)
        self.reducers = [
            CrossNodeReducer(state, number, self._descriptors, self._offset_of, replica)
            for number, replica in zip(numbers, models, strict=True)
        ]
        return self.reducers

    def gradient_layout(self, samples: Mapping[str, int]) -> GradientLayout | None:
        """Describe where the gradients of this process are; ``None`` without other nodes.

        Args:
            samples: That this node has found, by their use.
        """
        if self._layout is None:
            return None
        locations = [one for reducer in self.reducers for one in reducer.locations]
        return replace(self._layout, locations=tuple(locations), samples=samples)

    def _offset_of(self, tensor: Tensor) -> int:
        """Give the offset of a tensor of `share_bytes` in the node's shared memory."""
        address = tensor.data_ptr()
        for begin, num_bytes, offset in self._regions:
            if begin <= address < begin + num_bytes:
                return offset + address - begin
        raise ValueError("the tensor is not in the group's memory")

    def barrier(self) -> None:
        departures = self._descriptors.departures[self._barriers % 2]
        self._barriers += 1
        if self.size == 1:
            return
        if self.local_rank > 0:
            os.eventfd_write(self._descriptors.barrier_count, 1)
            await_events(departures)
            return
        arrived = 1
        while arrived < self.size:
            arrived += await_events(self._descriptors.barrier_count)
        os.eventfd_write(departures, self.size - 1)

    def share_bytes(self, num_bytes: int) -> Tensor:
        offset = self._shared_bytes
        self._shared_bytes += aligned(num_bytes, mmap.PAGESIZE)
        if self.local_rank == 0:
            os.ftruncate(self._descriptors.memory, self._shared_bytes)
        self.barrier()
        region = mmap.mmap(self._descriptors.memory, max(num_bytes, 1), offset=offset)
        memory = torch.frombuffer(region, dtype=torch.uint8)
        self._regions.append((memory.data_ptr(), len(memory), offset))
        return memory[:num_bytes]


class SubGroup(LocalGroup):
    """Some workers of a group, such as those that train the same stage of a pipeline.

    Each worker of ``whole`` is in one sub-group. To make one and `share_bytes` are collective over
    ``whole``; `barrier` over the sub-group alone.

    Args:
        whole: All workers.
        parts: Local ranks of each sub-group.
        wait: Barrier of this sub-group, which does not burn a core.
    """

    def __init__(
        self, whole: LocalGroup, parts: Sequence[Sequence[int]], wait: Callable[[], None]
    ) -> None:
        (self._mine,) = [part for part in parts if whole.local_rank in part]
        self.local_rank = list(self._mine).index(whole.local_rank)
        self.size = len(self._mine)
        self.cores = whole.cores
        self.has_other_nodes = whole.has_other_nodes
        self._whole = whole
        self._parts = parts
        self._wait = wait

    def barrier(self) -> None:
        self._wait()

    def share_bytes(self, num_bytes: int) -> Tensor:
        sizes = self._whole.share_bytes(8 * self._whole.size).view(torch.int64)
        sizes[self._whole.local_rank] = num_bytes
        self._whole.barrier()
        starts, total = {}, 0
        for first, *_ in self._parts:
            starts[first] = total
            total += aligned(int(sizes[first]), mmap.PAGESIZE)
        start = starts[self._mine[0]]
        return self._whole.share_bytes(total)[start : start + num_bytes]


@dataclass(slots=True)
class _ThreadRendezvous:
    """State that the threads of one group share."""

    barrier: threading.Barrier
    reducers: Sequence[CrossNodeReducer | None]
    process: LocalGroup | None
    """Owner of the memory, where the node's rank has to see it."""
    shared: list[Tensor] = field(default_factory=list)


class LocalThreadGroup(LocalGroup):
    """Threads of one process."""

    def __init__(
        self, local_rank: int, cores: Sequence[int], rendezvous: _ThreadRendezvous
    ) -> None:
        self.local_rank = local_rank
        self.size = rendezvous.barrier.parties
        self.cores = tuple(cores)
        self._rendezvous = rendezvous
        self._shares = 0

    @classmethod
    def create(
        cls,
        cores_of: Sequence[Sequence[int]],
        process: LocalGroup | None = None,
        models: Sequence[nn.Module] = (),
    ) -> list[LocalThreadGroup]:
        """Make a group of as many threads as ``cores_of`` has entries.

        Args:
            cores_of: Logical CPUs of each.
            process: Group of their process alone. Its memory is used where there are other nodes,
                because the rank has to see it.
            models: The replica of each.
        """
        count = len(cores_of)
        reducers: Sequence[CrossNodeReducer | None] = [None] * count
        if isinstance(process, LocalProcessGroup):
            reducers = process.make_reducers(count, models[0], range(count), models)
        seen = process if any(reducers) else None
        rendezvous = _ThreadRendezvous(threading.Barrier(count), reducers, seen)
        return [cls(rank, cores, rendezvous) for rank, cores in enumerate(cores_of)]

    def make_reducer(self, model: nn.Module) -> CrossNodeReducer | None:
        return self._rendezvous.reducers[self.local_rank]

    def barrier(self) -> None:
        self._rendezvous.barrier.wait()

    def abort(self) -> None:
        """Make every thread that waits now or later fail with `threading.BrokenBarrierError`."""
        self._rendezvous.barrier.abort()

    def share_bytes(self, num_bytes: int) -> Tensor:
        if self.local_rank == 0:
            process = self._rendezvous.process
            self._rendezvous.shared.append(
                process.share_bytes(num_bytes)
                if process is not None
                else torch.zeros(num_bytes, dtype=torch.uint8)
            )
        self.barrier()
        self._shares += 1
        return self._rendezvous.shared[self._shares - 1]
