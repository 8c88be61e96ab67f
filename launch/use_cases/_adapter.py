"""Check that an object has the shape of a use case, and defaults for what it lacks."""

from __future__ import annotations

from difflib import get_close_matches
from inspect import signature
from math import inf
from pathlib import Path
from typing import Any, cast

from launch.errors import UseCaseError
from launch.use_cases._base import UseCase, takes_epochs
from launch.use_cases._imports import run_user_code
from launch.use_cases._settings import Settings, make_arguments

_REQUIRED = {
    "model": "model()",
    "dataset": "dataset(data, *, train)",
    "loss": "loss(output, target)",
    "optimizer": "optimizer(parameters)",
}
_CALLS: dict[str, tuple[int, dict[str, Any]]] = {
    "model": (0, {}),
    "dataset": (1, {"train": True}),
    "collate": (1, {}),
    "size": (1, {}),
    "step": (2, {}),
    "weight": (1, {}),
    "loss": (2, {}),
    "optimizer": (1, {}),
    "schedule": (3, {}),
    "layers": (1, {}),
    "metrics": (2, {}),
    "prepare": (2, {}),
}
_MEMBERS = ("name", "default_batch", "max_gradient_norm", *_CALLS)
_ELSEWHERE = {
    other: meant
    for meant, others in {
        "model": ("build_model", "get_model"),
        "dataset": ("train_dataset", "train_dataloader", "get_dataset"),
        "collate": ("collate_fn",),
        "step": ("training_step", "train_step"),
        "loss": ("criterion", "loss_fn", "compute_loss"),
        "optimizer": ("configure_optimizers", "make_optimizer"),
        "schedule": ("lr_scheduler", "scheduler", "configure_schedule"),
        "default_batch": ("batch_size",),
        "metrics": ("compute_metrics",),
        "weight": ("loss_weight", "num_tokens"),
        "size": ("num_samples",),
        "prepare": ("prepare_data",),
        "max_gradient_norm": ("max_grad_norm", "gradient_clip_val"),
    }.items()
    for other in others
}
"""Names of other libraries for what the contract has."""


class _UseCaseAdapter(UseCase):
    """An object that does not inherit, with the contract's defaults for what it lacks.

    Attributes:
        subject: The object itself.
    """

    def __init__(self, own: object) -> None:
        self.subject = own
        for member in _MEMBERS:
            if hasattr(own, member):
                setattr(self, member, getattr(own, member))


def adapt_use_case(
    found: object, spec: str, settings: Settings = (), data: Path | None = None
) -> UseCase:
    """Check an object by the contract; a class is made an instance first.

    Args:
        found: The object.
        spec: Its name in messages.
        settings: For the constructor of a class.
        data: Likewise, where it takes that.

    Raises:
        UseCaseError: Something that is required is missing or cannot be called as agreed, or the
            class does not have these settings.
    """
    own = found
    if isinstance(found, type):
        arguments = make_arguments(found, settings, spec, data)
        own = run_user_code(spec, lambda: found(**arguments))
    elif settings:
        raise UseCaseError(
            f"use case {spec} is an instance, which was made already, and settings are for a "
            "class: name its class"
        )
    lacking = [name for name in _REQUIRED if not _has(own, name)]
    if _has(own, "step") and "loss" in lacking:
        lacking.remove("loss")
    if lacking:
        near = {meant: found for found, meant in find_lookalikes(own, similarity=0.7).items()}
        texts = [
            _REQUIRED[name] + (f" (is {near[name]} meant?)" if name in near else "")
            for name in lacking
        ]
        raise UseCaseError(f"use case {spec} lacks {', '.join(texts)}: add what is missing")
    case = own if isinstance(own, UseCase) else _UseCaseAdapter(own)
    _check_values(case, spec)
    for name in _CALLS:
        _check_call(case, name, spec)
    return case


def find_lookalikes(own: object, *, similarity: float = 0.85) -> dict[str, str]:
    """Find what looks like a part of the contract: names of other libraries, and misspelt ones.

    Args:
        own: The use case.
        similarity: From which two names count as one misspelt, at most 1.

    Returns:
        By its name, what it should be called; nothing that is there under its right name too.
    """
    kinds = [kind for kind in type(own).__mro__ if kind not in (UseCase, object)]
    names = set(getattr(own, "__dict__", ())).union(*map(vars, kinds))
    missing = [member for member in _MEMBERS if member not in names]
    found = {}
    for name in sorted(names - set(_MEMBERS)):
        near = get_close_matches(name, missing, n=1, cutoff=similarity)
        is_method = callable(getattr(own, name, None)) and not name.startswith("_")
        meant = _ELSEWHERE.get(name) or (near[0] if near and is_method else None)
        if meant in missing:
            found[name] = meant
    return found


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
    check_norm(case.max_gradient_norm, spec)


def check_norm(norm: object, spec: str) -> None:
    """Check the limit of a use case's gradients.

    Raises:
        UseCaseError: It is no number above 0, and not ``None``.
    """
    if norm is not None and not (
        isinstance(norm, (int, float)) and not isinstance(norm, bool) and 0 < norm < inf
    ):
        raise UseCaseError(
            f"use case {spec} has max_gradient_norm={norm!r}: use a number above 0, or None"
        )


def _check_call(case: UseCase, name: str, spec: str) -> None:
    count, keywords = _CALLS[name]
    if name == "schedule" and not takes_epochs(case):
        count = 2
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
