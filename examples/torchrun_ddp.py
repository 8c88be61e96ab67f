"""Script for torchrun: one model in each process, kept equal by DistributedDataParallel."""

from argparse import ArgumentParser

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32, help="samples of each process")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    inputs = torch.randn(4096, 256)
    dataset = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset)
    loader = DataLoader(
        dataset, batch_size=args.batch_size, sampler=sampler, num_workers=args.workers
    )
    model = DistributedDataParallel(
        nn.Sequential(
            nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2)
        )
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    step = epoch = 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        for batch, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch), targets)
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.steps:
                break
        epoch += 1
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}, step {step}: loss {loss.item():.4f}")
    dist.barrier()  # a rank that leaves while others are in a collective may be ended by SIGABRT
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
