"""Check that an object has the shape of a use case, and defaults for what it lacks."""

from __future__ import annotations

from inspect import signature
from math import inf
from typing import Any, cast

from launch.errors import UseCaseError
from launch.use_cases._base import UseCase
from launch.use_cases._imports import run_user_code

_REQUIRED = {
    "model": "model()",
    "dataset": "dataset(data, *, train)",
    "loss": "loss(output, target)",
    "optimizer": "optimizer(parameters)",
}
_CALLS: dict[str, tuple[int, dict[str, Any]]] = {
    "model": (0, {}),
    "dataset": (1, {"train": True}),
    "loss": (2, {}),
    "optimizer": (1, {}),
    "schedule": (2, {}),
    "layers": (1, {}),
    "metrics": (2, {}),
    "prepare": (2, {}),
}


class _UseCaseAdapter(UseCase):
    """An object that does not inherit, with the contract's defaults for what it lacks.

    Attributes:
        subject: The object itself.
    """

    def __init__(self, own: object) -> None:
        self.subject = own
        for member in ("name", "default_batch", "max_gradient_norm", *_CALLS):
            if hasattr(own, member):
                setattr(self, member, getattr(own, member))


def adapt_use_case(found: object, spec: str) -> UseCase:
    """Check an object by the contract; a class is made an instance first.

    Raises:
        UseCaseError: Something that is required is missing or cannot be called as agreed.
    """
    own = run_user_code(spec, found) if isinstance(found, type) else found
    if lacking := [text for name, text in _REQUIRED.items() if not _has(own, name)]:
        raise UseCaseError(f"use case {spec} lacks {', '.join(lacking)}: add what is missing")
    case = own if isinstance(own, UseCase) else _UseCaseAdapter(own)
    _check_values(case, spec)
    for name in _CALLS:
        _check_call(case, name, spec)
    return case


def _has(own: object, name: str) -> bool:
    inherited = getattr(type(own), name, None) is getattr(UseCase, name)
    return callable(getattr(own, name, None)) and not inherited


def _check_values(case: UseCase, spec: str) -> None:
    name = cast(object, getattr(case, "name", None))
    if not isinstance(name, str) or not name:
        raise UseCaseError(f"use case {spec} has name={name!r}: give it a short text")
    batch = cast(object, case.default_batch)
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise UseCaseError(
            f"use case {spec} has default_batch={batch!r}: use a whole number of at least 1"
        )
    norm = cast(object, case.max_gradient_norm)
    if norm is not None and not (
        isinstance(norm, (int, float)) and not isinstance(norm, bool) and 0 < norm < inf
    ):
        raise UseCaseError(
            f"use case {spec} has max_gradient_norm={norm!r}: use a number above 0, or None"
        )


def _check_call(case: UseCase, name: str, spec: str) -> None:
    count, keywords = _CALLS[name]
    method = getattr(case, name)
    if not callable(method):
        raise UseCaseError(f"use case {spec}: {name} must be a method: define it with def {name}")
    try:
        accepted = signature(method)
    except ValueError:  # some callables written in C have none
        return
    try:
        accepted.bind(*[None] * count, **keywords)
    except TypeError as error:
        expected = signature(getattr(UseCase, name))
        arguments = ", ".join(f"*, {p}" if p in keywords else p for p in expected.parameters)
        raise UseCaseError(
            f"use case {spec}: {name}{accepted} cannot be called: define {name}({arguments})"
        ) from error
