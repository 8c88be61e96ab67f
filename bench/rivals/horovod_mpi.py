"""AlexNet by Horovod."""

from __future__ import annotations

import os
import time

import horovod.torch as hvd
import torch
from task import make_dataset, make_model, make_optimizer, memory_format, parse, report
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler


def main() -> None:
    """Train."""
    arguments = parse()
    hvd.init()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # as in Horovod's own example
    # Horovod refuses weights and gradients in channels_last; batches in it make the layers use it.
    model = make_model(arguments).to(memory_format=torch.contiguous_format)
    optimizer = hvd.DistributedOptimizer(
        make_optimizer(model), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    dataset = make_dataset(arguments)
    sampler: DistributedSampler[object] = DistributedSampler(
        dataset, num_replicas=hvd.size(), rank=hvd.rank()
    )
    loader = DataLoader(
        dataset,
        batch_size=arguments.batch_size,
        sampler=sampler,
        num_workers=arguments.loader_workers,
    )
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        started = time.perf_counter()
        for inputs, targets in loader:
            optimizer.zero_grad()
            output = model(inputs.to(memory_format=memory_format(arguments)))
            loss = cross_entropy(output, targets)
            loss.backward()
            optimizer.step()
        if hvd.rank() == 0:
            report(
                epoch,
                time.perf_counter() - started,
                samples=len(dataset),
                processes=hvd.size(),
                loss=loss.item(),
            )


if __name__ == "__main__":
    main()
