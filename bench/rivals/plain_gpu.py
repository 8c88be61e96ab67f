"""AlexNet or VGG16 in plain PyTorch on one GPU, in bf16, as PyTorch's own guides have it.

A loader on all cores with pinned memory, autocast, and a loss that is looked at when all is done.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from task import make_dataset, make_optimizer, memory_format
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, RandomSampler
from torchvision.models import alexnet, vgg16

_MODELS = {"alexnet": alexnet, "vgg16": vgg16}


def main() -> None:
    """Train, and say how long the timed steps took."""
    arguments = _parse()
    device = torch.device(arguments.device)
    on_gpu = device.type == "cuda"
    model = _MODELS[arguments.model](weights=None, num_classes=3)
    model = model.to(device, memory_format=memory_format(arguments))
    optimizer = make_optimizer(model)
    dataset = make_dataset(arguments)
    steps = arguments.warmup_steps + arguments.steps
    loader = DataLoader(
        dataset,
        batch_size=arguments.batch_size,
        # One long epoch: at the end of each a loader stops and starts anew.
        sampler=RandomSampler(dataset, num_samples=steps * arguments.batch_size),
        num_workers=arguments.loader_workers,
        pin_memory=on_gpu,
    )
    started = time.perf_counter()
    for step, (inputs, targets) in enumerate(loader):
        if step == arguments.warmup_steps:
            _wait(device)
            started = time.perf_counter()
        inputs = inputs.to(device, non_blocking=True).to(memory_format=memory_format(arguments))
        targets = targets.to(device, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
    _wait(device)
    print(json.dumps({"time_s": time.perf_counter() - started, "loss": loss.item()}))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="one sub-folder per class")
    parser.add_argument("--model", choices=list(_MODELS), required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="timed")
    parser.add_argument("--warmup-steps", type=int, required=True, help="before these")
    parser.add_argument("--loader-workers", type=int, required=True)
    parser.add_argument("--channels-last", action="store_true")
    torch.manual_seed(0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
