"""A stopwatch by hand: a training calls it after each step, and prints the times in the end.

It also times what the shim does in each step: all that torch's hooks call, reports included.
"""

import sys
import time
from itertools import pairwise

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 40
_ends = []
_spent_s = []
_total_s = [0.0]


def lap():
    """Note the end of a step."""
    if not _ends:
        _time_shim()
    _ends.append(time.perf_counter())
    _spent_s.append(_total_s[0])


def show():
    """Print the time of each step after the first, and the shim's part of it, in seconds."""
    for name, times_s in (("laps", _ends), ("shim", _spent_s)):
        print(name, *(f"{after - before:.7f}" for before, after in pairwise(times_s)), flush=True)


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


def _time_shim():
    """Time all that the shim's hooks call from now on."""
    from torch.optim import optimizer

    for hook in optimizer._global_optimizer_post_hooks.values():
        for cell in hook.__closure__ or ():
            process = cell.cell_contents
            for name in ("on_step", "on_fetch", "on_loader", "on_backward"):
                if hasattr(process, name):
                    setattr(process, name, _timed(getattr(process, name)))


def _timed(call):
    def call_and_time(*args):
        began = time.perf_counter()
        call(*args)
        _total_s[0] += time.perf_counter() - began

    return call_and_time
