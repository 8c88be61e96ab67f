"""Digest of a use case: its name, its code, its model, and the shape and amount of its data.

Where two are equal, times of the one hold for the other, wherever their files and data lie.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from launch.data.random_state import seed_generators
from launch.use_cases._base import UseCase
from launch.use_cases._imports import is_generated, is_installed
from launch.use_cases._settings import Settings

_OURS = ("launch", "planner", "probes")
_NOT_OF_USE_CASES = {"__main__", "__mp_main__", "sitecustomize", "usercustomize"}
_ADDRESS = re.compile(" at 0x[0-9a-f]+")
_UNNAMED = re.compile("use_case_[0-9a-f]{16}")
"""Name of a module whose own was taken, made of its path."""


def digest_case(
    case: UseCase, model: nn.Module, datasets: Sequence[Any], settings: Settings = ()
) -> str:
    """Hash a use case. Call it late: modules that it imports only now do not count.

    Args:
        case: The use case.
        model: What its `model` gave.
        datasets: For training and for validation.
        settings: That its constructor was given.
    """
    digest = hashlib.sha256()

    def add(*parts: str | bytes) -> None:
        for part in parts:
            data = part.encode() if isinstance(part, str) else part
            digest.update(f"{len(data)}:".encode() + data)

    kind = getattr(case, "origin", None) or type(getattr(case, "subject", case))
    add(case.name, kind.__qualname__)
    for setting in settings:
        add(*setting)
    for name, code in sorted(_code(kind)):
        add(name, code)
    add(_ADDRESS.sub("", str(model)))
    for name, value in model.state_dict().items():
        add(f"{name}{tuple(value.shape)}{value.dtype}" if isinstance(value, Tensor) else name)
    for dataset in datasets:
        add(str(len(dataset)))
    add(_describe_sample(datasets[0]))
    return "sha256:" + digest.hexdigest()


def _code(kind: Any) -> Iterator[tuple[str, bytes]]:
    """Give the use case's own file, and all other modules of the user's, by their names."""
    own = _file_of(kind)
    package = kind.__module__.partition(".")[0]
    for name, module in list(sys.modules.items()):
        text = getattr(module, "__file__", None)
        if not isinstance(text, str) or name in _NOT_OF_USE_CASES or is_generated(text):
            continue
        top = name.partition(".")[0]
        if top != package and (top in _OURS or is_installed(Path(text))):
            continue  # as nearly all of some thousand: to follow their links takes long
        file = Path(text).resolve()
        is_users = top not in _OURS and (top == package or not is_installed(file))
        if file == own or is_users:
            try:
                code = file.read_bytes()
            except OSError:  # in an archive, or removed by now
                continue
            yield "" if file == own or _UNNAMED.fullmatch(name) else name, code


def _file_of(kind: Any) -> Path | None:
    try:
        return Path(inspect.getfile(kind)).resolve()
    except (OSError, TypeError):
        return None


def _describe_sample(dataset: Any) -> str:
    """Describe a sample; what cannot be read is told by whoever needs it."""
    seed_generators(0)  # it may be cut at random
    try:
        return _describe(dataset[0])
    except Exception as error:  # noqa: BLE001 - the user's own code runs here and may raise anything
        return type(error).__name__


def _describe(value: Any) -> str:
    """Describe the form of a sample: types, shapes and sizes, and no values."""
    if isinstance(value, Mapping):
        parts = [f"{key}:{_describe(value[key])}" for key in sorted(value, key=str)]
    elif isinstance(value, (list, tuple)):
        parts = [_describe(part) for part in value]
    else:
        about = (getattr(value, name, "") for name in ("dtype", "shape", "mode", "size"))
        parts = [str(part) for part in about if not callable(part)]
    return f"{type(value).__name__}({','.join(parts)})"
