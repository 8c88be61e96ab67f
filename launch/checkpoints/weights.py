"""Weights of a trained model as one safetensors file, written whole or not at all.

State that is no tensor, as a module's ``get_extra_state`` may give it, is in the file's metadata.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor, nn

from launch.checkpoints.tagged_values import decode, encode, store_in
from launch.checkpoints.tensor_file import encode_header, write_tensors
from launch.errors import CheckpointError
from launch.system.durable_files import explain_os_error, replace_durably, write_durably

_OTHERS = "ddlplan"
"""Key of the state that is no tensor in the metadata."""


def save_weights(model: nn.Module, path: Path) -> int:
    """Write the model's state, readable by the user alone, and return its size in bytes.

    The file appears under its name when it is complete. Tied weights are written once for each
    of their names.

    Raises:
        CheckpointError: It cannot be written.
    """
    hidden = _hidden(path)
    try:
        with replace_durably(path, hidden):
            record = write_tensors(hidden, *_divide(model))
    except OSError as error:
        raise _make_error(error) from error
    return record.num_bytes


def check_weights(model: nn.Module, path: Path, *, files: int = 1) -> None:
    """Check before the training that `save_weights` will be able to write; copies no tensor.

    Args:
        model: Whose state will be written.
        path: Of the file.
        files: How many of that size will be in its folder at once.

    Raises:
        CheckpointError: The model's state has something that the file cannot hold, the folder
            cannot be written, or too little of its disk is free.
    """
    tensors, metadata = _divide(model)
    header = encode_header(tensors, metadata)
    num_bytes = files * (len(header) + sum(t.nbytes for t in tensors.values()))
    hidden = _hidden(path)
    try:
        hidden.unlink(missing_ok=True)
        with write_durably(hidden) as file:
            file.write(header)
        hidden.unlink()
        free_bytes = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise _make_error(error) from error
    if num_bytes > free_bytes:
        what = "the weights" if files == 1 else f"{files} files of weights"
        raise CheckpointError(
            f"{what} take {num_bytes} bytes and {path.parent} has {free_bytes} left: make "
            "room there, or start in a folder on another disk"
        )


def check_state(model: nn.Module) -> None:
    """Check that a file can hold the model's state, wherever it is to be; copies no tensor.

    Raises:
        CheckpointError: It has something that no file can hold.
    """
    encode_header(*_divide(model))


def load_weights(path: str | Path) -> dict[str, Any]:
    """Read a file of weights for ``model.load_state_dict``, state that is no tensor included."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dict
        others = json.loads((file.metadata() or {}).get(_OTHERS, "{}"))
    names = [name for name in tensors if name in others.get("parts", ())]
    parts = {name: tensors.pop(name) for name in names}
    state: dict[str, Any] = decode(others.get("state", {}), parts.__getitem__)
    return tensors | state


def _divide(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str] | None]:
    """Give the tensors of a model's state, and the metadata with what is none."""
    state = model.state_dict()
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    rest = {name: value for name, value in state.items() if name not in tensors}
    if not rest:
        return tensors, None
    parts: dict[str, Tensor] = {}
    encoded = encode(rest, "the model's state", store_in(parts, _OTHERS))
    others = {"state": encoded, "parts": list(parts)}
    return tensors | parts, {_OTHERS: json.dumps(others)}


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}")


def _make_error(error: OSError) -> CheckpointError:
    return CheckpointError(
        f"the weights cannot be written: {explain_os_error(error)}: make room there, or start in a "
        "folder that can be written"
    )
