"""Script with Accelerate, which adds up the gradients of several batches for one step."""

from argparse import ArgumentParser

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200, help="updates of the weights")
    parser.add_argument("--accumulation", type=int, default=2, help="batches of one step")
    args = parser.parse_args()

    accelerator = Accelerator(gradient_accumulation_steps=args.accumulation)
    torch.manual_seed(0)
    inputs = torch.randn(4096, 256)
    dataset = TensorDataset(inputs, inputs[:, :8].sum(1, keepdim=True))
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 1))
    loader = DataLoader(
        dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    step = 0
    while step < args.steps:
        for batch, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(batch), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            step += accelerator.sync_gradients
            if step == args.steps:
                break
    accelerator.print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
