"""AlexNet by DistributedDataParallel over gloo, one process per host, on pictures in memory.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who is where, as torchrun would set them. It
trains until it is ended. The first process says how many seconds each step took, one a line.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from launch.use_cases.simplebig import SimpleBig


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, required=True, help="samples of one host")
    parser.add_argument("--channels-last", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    memory = torch.channels_last if arguments.channels_last else torch.contiguous_format
    case = SimpleBig()
    model = DistributedDataParallel(case.model().to(memory_format=memory))
    optimizer = case.optimizer(model.parameters())
    inputs = torch.randn(arguments.batch_size, 3, 224, 224)
    inputs = inputs.to(memory_format=memory)
    targets = torch.arange(arguments.batch_size) % 3
    while True:
        began = time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if dist.get_rank() == 0:
            print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
