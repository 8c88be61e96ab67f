"""A stopwatch by hand: a training calls it after each step, and prints the times in the end."""

import sys
import time
from itertools import pairwise

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 40
_ends = []


def lap():
    """Note the end of a step."""
    _ends.append(time.perf_counter())


def show():
    """Print the time of each step after the first, in seconds."""
    laps = [after - before for before, after in pairwise(_ends)]
    print("laps", *laps, flush=True)


def model():
    """Make a model whose step takes some milliseconds."""
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 4)]
    return torch.nn.Sequential(*layers)


def loader(batch=32, batches=None, workers=0):
    """Make a loader of random samples."""
    import torch

    count = batch * (batches or STEPS)
    inputs, targets = torch.randn(count, 256), torch.randint(4, (count,))
    data = torch.utils.data.TensorDataset(inputs, targets)
    return torch.utils.data.DataLoader(data, batch_size=batch, num_workers=workers)
