"""A rank judges the steps of its workers, gives them the errors of its wire format and takes them.

All of it in one start of three ranks.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from ranks_here import said_by

STEPS = """
import json, mmap, os, sys, threading
import numpy as np
from mpi4py import MPI
from launch.gradient_sync.node_channel.shared_state import DENSE, SharedStepState
from launch.gradient_sync.allreduce.server import AllReduceServer
from launch.gradient_sync.node_channel.gradient_layout import (
    GradientLayout, GradientLocation, TensorLayout
)
from launch.gradient_sync.node_channel.requests import RequestClient
from launch.gradient_sync.node_channel.descriptors import REQUEST_BYTES, SharedDescriptors

SIZE = 4
start = REQUEST_BYTES + 4096

class Node:
    def __init__(self, comm, participants, **settings):
        self.descriptors = SharedDescriptors.create()
        os.ftruncate(self.descriptors.memory, REQUEST_BYTES + 8192)
        memory = np.frombuffer(mmap.mmap(self.descriptors.memory, 0), np.uint8)
        self.state = SharedStepState(memory[REQUEST_BYTES:], participants, 1)
        self.client = RequestClient(self.descriptors, 0)
        places = [start + 64 * number for number in range(participants)]
        self.gradients = [memory[place:][: 4 * SIZE].view(np.float32) for place in places]
        hosts = [str(rank) for rank in range(comm.size)]
        self.server = AllReduceServer(comm.Dup(), self.descriptors, 1, hosts=hosts, **settings)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        layout = TensorLayout("float32", (2, 2), (1, 2))
        locations = tuple(
            GradientLocation(index=0, participant=number, offset=place, layout=layout)
            for number, place in enumerate(places)
        )
        self.server.set_layout(
            GradientLayout(
                state_offset=REQUEST_BYTES,
                participants=participants,
                parameters=1,
                locations=locations,
                samples={},
            )
        )

    def step(self, number, *gradients):
        for target, values in zip(self.gradients, gradients):
            target[:] = values
        self.state.kinds[:] = DENSE
        self.state.ready[:] = self.state.done[:] = number
        os.eventfd_write(self.descriptors.wakeup, 1)
        for semaphores in (self.descriptors.agreements, self.descriptors.sums):
            for _ in self.state.done:
                os.eventfd_read(semaphores[number % 2])
        self.client.get_directive()
        return self.gradients[0].tolist()

    def close(self):
        self.server.close()
        self.thread.join()

def fold_errors(comm, wire, all_reduce):
    node, zeros = Node(comm, 2, wire=wire, all_reduce=all_reduce), [0, 0, 0, 0]
    first, second = node.gradients
    found = [node.step(1, [1, 2, 4, 8], [0, 0, 0, comm.rank])]
    folded, shown = node.client.fold_errors(), first.tolist() if comm.rank == 0 else None
    found.append([bool(folded), shown, int(node.state.owners[0])])
    found.append(node.step(2, zeros, zeros))
    first[:] = [16, 32, 64, 128]
    second[:] = 1000
    found.append(bool(node.client.take_errors()))
    found.append([node.step(number, zeros, zeros) for number in range(3, 9)])
    node.close()
    return found

class RecordingRebalancer:
    step = 0
    noted = []

    def add(self, step_times_s):
        self.noted.append(self.step)

def judge_steps(comm):
    rebalancer = RecordingRebalancer()
    node, rest = Node(comm, 1, rebalancer=rebalancer), (2, 4)[comm.rank]
    for rebalancer.step in range(6):
        node.state.is_full[0] = rebalancer.step != rest
        node.step(rebalancer.step + 1)
    node.close()
    return rebalancer.noted

world = MPI.COMM_WORLD
first_two = world.Split(MPI.UNDEFINED if world.rank == 2 else 0, world.rank)
said = {"top1 server": fold_errors(world, "top1", "server")}
if first_two != MPI.COMM_NULL:
    said["top1 ring"] = fold_errors(first_two, "top1", "ring")
    said["fp32 ring"] = fold_errors(first_two, "fp32", "ring")
    said["judged"] = judge_steps(first_two)
sys.stdout.write(json.dumps([world.rank, said]) + "\\n")
"""


@pytest.fixture(scope="module")
def said() -> list[dict[str, Any]]:
    """What each of three ranks found, by its rank; the first two alone sum by a ring."""
    return [found for _, found in sorted(map(json.loads, said_by(3, STEPS)))]


def test_shares_are_judged_by_steps_that_are_full_on_every_node_and_begin_no_epoch(said):
    assert [found["judged"] for found in said[:2]] == [[1, 3, 5]] * 2


@pytest.mark.parametrize(("ranks", "all_reduce"), [(2, "ring"), (3, "server")])
def test_errors_of_all_nodes_are_shown_to_the_first_and_taken_from_it(ranks, all_reduce, said):
    every = [found[f"top1 {all_reduce}"] for found in said[:ranks]]
    sums, (has_errors, errors, owner), *_ = every[0]
    assert all(found[0] == sums for found in every)
    assert has_errors
    assert owner == 0
    whole = [ranks, 2 * ranks, 4 * ranks, 8 * ranks + sum(range(ranks))]
    assert [one + other for one, other in zip(sums, errors, strict=True)] == whole
    after = every[0][4]
    assert all(found[3] for found in every)
    assert [sum(column) for column in zip(*after, strict=True)] == [16, 32, 64, 128]


def test_exact_numbers_leave_nothing_to_show_or_to_take(said):
    for rank in (0, 1):
        _, (has_errors, *_), _, is_taken, _ = said[rank]["fp32 ring"]
        assert not has_errors
        assert not is_taken
