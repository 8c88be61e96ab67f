"""What a fork server loads before it forks."""

from __future__ import annotations

import subprocess
import sys

LOADING = """
import torch

asked = []
for name in ("_cuda_getDeviceCount", "_cuda_init"):
    setattr(torch._C, name, lambda name=name: asked.append(name) or 0)
import torchvision
import launch.workers.worker

print(asked)
"""


def test_what_workers_need_is_loaded_without_asking_cuda_for_anything():
    """A process that has asked how many GPUs there are can fork no worker that uses one."""
    command = [sys.executable, "-c", LOADING]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
