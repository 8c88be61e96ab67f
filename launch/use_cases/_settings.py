"""Settings of a use case: what ``--set key=value`` gives to its constructor.

They are written behind its name, ``NAME,key=value,key=value`` in the order of the keys, so that a
use case with other settings is another one wherever its name goes: in plans, studies and jobs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints
from urllib.parse import quote, unquote

from launch.errors import UseCaseError

Settings = tuple[tuple[str, str], ...]
"""Keys with their values as texts, by key."""

_TRUTHS = {"true": True, "yes": True, "on": True, "1": True}
_TRUTHS |= {"false": False, "no": False, "off": False, "0": False}
_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}


def split_name(spec: str) -> tuple[str, Settings]:
    """Split ``NAME,key=value`` into the name and its settings.

    Raises:
        UseCaseError: What is behind a comma is no setting.
    """
    place, colon, tail = spec.rpartition(":")
    name, *pairs = tail.split(",")
    return f"{place}{colon}{name}", parse_settings(map(unquote, pairs))


def spell_name(name: str, settings: Settings) -> str:
    """Give the one spelling of a name with its settings."""
    return ",".join([name, *(f"{key}={quote(value, safe='')}" for key, value in settings)])


def parse_settings(pairs: Iterable[str]) -> Settings:
    """Read texts of the form ``key=value``.

    Raises:
        UseCaseError: One has another form, or a key is there twice.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise UseCaseError(f"setting {pair!r} of a use case: write key=value")
        if key in found:
            raise UseCaseError(f"setting {key!r} of a use case is given twice: give one value")
        if not value.isprintable():
            raise UseCaseError(f"setting {pair!r} of a use case: write a value of one line")
        found[key] = value
    return tuple(sorted(found.items()))


def find_keys(kind: Callable[..., object]) -> set[str]:
    """Find the keys of the settings that a class, or a function that makes one, can have."""
    return set(_find_parameters(kind))


def make_arguments(
    kind: Callable[..., object], settings: Settings, spec: str, data: Path | None = None
) -> dict[str, Any]:
    """Convert settings as the constructor of a class asks for.

    Args:
        kind: The class, or a function that makes an instance.
        settings: What it is given.
        spec: Its name in messages.
        data: Where its data are, for an argument called ``data``.

    Raises:
        UseCaseError: There is no such key, a value is of another kind, or one that is needed is
            missing.
    """
    known = _find_parameters(kind)
    arguments: dict[str, Any] = {}
    if known.pop("data", None) is not None:
        arguments["data"] = data
    for key, text in settings:
        if key not in known:
            raise UseCaseError(f"use case {spec} has no setting {key!r}: {_name_keys(key, known)}")
        arguments[key] = _convert(key, text, _find_type(kind, known[key]), spec)
    missing = [
        name
        for name, parameter in known.items()
        if parameter.default is parameter.empty and name not in arguments
    ]
    if missing:
        raise UseCaseError(
            f"use case {spec} needs {', '.join(missing)}: give --set {missing[0]}=VALUE"
        )
    return arguments


def _find_parameters(kind: Callable[..., object]) -> dict[str, inspect.Parameter]:
    try:
        found = inspect.signature(kind).parameters
    except (TypeError, ValueError):  # some classes written in C have none
        return {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: parameter for name, parameter in found.items() if parameter.kind in by_name}


def _name_keys(key: str, known: Mapping[str, object]) -> str:
    if not known:
        return "it takes none"
    close = get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"


def _find_type(kind: Callable[..., object], parameter: inspect.Parameter) -> Any:
    """Find the type of a parameter: as annotated, else that of its default, else text."""
    makes: Any = kind.__init__ if isinstance(kind, type) else kind  # type: ignore[misc]
    try:
        annotated = get_type_hints(makes).get(parameter.name)
    except Exception:  # noqa: BLE001 - names of a user's annotations need not exist at run time
        annotated = None
    if annotated is not None:
        return annotated
    default = parameter.default
    return str if default in (None, parameter.empty) else type(default)


def _convert(key: str, text: str, wanted: Any, spec: str) -> Any:
    kinds = [kind for kind in get_args(wanted) or (wanted,) if kind is not NoneType]
    if text.lower() == "none" and NoneType in get_args(wanted):
        return None
    for kind in (bool, int, float, str):  # an int is written like a float, and not the reverse
        if kind in kinds:
            try:
                return _convert_to(kind, text)
            except ValueError:
                continue
    named = [words for kind, words in _KINDS.items() if kind in kinds]
    expected = " or ".join(named) or "none from a command line"
    raise UseCaseError(f"use case {spec}: setting {key}={text!r}: expected {expected}")


def _convert_to(kind: type, text: str) -> Any:
    if kind is bool:
        if text.lower() not in _TRUTHS:
            raise ValueError(text)
        return _TRUTHS[text.lower()]
    value = kind(text)
    if kind is float and not isfinite(value):
        raise ValueError(text)
    return value
