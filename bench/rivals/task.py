"""What do the rivals train? AlexNet on photos in folders, as a user of torchvision writes it.

Nothing here knows ddlplan. The model has the weights, the data set the transforms and the optimizer
the settings of the use case `simplebig`. Everything else is left at its default; threads are set
from outside, by OMP_NUM_THREADS.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import nn
from torch.optim import SGD
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.models import alexnet


def parse() -> argparse.Namespace:
    """Read the options that all rivals share."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="one sub-folder per class")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="samples of one process")
    parser.add_argument("--loader-workers", type=int, default=2, help="of one process")
    parser.add_argument("--processes", type=int, default=1, help="where the script starts them")
    parser.add_argument("--channels-last", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    return arguments


def make_model(arguments: argparse.Namespace) -> nn.Module:
    """Make AlexNet with three outputs, its weights wide enough for a signal to pass (He et al.)."""
    model: nn.Module = alexnet(weights=None, num_classes=3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("weight"):
                parameter.mul_(6**0.5)
    return model.to(memory_format=memory_format(arguments))


def make_dataset(arguments: argparse.Namespace) -> ImageFolder:
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
    return ImageFolder(str(arguments.data), transform)


def make_optimizer(model: nn.Module) -> SGD:
    """Make the optimizer."""
    return SGD(model.parameters(), lr=0.001, momentum=0.9)


def memory_format(arguments: argparse.Namespace) -> torch.memory_format:
    """Give the memory format of model and batches."""
    return torch.channels_last if arguments.channels_last else torch.contiguous_format


def report(epoch: int, time_s: float, *, samples: int, processes: int, loss: float) -> None:
    """Say how an epoch went, as a line of JSON; one process does."""
    line = {
        "epoch": epoch,
        "time_s": time_s,
        "samples": samples,
        "processes": processes,
        "threads": torch.get_num_threads(),
        "loss": loss,
    }
    print(json.dumps(line), flush=True)
