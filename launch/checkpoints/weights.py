"""Weights of a trained model as one safetensors file, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save
from torch import nn

from launch.checkpoints.folder import write_durably


def save_weights(model: nn.Module, path: Path) -> int:
    """Write the model's state, readable by the user alone, and return its size in bytes.

    The file appears under its name when it is complete. Tied weights are written once for each
    of their names.
    """
    # Clones: safetensors refuses tensors that share memory.
    document = save(
        {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in model.state_dict().items()
        }
    )
    hidden = path.with_name(f".{path.name}")
    hidden.unlink(missing_ok=True)
    try:
        with write_durably(hidden) as file:
            file.write(document)
        hidden.replace(path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    return len(document)
