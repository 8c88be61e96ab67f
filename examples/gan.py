"""Script: a generator and a discriminator, each with an optimizer, that learn in turns."""

from argparse import ArgumentParser

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200, help="batches; each has two updates")
    args = parser.parse_args()

    torch.manual_seed(0)
    angles = torch.rand(4096) * 2 * torch.pi
    circle = torch.stack([angles.cos(), angles.sin()], 1)
    loader = DataLoader(
        TensorDataset(circle), batch_size=args.batch_size, shuffle=True, num_workers=args.workers,
        drop_last=True,
    )  # fmt: skip
    generator = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 2))
    discriminator = nn.Sequential(nn.Linear(2, 128), nn.ReLU(), nn.Linear(128, 1))
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()

    step = 0
    while step < args.steps:
        for (real,) in loader:
            fake = generator(torch.randn(len(real), 16))
            is_real, is_fake = torch.ones(len(real), 1), torch.zeros(len(real), 1)

            optimizer.zero_grad()
            loss = criterion(discriminator(real), is_real)
            loss = loss + criterion(discriminator(fake.detach()), is_fake)
            loss.backward()
            optimizer.step()

            generator_optimizer.zero_grad()
            generator_loss = criterion(discriminator(fake), is_real)
            generator_loss.backward()
            generator_optimizer.step()

            step += 1
            if step == args.steps:
                break
    print(f"step {step}: loss {loss.item():.4f}, of the generator {generator_loss.item():.4f}")


if __name__ == "__main__":
    main()
