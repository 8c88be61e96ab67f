"""AlexNet by DistributedDataParallel over gloo, one process per host, on pictures in memory.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who is where, as torchrun would set them. It
trains until it is ended. The first process says how many seconds each step took, one a line.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from task import make_model, make_optimizer, memory_format
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, required=True, help="samples of one host")
    parser.add_argument("--channels-last", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(make_model(arguments))
    optimizer = make_optimizer(model)
    inputs = torch.randn(arguments.batch_size, 3, 224, 224)
    inputs = inputs.to(memory_format=memory_format(arguments))
    targets = torch.arange(arguments.batch_size) % 3
    while True:
        began = time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
