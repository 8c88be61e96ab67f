"""A stopwatch by hand: a training calls it after each step, and prints the times in the end.

With ``STOPWATCH_BLOCK=10`` in the environment it also takes out what the shim has put into torch,
and puts it back, in blocks of 10 steps: with, without, without, with.
"""

import os
import sys
import time
from itertools import pairwise

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 40
_BLOCK = int(os.environ.get("STOPWATCH_BLOCK", "0"))
_ends = []
_shim = {}


def lap():
    """Note the end of a step."""
    _ends.append(time.perf_counter())
    if _BLOCK and len(_ends) % _BLOCK == 0:
        block = len(_ends) // _BLOCK
        if block % 2:  # odd ones begin the second half of a pair
            _switch_shim()


def show():
    """Print the time of each step after the first, in seconds."""
    laps = [after - before for before, after in pairwise(_ends)]
    print("laps", *(f"{seconds:.7f}" for seconds in laps), flush=True)


def model(width=1024):
    """Make a model whose step takes some milliseconds."""
    import torch

    torch.manual_seed(0)
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    layers = [linear(256, width), relu(), linear(width, width), relu(), linear(width, 4)]
    return torch.nn.Sequential(*layers)


def loader(batch=32, batches=None, workers=0):
    """Make a loader of random samples."""
    import torch

    count = batch * (batches or STEPS)
    inputs, targets = torch.randn(count, 256), torch.randint(4, (count,))
    data = torch.utils.data.TensorDataset(inputs, targets)
    return torch.utils.data.DataLoader(data, batch_size=batch, num_workers=workers)


def _switch_shim():
    """Take out what the shim has put into torch, or put it back."""
    import torch
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    hooks = optimizer._global_optimizer_post_hooks
    names = [
        (torch.Tensor, "backward"),
        (dataloader._BaseDataLoaderIter, "__next__"),
        (dataloader.DataLoader, "__iter__"),
    ]
    if _shim:
        hooks.update(_shim.pop("hooks"))
        for place, name in names:
            setattr(place, name, _shim.pop(name))
        return
    _shim["hooks"] = dict(hooks)
    hooks.clear()
    for place, name in names:
        _shim[name] = getattr(place, name)
        setattr(place, name, _shim[name].__wrapped__)
