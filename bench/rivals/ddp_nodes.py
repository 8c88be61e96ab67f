"""AlexNet by DistributedDataParallel over gloo, one process per host, on pictures in memory.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who is where, as torchrun would set them.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
import torch.distributed as dist
from task import make_model, make_optimizer, memory_format
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train, and say how long each step took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, required=True, help="samples of one host")
    parser.add_argument("--steps", type=int, required=True)
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
    times_s = []
    for _ in range(arguments.steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        times_s.append(time.perf_counter() - began)
    if dist.get_rank() == 0:
        print(json.dumps({"times_s": times_s}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
