"""DistributedDataParallel over gloo, in the processes that torchrun has started."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from planner.peers.scripts._task import PeerTask, StepClock, parse


def main() -> None:
    """Train."""
    task = PeerTask(parse())
    dist.init_process_group("gloo")
    model = DistributedDataParallel(task.make_model())
    optimizer = task.case.optimizer(model.parameters())
    dataset = task.make_dataset()
    sampler: DistributedSampler[Any] = DistributedSampler(dataset)
    loader = task.make_loader(dataset, sampler)
    clock = StepClock(
        task,
        processes=dist.get_world_size(),
        is_first=dist.get_rank() == 0,
        waits_for=model,
    )
    for epoch in clock.epochs():
        sampler.set_epoch(epoch)
        for batch in clock.timed(loader):
            optimizer.zero_grad()
            loss = task.loss(model, batch)
            loss.backward()
            clock.note_backward()
            optimizer.step()
            clock.note_step(loss, task.case.size(batch))


if __name__ == "__main__":
    main()
