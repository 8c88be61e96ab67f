"""A rank gives the errors of its wire format to its workers, and takes others from them."""

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
locations = tuple(
    GradientLocation(
        index=0, participant=number, offset=start + 64 * number, layout=TensorLayout(*layout)
    )
    for number, layout in enumerate([("float32", (2, 2), (1, 2))] * 2)
)

def make_steps(comm, wire, all_reduce):
    descriptors = SharedDescriptors.create()
    os.ftruncate(descriptors.memory, REQUEST_BYTES + 8192)
    memory = np.frombuffer(mmap.mmap(descriptors.memory, 0), np.uint8)
    state, client = SharedStepState(memory[REQUEST_BYTES:], 2, 1), RequestClient(descriptors, 0)
    first, second = (memory[start + 64 * n :][: 4 * SIZE].view(np.float32) for n in range(2))
    hosts = [str(rank) for rank in range(comm.size)]
    server = AllReduceServer(
        comm.Dup(), descriptors, 1, hosts=hosts, wire=wire, all_reduce=all_reduce
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    server.set_layout(
        GradientLayout(
            state_offset=REQUEST_BYTES,
            participants=2,
            parameters=1,
            locations=locations,
            samples={},
        )
    )

    def step(number, gradients):
        for target, values in zip((first, second), gradients):
            target[:] = values
        state.kinds[:] = DENSE
        state.ready[:] = state.done[:] = number
        os.eventfd_write(descriptors.wakeup, 1)
        for semaphores in (descriptors.agreements, descriptors.sums):
            for _ in state.done:
                os.eventfd_read(semaphores[number % 2])
        client.get_directive()
        return first.tolist()

    found = [step(1, [[1, 2, 4, 8], [0, 0, 0, comm.rank]])]
    folded = client.fold_errors()
    found.append([bool(folded), first.tolist() if comm.rank == 0 else None, int(state.owners[0])])
    found.append(step(2, [[0, 0, 0, 0]] * 2))
    first[:] = [16, 32, 64, 128]
    second[:] = 1000
    found.append(bool(client.take_errors()))
    found.append([step(number, [[0, 0, 0, 0]] * 2) for number in range(3, 9)])
    server.close()
    thread.join()
    return found

world = MPI.COMM_WORLD
first_two = world.Split(MPI.UNDEFINED if world.rank == 2 else 0, world.rank)
said = {"top1 server": make_steps(world, "top1", "server")}
if first_two != MPI.COMM_NULL:
    said["top1 ring"] = make_steps(first_two, "top1", "ring")
    said["fp32 ring"] = make_steps(first_two, "fp32", "ring")
sys.stdout.write(json.dumps([world.rank, said]) + "\\n")
"""


@pytest.fixture(scope="module")
def said() -> list[dict[str, Any]]:
    """What each of three ranks found, by its rank; the first two alone sum by a ring."""
    return [found for _, found in sorted(map(json.loads, said_by(3, STEPS)))]


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
