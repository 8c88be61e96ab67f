"""A flag in shared memory is set after a fence, and what it stands for is read after another.

The processor of this machine may keep stores in order by itself, so what is seen here is where the
fences are.
"""

from __future__ import annotations

import os
import select
import threading

import numpy as np
import pytest
import torch
from torch import nn

from launch.gradient_sync.node_channel import step_server
from launch.gradient_sync.node_channel.descriptors import REQUEST_BYTES, SharedDescriptors
from launch.gradient_sync.node_channel.requests import (
    Directive,
    RequestClient,
    Responder,
    WorkerRequest,
)
from launch.gradient_sync.node_channel.shared_state import DENSE, SharedStepState
from launch.gradient_sync.worker_sync.reducer import CrossNodeReducer
from launch.system.memory_fence import fence


@pytest.fixture
def descriptors():
    made = SharedDescriptors.create()
    yield made
    made.close()


def test_python_that_was_built_on_an_old_system_shares_memory_too(monkeypatch):
    """The story: with Python of conda or of uv no worker could be started."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    descriptors = SharedDescriptors.create()
    assert os.fstat(descriptors.memory).st_size == REQUEST_BYTES
    descriptors.close()


def test_every_core_of_the_largest_machine_can_have_a_worker(descriptors):
    """From the 1,023rd worker of a node on, there was no place for a request."""
    workers = 8192
    client, responder = RequestClient(descriptors, workers - 1), Responder(descriptors, workers)
    assert responder.find_missing_workers() == list(range(workers))
    client._own_request[0] += 1
    assert responder.find_missing_workers() == list(range(workers - 1))


def test_request_is_whole_before_its_number_says_that_it_is_there(descriptors, monkeypatch):
    client, responder = RequestClient(descriptors, 0), Responder(descriptors, 1)
    seen = []

    def look() -> None:
        seen.append(client._own_request[:3].tolist())
        fence()

    monkeypatch.setattr("launch.gradient_sync.node_channel.requests.fence", look)
    asking = threading.Thread(target=client.is_equal, args=[7])
    asking.start()
    while (request := responder.poll_request()) is None:
        pass
    responder.reply(1)
    asking.join()
    assert request == (WorkerRequest.COMPARE_DIGESTS, 7)
    kind = int(WorkerRequest.COMPARE_DIGESTS)
    assert seen == [[0, kind, 7], [1, kind, 7]]  # before it is there, and once it was seen


def test_gradient_is_written_before_its_flag_and_summed_ones_are_read_after_theirs(
    descriptors, monkeypatch
):
    model = nn.Linear(2, 1, bias=False)
    state = SharedStepState(np.zeros(SharedStepState.num_bytes(1, 1), np.uint8), 1, 1)
    reducer = CrossNodeReducer(state, 0, descriptors, lambda _: 64, model)
    index = reducer.register_gradient(model.weight, torch.zeros(1, 2))
    seen = []

    def look() -> None:
        seen.append((int(state.ready[0, 0]), int(state.done[0]), float(state.losses[0])))

    monkeypatch.setattr("launch.gradient_sync.worker_sync.reducer.fence", look)
    reducer.mark_ready(index)
    assert seen == [(0, 0, 0.0)]
    state.global_loss[0] = 0.5
    os.eventfd_write(descriptors.agreements[1], 1)  # as the rank does
    reducer.agree_on_step(0.5, 8.0, [DENSE], [index], is_full=True)
    assert seen[1:] == [(1, 0, 0.5)]  # what comes with the step is there before it is done
    state.summed[0] = 1
    assert reducer.find_summed().tolist() == [True]
    assert len(seen) == 3


def test_rank_is_woken_where_it_may_begin_with_a_bucket_and_not_for_every_gradient(descriptors):
    model = nn.Linear(2, 1)
    state = SharedStepState(np.zeros(SharedStepState.num_bytes(2, 2), np.uint8), 2, 2)
    reducers = [
        CrossNodeReducer(state, number, descriptors, lambda _: 64, model) for number in range(2)
    ]
    for parameter in model.parameters():
        reducers[0].register_gradient(parameter, torch.zeros_like(parameter))
    reducers[1].register_gradient(model.bias, torch.zeros(1))

    def wakes_by(reducer: CrossNodeReducer, index: int) -> bool:
        reducer.mark_ready(index)
        is_woken = bool(select.select([descriptors.wakeup], [], [], 0.0)[0])
        if is_woken:
            os.eventfd_read(descriptors.wakeup)
        return is_woken

    assert wakes_by(reducers[0], 1)  # it does not know yet what comes together
    state.buckets[:] = 1
    state.ready[:] = 0
    assert not wakes_by(reducers[0], 1)
    assert wakes_by(reducers[0], 0)
    assert wakes_by(reducers[1], 1)  # it has nothing else there
    os.eventfd_write(descriptors.sums[1], 1)  # as the rank does
    reducers[0].finish()
    assert not wakes_by(reducers[0], 0)
    assert wakes_by(reducers[0], 1)


def test_signal_in_the_midst_of_another_request_is_not_lost(descriptors, monkeypatch):
    """The story: a SIGUSR2 while the rank asked for the checkpoint that was due ended nothing."""
    server = step_server.StepServer(descriptors, 1)

    def interrupted(**wanted: bool) -> Directive:
        monkeypatch.undo()
        server.set_control_flags(stop=True)  # as the handler of the signal does
        return Directive(**wanted)

    monkeypatch.setattr(step_server, "Directive", interrupted)
    server.set_control_flags(checkpoint=True)
    assert server._next_directive() == Directive(checkpoint=True, stop=True)
