"""Training loop with Horovod, in the processes that mpirun has started."""

from __future__ import annotations

import os
import time
from typing import Any

import horovod.torch as hvd
import torch
from torch.utils.data import DistributedSampler

from planner.peers.scripts._task import PeerTask, StepClock, parse


def main() -> None:
    """Train."""
    task = PeerTask(parse())
    hvd.init()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # as in Horovod's own example
    # Horovod refuses weights and gradients in channels_last; batches in it make the layers use it.
    model = task.make_model().to(memory_format=torch.contiguous_format)
    optimizer = hvd.DistributedOptimizer(
        task.case.optimizer(model.parameters()), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    dataset = task.make_dataset()
    sampler: DistributedSampler[Any] = DistributedSampler(
        dataset, num_replicas=hvd.size(), rank=hvd.rank()
    )
    loader = task.make_loader(dataset, sampler)
    clock = StepClock(
        task,
        processes=hvd.size(),
        is_first=hvd.rank() == 0,
    )
    for epoch in clock.epochs():
        sampler.set_epoch(epoch)
        for batch in clock.timed(loader):
            optimizer.zero_grad()
            loss = task.loss(model, batch)
            loss.backward()
            clock.note_backward()
            # As in Horovod's guide for clipping; step() alone would wait just the same.
            began = time.perf_counter()
            optimizer.synchronize()
            clock.note_exchange(time.perf_counter() - began)
            with optimizer.skip_synchronize():
                optimizer.step()
            clock.note_step(loss, task.case.size(batch))


if __name__ == "__main__":
    main()
