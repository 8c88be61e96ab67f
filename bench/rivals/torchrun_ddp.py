"""AlexNet by torchrun and DistributedDataParallel over gloo."""

from __future__ import annotations

import time

import torch.distributed as dist
from task import make_dataset, make_model, make_optimizer, memory_format, parse, report
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def main() -> None:
    """Train."""
    arguments = parse()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(make_model(arguments))
    optimizer = make_optimizer(model)
    dataset = make_dataset(arguments)
    sampler: DistributedSampler[object] = DistributedSampler(dataset)
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
        if dist.get_rank() == 0:
            report(
                epoch,
                time.perf_counter() - started,
                samples=len(dataset),
                processes=dist.get_world_size(),
                loss=loss.item(),
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
