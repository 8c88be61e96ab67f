"""Who trains together inside a node? Workers that can wait for one another and share memory."""

from __future__ import annotations

import mmap
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from launch.exchange.board import Board
from launch.exchange.peers import Peers, Place, board_in, trained_parameters
from launch.training.handles import QUESTION_BYTES, GroupHandles


class LocalGroup(ABC):
    """The workers of one node, seen from one of them.

    `meet_peers`, `barrier` and `share_bytes` are collective: each worker of the group makes the
    same calls in the same order, or the others wait until their node ends them.
    """

    local_rank: int
    size: int
    cores: tuple[int, ...]
    """Logical CPUs of this worker."""
    has_peers: bool = False
    """Whether other nodes train with this one."""

    @property
    def meeting_path(self) -> str | None:
        """A file by which torch's process groups may meet; ``None`` for threads of a process."""
        return None

    def meet_peers(self, model: nn.Module) -> Peers | None:
        """Give this worker's way to the other nodes; ``None`` where there are none. Collective.

        Args:
            model: The whole model.
        """
        return None

    @abstractmethod
    def offset_of(self, tensor: Tensor) -> int:
        """Give the place of a tensor of `share_bytes` in the memory that the node's rank sees."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait, without burning a core, until every worker is here."""

    @abstractmethod
    def share_bytes(self, num_bytes: int) -> Tensor:
        """Give zeroed memory that every worker of the group sees.

        Returns:
            A uint8 tensor of ``num_bytes`` elements, aligned to a page.
        """


class ProcessGroup(LocalGroup):
    """Worker processes of one node.

    The barrier counts arrivals at worker 0, which then lets the others go. Departures alternate
    between two semaphores, so that a quick worker cannot take the place of a slow one by coming
    round to the next barrier first.
    """

    def __init__(
        self,
        local_rank: int,
        size: int,
        cores: Sequence[int],
        handles: GroupHandles,
        *,
        has_peers: bool = False,
    ) -> None:
        self.local_rank = local_rank
        self.size = size
        self.cores = tuple(cores)
        self.place: Place | None = None
        """Where the peers meet, once somebody asked for them."""
        self.has_peers = has_peers
        self._handles = handles
        self._barriers = 0
        self._shared_bytes = QUESTION_BYTES
        self._regions: list[tuple[int, int, int]] = []

    def meet_peers(self, model: nn.Module) -> Peers | None:
        return self.meet_peers_on(self.size, model, [self.local_rank], [model])[0]

    def meet_peers_on(
        self,
        participants: int,
        model: nn.Module,
        numbers: Sequence[int],
        models: Sequence[nn.Module],
    ) -> Sequence[Peers | None]:
        """Make the board, and the peers of this process. Collective.

        Args:
            participants: Who computes gradients on this node.
            model: The whole model.
            numbers: Of those in this process.
            models: Their replicas of the model.
        """
        if not self.has_peers:
            return [None] * len(numbers)
        parameters = len(trained_parameters(model))
        memory = self.share_bytes(Board.num_bytes(participants, parameters))
        self.place = Place(
            board_offset=self.offset_of(memory),
            participants=participants,
            parameters=parameters,
            held=[],
        )
        board = board_in(memory, participants, parameters)
        return [
            Peers(board, number, self.place, self._handles, self.offset_of, replica)
            for number, replica in zip(numbers, models, strict=True)
        ]

    def offset_of(self, tensor: Tensor) -> int:
        address = tensor.data_ptr()
        for begin, num_bytes, offset in self._regions:
            if begin <= address < begin + num_bytes:
                return offset + address - begin
        raise ValueError("the tensor is not in the group's memory")

    @property
    def meeting_path(self) -> str | None:
        return f"/proc/self/fd/{self._handles.meeting}"

    def barrier(self) -> None:
        departures = self._handles.departures[self._barriers % 2]
        self._barriers += 1
        if self.size == 1:
            return
        if self.local_rank > 0:
            os.eventfd_write(self._handles.arrivals, 1)
            os.eventfd_read(departures)
            return
        arrived = 1
        while arrived < self.size:
            arrived += os.eventfd_read(self._handles.arrivals)
        os.eventfd_write(departures, self.size - 1)

    def share_bytes(self, num_bytes: int) -> Tensor:
        offset = self._shared_bytes
        self._shared_bytes += -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        if self.local_rank == 0:
            os.ftruncate(self._handles.memory, self._shared_bytes)
        self.barrier()
        region = mmap.mmap(self._handles.memory, max(num_bytes, 1), offset=offset)
        memory = torch.frombuffer(region, dtype=torch.uint8)
        self._regions.append((memory.data_ptr(), len(memory), offset))
        return memory[:num_bytes]


class SubGroup(LocalGroup):
    """Some workers of a group, such as those that train the same stage of a pipeline.

    Each worker of ``whole`` is in one sub-group. It makes one at the same time as the others, and
    asks for memory when they do; it may wait for its own sub-group whenever it likes.

    Args:
        whole: All workers.
        parts: Local ranks of each sub-group.
        wait: Waits, without burning a core, for the workers of this sub-group alone.
    """

    def __init__(
        self, whole: LocalGroup, parts: Sequence[Sequence[int]], wait: Callable[[], None]
    ) -> None:
        (self._mine,) = [part for part in parts if whole.local_rank in part]
        self.local_rank = list(self._mine).index(whole.local_rank)
        self.size = len(self._mine)
        self.cores = whole.cores
        self.has_peers = whole.has_peers
        self._whole = whole
        self._parts = parts
        self._wait = wait

    def barrier(self) -> None:
        self._wait()

    def offset_of(self, tensor: Tensor) -> int:
        return self._whole.offset_of(tensor)

    def share_bytes(self, num_bytes: int) -> Tensor:
        sizes = self._whole.share_bytes(8 * self._whole.size).view(torch.int64)
        sizes[self._whole.local_rank] = num_bytes
        self._whole.barrier()
        starts, total = {}, 0
        for first, *_ in self._parts:
            starts[first] = total
            total += -(-int(sizes[first]) // mmap.PAGESIZE) * mmap.PAGESIZE
        start = starts[self._mine[0]]
        return self._whole.share_bytes(total)[start : start + num_bytes]


@dataclass(slots=True)
class _ThreadMeeting:
    """What the threads of one group have in common."""

    barrier: threading.Barrier
    peers: Sequence[Peers | None]
    process: LocalGroup | None
    """Whose memory is used, where the node's rank has to see it."""
    shared: list[Tensor] = field(default_factory=list)


class ThreadGroup(LocalGroup):
    """Threads of one process."""

    def __init__(self, local_rank: int, cores: Sequence[int], meeting: _ThreadMeeting) -> None:
        self.local_rank = local_rank
        self.size = meeting.barrier.parties
        self.cores = tuple(cores)
        self._meeting = meeting
        self._shares = 0

    @classmethod
    def create(
        cls,
        cores_of: Sequence[Sequence[int]],
        process: LocalGroup | None = None,
        models: Sequence[nn.Module] = (),
    ) -> list[ThreadGroup]:
        """Make a group of as many threads as ``cores_of`` has entries.

        Args:
            cores_of: Logical CPUs of each.
            process: What their process belongs to: it alone. Its memory is used where there are
                other nodes, whose rank has to see it.
            models: The replica of each.
        """
        count = len(cores_of)
        peers: Sequence[Peers | None] = [None] * count
        if isinstance(process, ProcessGroup):
            peers = process.meet_peers_on(count, models[0], range(count), models)
        seen = process if any(peers) else None
        meeting = _ThreadMeeting(threading.Barrier(count), peers, seen)
        return [cls(rank, cores, meeting) for rank, cores in enumerate(cores_of)]

    def meet_peers(self, model: nn.Module) -> Peers | None:
        return self._meeting.peers[self.local_rank]

    def offset_of(self, tensor: Tensor) -> int:
        assert self._meeting.process is not None, "without peers nobody else sees the memory"
        return self._meeting.process.offset_of(tensor)

    def barrier(self) -> None:
        self._meeting.barrier.wait()

    def abort(self) -> None:
        """Let every thread that waits now or later fail with `threading.BrokenBarrierError`."""
        self._meeting.barrier.abort()

    def share_bytes(self, num_bytes: int) -> Tensor:
        if self.local_rank == 0:
            process = self._meeting.process
            self._meeting.shared.append(
                process.share_bytes(num_bytes)
                if process is not None
                else torch.zeros(num_bytes, dtype=torch.uint8)
            )
        self.barrier()
        self._shares += 1
        return self._meeting.shared[self._shares - 1]
