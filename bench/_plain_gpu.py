"""A training loop on one device, as PyTorch's own guides have it; nothing here knows ddlplan.

A loader on all cores, as far as shared memory has room, with pinned memory, autocast for bf16, and
a loss that is looked at when all is done. Trained is AlexNet or VGG16 on photos in folders, or what
an object in a file says.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.flop_counter import FlopCounterMode
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.models import alexnet, vgg16

_PHOTO_MODELS = {"alexnet": alexnet, "vgg16": vgg16}
_WARMUP_STEPS = 5
_ENDLESS = 10**9
_SHARED_PART = 0.8
"""Part of the free shared memory for batches that wait."""


class PhotoTask:
    """A torchvision model on photos, one folder per class."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self.loss = cross_entropy

    def model(self) -> nn.Module:
        """Make it with three outputs."""
        model: nn.Module = _PHOTO_MODELS[self._arguments.model](weights=None, num_classes=3)
        return model

    def dataset(self, data: Path, *, train: bool) -> Any:
        """Open the photos with the transforms of torchvision's reference training."""
        transform = transforms.Compose(
            [
                transforms.Resize(256),
                transforms.CenterCrop(224),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )
        return ImageFolder(str(data), transform)

    def optimizer(self, parameters: Any) -> Any:
        """Make the optimizer of `simplebig` and `complexsmall`."""
        return SGD(parameters, lr=0.001, momentum=0.9)


def main() -> None:
    """Train for some seconds after a warm-up, and say how fast that was."""
    arguments = _parse()
    torch.manual_seed(0)
    task = _load(arguments)
    device = torch.device(arguments.device)
    on_gpu = device.type == "cuda"
    model = task.model().to(device)
    if arguments.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = task.optimizer(model.parameters())
    run = torch.compile(model) if arguments.compile else model
    dataset = task.dataset(arguments.data, train=True)
    workers, ahead = _choose_workers(dataset[0], arguments)
    loader = DataLoader(
        dataset,
        batch_size=arguments.batch_size,
        # One endless epoch: at the end of each a loader stops and starts anew.
        sampler=RandomSampler(dataset, num_samples=_ENDLESS),
        num_workers=workers,
        prefetch_factor=ahead,
        pin_memory=on_gpu,
    )
    flop, loss = 0, torch.zeros(())
    started = time.perf_counter()
    for step, (inputs, targets) in enumerate(loader):
        if step == _WARMUP_STEPS:
            _wait(device)
            started = time.perf_counter()
        if step > _WARMUP_STEPS and time.perf_counter() - started > arguments.seconds:
            break
        inputs, targets = (part.to(device, non_blocking=True) for part in (inputs, targets))
        if arguments.channels_last and inputs.dim() == 4:
            inputs = inputs.to(memory_format=torch.channels_last)
        counts = step == 0 and not arguments.compile
        with FlopCounterMode(display=False) if counts else nullcontext() as counter:
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=arguments.bf16):
                loss = task.loss(run(inputs), targets)
            loss.backward()
        if counter is not None:
            flop = counter.get_total_flops() // len(targets)
        optimizer.step()
    _wait(device)
    found = {
        "samples_per_s": (step - _WARMUP_STEPS)
        * arguments.batch_size
        / (time.perf_counter() - started),
        "flop_per_sample": flop,
        "loss": loss.item(),
        "loader_workers": workers,
    }
    print(json.dumps(found))


def _load(arguments: argparse.Namespace) -> Any:
    if arguments.case is None:
        return PhotoTask(arguments)
    file, _, name = arguments.case.rpartition(":")
    sys.path.insert(0, str(Path(file).parent))
    return getattr(importlib.import_module(Path(file).stem), name)()


def _choose_workers(sample: Sequence[Any], arguments: argparse.Namespace) -> tuple[int, int | None]:
    """Choose loading processes, and batches that each reads ahead, which lie in /dev/shm.

    PyTorch's two for each may be more than there is room for: 16 processes hold 79 GB of 4096
    pictures each, and where memory ends the kernel ends the training.
    """
    sample_bytes = sum(part.nbytes for part in sample if isinstance(part, torch.Tensor))
    room_bytes = _SHARED_PART * shutil.disk_usage("/dev/shm").free
    fit = int(room_bytes / max(1, sample_bytes * arguments.batch_size))
    workers = min(arguments.loader_workers, fit)
    return workers, max(1, min(2, fit // workers)) if workers else None


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=list(_PHOTO_MODELS))
    parser.add_argument("--case", help="FILE:CLASS, in place of --model")
    parser.add_argument("--data", type=Path, help="of --model: one sub-folder per class")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="timed, after a warm-up")
    parser.add_argument("--loader-workers", type=int, required=True)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
