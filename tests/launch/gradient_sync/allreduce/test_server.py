"""A rank judges the steps of its workers by what they report."""

from __future__ import annotations

import json

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

class RecordingRebalancer:
    step = 0
    noted = []

    def add(self, step_times_s):
        self.noted.append(self.step)

comm, rebalancer, descriptors = MPI.COMM_WORLD, RecordingRebalancer(), SharedDescriptors.create()
gradient = GradientLocation(
    index=0,
    participant=0,
    offset=REQUEST_BYTES + 4096,
    layout=TensorLayout("float32", (3,), (1,)),
)
os.ftruncate(descriptors.memory, REQUEST_BYTES + 8192)
memory = np.frombuffer(mmap.mmap(descriptors.memory, 0), np.uint8)
state, client = SharedStepState(memory[REQUEST_BYTES:], 1, 1), RequestClient(descriptors, 0)
server = AllReduceServer(comm.Dup(), descriptors, 1, hosts=["a", "b"], rebalancer=rebalancer)
thread = threading.Thread(target=server.run)
thread.start()
server.set_layout(
    GradientLayout(
        state_offset=REQUEST_BYTES,
        participants=1,
        parameters=1,
        locations=(gradient,),
        samples={"training": 6},
    )
)
rest = (2, 4)[comm.rank]
for rebalancer.step in range(6):
    number = rebalancer.step + 1
    state.is_full[0] = rebalancer.step != rest
    state.kinds[0] = DENSE
    state.ready[0] = state.done[0] = number
    os.eventfd_write(descriptors.wakeup, 1)
    os.eventfd_read(descriptors.agreements[number % 2])
    os.eventfd_read(descriptors.sums[number % 2])
    client.get_directive()
server.close()
thread.join()
sys.stdout.write(json.dumps(rebalancer.noted) + "\\n")
"""


def test_shares_are_judged_by_steps_that_are_full_on_every_node_and_begin_no_epoch():
    assert [json.loads(noted) for noted in said_by(2, STEPS)] == [[1, 3, 5]] * 2
