"""AlexNet in plain PyTorch: one process, all its threads."""

from __future__ import annotations

import time

from task import make_dataset, make_model, make_optimizer, memory_format, parse, report
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader


def main() -> None:
    """Train."""
    arguments = parse()
    model = make_model(arguments)
    optimizer = make_optimizer(model)
    dataset = make_dataset(arguments)
    loader = DataLoader(
        dataset,
        batch_size=arguments.batch_size,
        shuffle=True,
        num_workers=arguments.loader_workers,
    )
    for epoch in range(arguments.epochs):
        started = time.perf_counter()
        for inputs, targets in loader:
            optimizer.zero_grad()
            output = model(inputs.to(memory_format=memory_format(arguments)))
            loss = cross_entropy(output, targets)
            loss.backward()
            optimizer.step()
        report(
            epoch,
            time.perf_counter() - started,
            samples=len(dataset),
            processes=1,
            loss=loss.item(),
        )


if __name__ == "__main__":
    main()
