"""How are weights kept? As one safetensors file, whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from safetensors.torch import save
from torch import nn


def save_weights(model: nn.Module, path: Path) -> int:
    """Write the model's state, readable by the user alone, and return its size in bytes.

    The file appears under its name when it is complete. Tied weights are written once for each
    of their names.
    """
    state = {
        name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
    # Parameters that share memory would be refused; each is written for itself.
    document = save({name: tensor.clone() for name, tensor in state.items()})
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name}-", delete=False
    ) as file:
        try:
            file.write(document)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    return len(document)
