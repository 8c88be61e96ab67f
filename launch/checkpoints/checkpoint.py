"""Checkpoint opened for reading: the model, and each parameter's whole optimizer state.

Several workers may have written pieces of one parameter's state, each in the order of its memory;
here they are merged into the shape of the parameter.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from launch.checkpoints.folder import read_manifest
from launch.checkpoints.manifest import Manifest
from launch.checkpoints.tagged_values import decode
from launch.errors import CheckpointError

DOCUMENT = "ddlplan"
"""Key of a worker's document in the metadata of its file."""

MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,  # of torch, or nested too deeply
    SafetensorError,
    TypeError,
    ValueError,
)
"""What reading a file raises that is damaged, crafted, or was written for another model."""


class Checkpoint:
    """A checkpoint opened for reading. Use it in a ``with`` block.

    Opening does not check the files' content: `launch.checkpoints.folder.find_latest` has.

    Attributes:
        manifest: Its manifest.
        schedules: Kind, number of parameter groups and state of each stored schedule.
        optimizer_kinds: Names of the optimizers' classes.
        loose_state: State that an optimizer keeps under texts and not under parameters.
    """

    def __init__(self, path: Path) -> None:
        self.manifest: Manifest = read_manifest(path)
        self.schedules: list[tuple[str, int, dict[str, Any]]] = []
        self._path = path
        self._files = ExitStack()
        self._weights: dict[str, Any] = {}
        self._pieces: defaultdict[str, list[tuple[Any, dict[str, Any]]]] = defaultdict(list)
        self._shapes: dict[str, dict[str, Any]] = {}
        self._settings: dict[str, dict[str, Any]] = {}
        self._others: dict[str, Any] = {}
        self.loose_state: dict[str, Any] = {}
        self._errors: dict[str, tuple[Any, str]] = {}
        self.optimizer_kinds: set[str] = set()
        try:
            for record in self.manifest.files:
                self._open(path / record.name)
        except BaseException:
            self._files.close()
            raise

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def model_state(self) -> dict[str, Any]:
        """Read the model's ``state_dict``."""
        with _reading(self._path):
            tensors = {name: self._tensor(file, name) for name, file in self._weights.items()}
            return tensors | self._others

    @property
    def has_errors(self) -> bool:
        """Whether it has any `errors`."""
        return bool(self._errors)

    def errors(self) -> Iterator[tuple[str, Tensor]]:
        """Read what messages between nodes had not said yet of each parameter's gradient."""
        for name, (file, tensor) in self._errors.items():
            with _reading(self._path):
                error = self._tensor(file, tensor)
            yield name, error

    def settings_of(self, names: list[str]) -> Mapping[str, Any] | None:
        """Return the settings of the group that trained one of these parameters.

        ``None`` where none of them was trained.
        """
        return next((self._settings[name] for name in names if name in self._settings), None)

    def optimizer_state(self, name: str) -> dict[str, Any]:
        """Merge the optimizer's state of a parameter; empty where it has none.

        Tensors with a value for each element have the parameter's shape and are contiguous.

        Raises:
            CheckpointError: Some elements are missing, or it is no state.
        """
        pieces = self._pieces.get(name, [])
        if not pieces:
            return {}
        file, first = pieces[0]
        with _reading(self._path):
            state: dict[str, Any] = {
                key: decode(value, lambda inner: self._tensor(file, inner))
                for key, value in first["values"].items()
            }
            for key in first["elements"]:
                state[key] = self._assemble(name, key)
        return state

    def _assemble(self, name: str, key: str) -> Tensor:
        shape = torch.Size(self._shapes[name]["shape"])
        strides = self._shapes[name]["strides"]
        memory: Tensor | None = None
        known = 0
        for file, piece in sorted(self._pieces[name], key=lambda entry: int(entry[1]["start"])):
            content = self._tensor(file, piece["elements"].get(key, ""))
            if memory is None:
                memory = torch.empty(shape.numel(), dtype=content.dtype)
            if piece["start"] != known or content.numel() != piece["count"]:
                break
            known += content.numel()
            memory[piece["start"] : known] = content.reshape(-1)
        if memory is None or known != shape.numel():
            raise CheckpointError(
                f"checkpoint {self._path}: {key} of {name} has elements from 0 to {known} of "
                f"{shape.numel()}: some worker's part is missing"
            )
        if strides is None:
            return memory.view(shape)
        return memory.as_strided(shape, strides).contiguous()

    def _open(self, path: Path) -> None:
        with _reading(path):
            file = self._files.enter_context(safe_open(path, framework="pt"))
            document = (file.metadata() or {}).get(DOCUMENT)
            if document is None:
                self._weights.update(dict.fromkeys(file.keys(), file))
            else:
                self._add(file, json.loads(document))

    def _add(self, file: Any, document: Mapping[str, Any]) -> None:
        self._others.update(decode(document["others"], lambda name: self._tensor(file, name)))
        for name, tensor in document.get("errors", {}).items():
            self._errors[name] = file, tensor
        for optimizer in document.get("optimizers", ()):
            self.optimizer_kinds.add(optimizer["kind"])
            self.loose_state.update(decode(optimizer["loose"]))
            for group in optimizer["groups"]:
                settings = decode(group["settings"])
                self._settings.update(dict.fromkeys(group["names"], settings))
            for name, parameter in optimizer["parameters"].items():
                self._shapes[name] = parameter
                self._pieces[name] += [(file, piece) for piece in parameter["pieces"]]
        for schedule in document.get("schedules", ()):
            state = decode(schedule["state"])
            self.schedules.append((schedule["kind"], schedule["groups"], state))

    def _tensor(self, file: Any, name: str) -> Tensor:
        try:
            tensor: Tensor = file.get_tensor(name)
        except SafetensorError as error:
            raise CheckpointError(f"checkpoint {self._path}: {error}") from error
        return tensor


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except MALFORMED as error:
        reason = " ".join(str(error).split())[:400] or type(error).__name__
        raise CheckpointError(f"{path} cannot be read: {reason}") from error
