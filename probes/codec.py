"""Codec of everything that is stored, sent or read: values of our types to JSON and back.

The fields and type hints of a dataclass say what its JSON is, and `msgspec` checks documents
by them. What hints cannot say, ``__post_init__`` checks: a ValueError of it is told with the place
in the document, errors of ours pass through. Texts are made and read by Python's own ``json``: a
loss may be NaN and the name of a file a lone surrogate, which msgspec's JSON does not have.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec

from probes.errors import InvalidDocumentError

T = TypeVar("T")

Count = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
"""A whole number of at least 1; beyond 2**53, other JSON readers round."""

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
"""A whole number from 0, as large as a seed may be."""

Positive = Annotated[float, msgspec.Meta(gt=0, le=1e300)]
"""A finite number above 0; Python reads 1e999 as infinity."""

Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
"""A part of a whole, above 0."""

NonNegative = Annotated[float, msgspec.Meta(ge=0, le=1e300)]
"""A finite number of at least 0."""

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A whole number from 0."""

Cores = Annotated[int, msgspec.Meta(ge=1, le=2**13)]
"""Processors of a node: Linux has no more."""

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its zone."""

_ERROR = re.compile(r"(.*?)(?:, got `(\w+)`)?(?: - at (?:`key` in )?`\$(.*)`)?", re.DOTALL)
"""Message of msgspec: what is wrong, the kind of what was found, where."""

_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_OWN_WORDS = ("Expected", "Invalid", "Number out of range")
_MISSING = "Object missing required field "
_KINDS = {
    "null": type(None),
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "array": list,
    "object": dict,
}
_TIME = "expected a time with its zone, such as 2026-11-20T12:00:00Z"
_SENTENCES = {
    "Invalid RFC3339 encoded datetime": _TIME,
    "Expected `datetime` with a timezone component": _TIME,
}
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "datetime": "a time",
    "Expected": "expected",
    ">=": "of at least",
    ">": "above",
    "<=": "of at most",
    "0.0": "0",
    "|": "or",
}
_LEARNING = threading.Lock()
_learnt: set[object] = set()


def encode(value: object, *, indent: int | None = None) -> bytes:
    """Give a value as JSON."""
    return json.dumps(msgspec.to_builtins(value, enc_hook=_to_builtin), indent=indent).encode()


def to_builtins(value: object, *, null_for_nan: bool = False) -> Any:
    """Give a value as the dictionaries, lists, texts and numbers that its JSON holds.

    Args:
        value: What to give.
        null_for_nan: Whether ``None`` takes the place of NaN and infinity, as other programs
            need it: their JSON has neither.
    """
    constant = (lambda _: None) if null_for_nan else None
    return json.loads(encode(value), parse_constant=constant)


def decode(
    document: bytes | str,
    as_type: type[T],
    *,
    source: str,
    allow_unknown_keys: bool = True,
    allow_nan: bool = True,
) -> T:
    """Read a value back from `encode`; see `convert`.

    Raises:
        InvalidDocumentError: It is no JSON, or other JSON than that of the type.
    """
    try:
        values = json.loads(document, parse_constant=None if allow_nan else _refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidDocumentError(f"{source}: no JSON ({error})") from error
    return convert(values, as_type, source=source, allow_unknown_keys=allow_unknown_keys)


def convert(values: object, as_type: type[T], *, source: str, allow_unknown_keys: bool = True) -> T:
    """Read a value back from `to_builtins`.

    Args:
        values: What JSON gave.
        as_type: What it should be.
        source: What messages call the whole document.
        allow_unknown_keys: Leave out keys that the type does not have, at any depth, as a later
            release may have added them.

    Raises:
        InvalidDocumentError: A key is missing or unknown, or a value is not what it should be.
    """
    _learn(as_type)
    try:
        value = msgspec.convert(values, as_type)
        if not allow_unknown_keys:
            known = msgspec.to_builtins(value, enc_hook=_to_builtin)
            for path, _ in find_unknown_keys(values, known):
                raise InvalidDocumentError(f"{source}: {path} is no key of it")
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # a key is a lone surrogate
        raise InvalidDocumentError(f"{source}: {_explain(str(error), values)}") from error
    except RecursionError as error:
        raise InvalidDocumentError(f"{source}: it is nested too deeply") from error
    return value


def _learn(as_type: type) -> None:
    """Have msgspec learn a type, and those in it, in one thread at a time.

    It puts what it learns of a class on the class before it knows all fields, where another thread
    takes it as it is and reads from address 0 (msgspec 0.22).
    """
    if as_type not in _learnt:
        with _LEARNING:
            msgspec.json.Decoder(as_type)
        _learnt.add(as_type)


def json_schemas(
    types: Sequence[type], template: str, *, for_reading: bool = False
) -> dict[str, Any]:
    """Give JSON Schemas of what `to_builtins` makes of values of these types, by their names.

    Every key is there, also where a value has a default.

    Args:
        types: Dataclasses; those that they hold are described too.
        template: What one refers to another by, with ``{name}`` in it.
        for_reading: Describe what `convert` reads without unknown keys: those with a default may be
            left out.
    """
    _, found = msgspec.json.schema_components(types, ref_template=template)
    for schema in found.values():
        if "properties" in schema and for_reading:
            schema["additionalProperties"] = False
        elif "properties" in schema:
            schema["required"] = list(schema["properties"])
        for inner in schema.get("properties", {}).values():
            inner.pop("default", None)
    return dict(found)


def find_unknown_keys(given: Any, known: Any, path: str = "") -> Iterator[tuple[str, str | None]]:
    """Find the keys that were given and that the value made of them does not have.

    Args:
        given: What JSON gave.
        known: What the value is in JSON.
        path: Keys that lead to both.

    Yields:
        The path of each, and the nearest key that the value has there; ``None`` without one.
    """
    if isinstance(given, dict):
        for key, item in given.items():
            if key not in known:
                near = get_close_matches(key, known, 1)
                yield ascii(path + key)[1:-1], near[0] if near else None
            else:
                yield from find_unknown_keys(item, known[key], f"{path}{key}.")
    elif isinstance(given, list):
        for index, (item, made) in enumerate(zip(given, known, strict=False)):
            yield from find_unknown_keys(item, made, f"{path.removesuffix('.')}[{index}].")


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _to_builtin(value: object) -> object:
    """Give a text or number of a class of its own, such as one of NumPy, as Python's own."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{value!r:.60}: JSON has no form for a {type(value).__name__}")


def _explain(error: str, values: object) -> str:
    """Write msgspec's message with the value that was found, in the words of our errors."""
    match = _ERROR.fullmatch(error)
    assert match is not None  # all of it is optional
    what, got, path = match.groups(default="")
    if what.startswith(_MISSING):
        return f"{path}.{what.removeprefix(_MISSING).strip('`')} is missing".lstrip(".")
    places = list(_find_places(values, _STEP.findall(path), _KINDS.get(got, object)))
    where, found = path, "..."
    if len(places) == 1:  # msgspec does not name which of an object's values it is
        where, found = ascii(places[0][0])[1:-1], shorten(places[0][1])
    if not what.startswith(_OWN_WORDS):  # the words of a ValueError of the class itself
        return f"{where}: {what}".lstrip(".: ")
    words = " ".join(_WORDS.get(word, word) for word in what.replace("`", "").split())
    words = words.replace("of length ", "").replace("a whole number or a number", "a number")
    return f"{where}={found}: {_SENTENCES.get(what, words)}".lstrip(".=")


def _find_places(
    value: Any, steps: Sequence[tuple[str, str]], kind: type
) -> Iterator[tuple[str, object]]:
    """Find the values of a kind that a path may mean, each with the keys that lead to it."""
    if not steps:
        if isinstance(value, kind):
            yield "", value
        return
    (key, index), *inner = steps
    keys = [key] if key else list(value) if index == "..." else [int(index)]
    for each in keys:
        step = f"[{each}]" if isinstance(each, int) else f".{each}"
        for where, found in _find_places(value[each], inner, kind):
            yield step + where, found


def shorten(value: object) -> str:
    """Write a value in at most 60 printable characters."""
    if isinstance(value, float) and math.isinf(value):
        return "infinity"
    try:
        text = ascii(value)
    except ValueError:  # Python refuses to write a number of more than 4300 digits
        return "a very long number"
    return text if len(text) <= 60 else text[:57] + "..."
