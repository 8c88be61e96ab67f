"""Use of the contract: the methods that a use case has of its own, and state that no file keeps."""

from __future__ import annotations

import dis
from types import CodeType

from torch import nn

from launch.use_cases._base import UseCase, is_own

METHODS = (
    *("model", "dataset", "optimizer", "loss", "step", "weight", "collate", "size"),
    *("schedule", "layers", "metrics", "prepare"),
)
"""All of the contract."""


def find_own_methods(case: UseCase) -> tuple[str, ...]:
    """Name the methods that a use case does not leave to the contract's defaults.

    Of an adapter: those that stand on something of the user's, for all of its methods are its own.
    """
    find = getattr(case, "find_user_methods", None)
    own = {name for name in METHODS if is_own(case, name)} if find is None else find()
    return tuple(name for name in METHODS if name in own and not _does_as_default(case, name))


def _does_as_default(case: UseCase, name: str) -> bool:
    """Tell whether a method's code is that of the default, as a draft has it to be filled in."""
    own = getattr(getattr(case, name), "__code__", None)
    return own is not None and _operations(own) == _operations(getattr(UseCase, name).__code__)


def _operations(code: CodeType) -> list[tuple[str, object]]:
    return [(one.opname, one.argval) for one in dis.get_instructions(code)]


def find_unsaved(model: nn.Module) -> tuple[str, ...]:
    """Name the buffers that are in no ``state_dict``, and so in no file of weights."""
    saved = model.state_dict()
    return tuple(name for name, _ in model.named_buffers() if name not in saved)
