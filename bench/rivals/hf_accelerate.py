"""AlexNet by Hugging Face Accelerate on several CPU processes."""

from __future__ import annotations

import time

from accelerate import Accelerator
from task import make_dataset, make_model, make_optimizer, memory_format, parse, report
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader


def main() -> None:
    """Train."""
    arguments = parse()
    accelerator = Accelerator(cpu=True)
    model = make_model(arguments)
    dataset = make_dataset(arguments)
    loader = DataLoader(
        dataset,
        batch_size=arguments.batch_size,
        shuffle=True,
        num_workers=arguments.loader_workers,
    )
    model, optimizer, loader = accelerator.prepare(model, make_optimizer(model), loader)
    for epoch in range(arguments.epochs):
        started = time.perf_counter()
        for inputs, targets in loader:
            optimizer.zero_grad()
            output = model(inputs.to(memory_format=memory_format(arguments)))
            loss = cross_entropy(output, targets)
            accelerator.backward(loss)
            optimizer.step()
        if accelerator.is_main_process:
            report(
                epoch,
                time.perf_counter() - started,
                samples=len(dataset),
                processes=accelerator.num_processes,
                loss=loss.item(),
            )
    accelerator.end_training()


if __name__ == "__main__":
    main()
