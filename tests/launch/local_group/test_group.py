"""How the workers of a node wait for one another and share memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from launch.gradient_sync.node_channel.descriptors import SharedDescriptors
from launch.local_group.group import LocalGroup, LocalProcessGroup, LocalThreadGroup
from launch.local_group.shared_parameters import SharedBuffers

ROUNDS = 300


@pytest.fixture(params=["processes", "threads"])
def three(request) -> Iterator[list[LocalGroup]]:
    """Three workers. The threads of one process may play processes: they meet by descriptors."""
    descriptors = SharedDescriptors.create()
    by_descriptors = [LocalProcessGroup(rank, 3, (), descriptors) for rank in range(3)]
    yield by_descriptors if request.param == "processes" else LocalThreadGroup.create([(), (), ()])
    descriptors.close()


def on_each(three: list[LocalGroup], work: Callable[[LocalGroup], object]) -> list[object]:
    with ThreadPoolExecutor(3) as pool:
        return [call.result(timeout=60) for call in [pool.submit(work, one) for one in three]]


def test_none_of_three_workers_leaves_a_barrier_before_all_have_come(three):
    arrived = [0, 0, 0]

    def meet(group: LocalGroup) -> bool:
        held = True
        for turn in range(1, ROUNDS + 1):
            arrived[group.local_rank] = turn
            group.barrier()
            # A quicker one may be a round ahead and no more: there it waits for this one.
            held &= all(turn <= other <= turn + 1 for other in arrived)
        return held

    assert on_each(three, meet) == [True, True, True]


def test_three_workers_see_the_memory_that_they_share_and_each_part_of_it_once(three):
    def write(group: LocalGroup) -> list[list[int]]:
        seen = []
        for block in range(2):
            memory = group.share_bytes(3)
            memory[group.local_rank] = 10 * block + group.local_rank + 1
            group.barrier()
            seen.append(memory.tolist())
            assert memory.dtype is torch.uint8
        return seen

    assert on_each(three, write) == [[[1, 2, 3], [11, 12, 13]]] * 3


def test_buffers_in_whose_place_a_step_puts_others_become_those_of_the_first_worker(three):
    """The story: the tensors of the beginning were sent, and each worker kept a mean of its own."""
    sizes = [2, 1, 3]  # of what only the second worker has in its first size

    def keep_mean(group: LocalGroup) -> list[list[float]]:
        model = nn.Module()
        model.register_buffer("mean", torch.zeros(3))
        model.register_buffer("seen", torch.zeros(1))
        buffers = SharedBuffers(model, group)
        model.mean = model.mean + group.local_rank + 1
        model.seen = torch.full((sizes[group.local_rank],), 5.0)
        buffers.broadcast_from_first()
        return [model.mean.tolist(), model.seen.tolist()]

    assert on_each(three, keep_mean) == [[[1.0] * 3, [5.0] * size] for size in sizes]


def test_buffer_that_is_a_conjugate_view_becomes_that_of_the_first_worker(three):
    """The story: such a view has no bytes of its own, and the epoch ended with PyTorch's error."""

    def share(group: LocalGroup) -> list[complex]:
        model = nn.Module()
        model.register_buffer("phase", torch.tensor([complex(group.local_rank, 2)]).conj())
        SharedBuffers(model, group).broadcast_from_first()
        return model.phase.resolve_conj().tolist()

    assert on_each(three, share) == [[0 - 2j]] * 3
