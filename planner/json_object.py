"""What does a JSON object hold? Checked key by key, with errors that say what was expected."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from launch.plan import Setting
from planner.errors import PlanFileError

_DEVICE = re.compile(r"cpu|cuda:[0-9]{1,4}")

_MAX_WHOLE = 2**53
"""Above it, other JSON readers round whole numbers."""

_MAX_NUMBER = 1e300
"""Python reads 1e999 as infinity."""


class JsonObject:
    """A JSON object whose values are asked for by key and kind.

    Each question raises `PlanFileError` where the value is missing or of another kind.

    Args:
        values: What JSON gave.
        name: What messages call the whole document.
        path: Keys that lead to this object in it, each with a dot.
    """

    def __init__(self, values: object, name: str, path: str = "") -> None:
        if not isinstance(values, dict):
            what = f"{path[:-1]}=" if path else ""
            raise PlanFileError(f"{name}: {what}{_short(values)}: expected an object {{...}}")
        self.name = name
        self._values: Mapping[str, Any] = values
        self._path = path

    def has(self, key: str) -> bool:
        """Tell whether a value is there that is not null."""
        return self._values.get(key) is not None

    def error(self, key: str, expected: str) -> PlanFileError:
        """Say what was expected of a key instead of what there is."""
        where = f"{self.name}: {self._path}{key}"
        if key not in self._values:
            return PlanFileError(f"{where} is missing: expected {expected}")
        return PlanFileError(f"{where}={_short(self._values[key])}: expected {expected}")

    def nested(self, key: str) -> JsonObject:
        """Give an object within this one."""
        if key not in self._values:
            raise self.error(key, "an object {...}")
        return JsonObject(self._values[key], self.name, f"{self._path}{key}.")

    def nested_or_none(self, key: str) -> JsonObject | None:
        """Give an object within this one, where there is one."""
        return self.nested(key) if self.has(key) else None

    def objects(self, key: str) -> list[JsonObject]:
        """Give a list of objects within this one."""
        value = self._values.get(key)
        if not isinstance(value, list):
            raise self.error(key, "a list of objects [{...}, ...]")
        return [
            JsonObject(item, self.name, f"{self._path}{key}[{i}].") for i, item in enumerate(value)
        ]

    def text(self, key: str) -> str:
        """Give a text that a terminal can show: it would obey control characters."""
        value = self._values.get(key)
        if not isinstance(value, str) or not value or len(value) > 4096 or not value.isprintable():
            raise self.error(key, "a text of printable characters")
        return value

    def whole(self, key: str, *, at_least: int = 1) -> int:
        """Give a whole number."""
        value = self._values.get(key)
        if type(value) is not int or not at_least <= value <= _MAX_WHOLE:
            raise self.error(key, f"a whole number of at least {at_least}")
        return value

    def positive(self, key: str) -> float:
        """Give a finite number above 0."""
        value = self._values.get(key)
        # type() and not isinstance(): True is an int to Python
        if (type(value) is int or type(value) is float) and 0 < value <= _MAX_NUMBER:
            return float(value)
        raise self.error(key, "a number above 0")

    def switch(self, key: str) -> bool:
        """Give true or false."""
        value = self._values.get(key)
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def time(self, key: str) -> datetime:
        """Give a time, which must say its zone."""
        value = self._values.get(key)
        try:
            moment = datetime.fromisoformat(value) if isinstance(value, str) else None
            if moment is not None and moment.tzinfo is not None:
                return moment.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        raise self.error(key, "a time with its zone, such as 2026-11-20T12:00:00Z")

    def devices(self, key: str) -> tuple[str, ...]:
        """Give a list of devices."""
        value = self._values.get(key)
        if not isinstance(value, list) or not all(
            isinstance(item, str) and _DEVICE.fullmatch(item) for item in value
        ):
            raise self.error(key, 'a list of devices such as ["cpu"] or ["cuda:0", "cuda:1"]')
        return tuple(value)

    def texts(self, key: str) -> dict[str, str]:
        """Give an object of texts, such as versions."""
        inner = self.nested(key)
        return {name: inner.text(name) for name in inner._names()}

    def settings(self, key: str) -> dict[str, Setting]:
        """Give an object of texts, numbers and switches."""
        inner = self.nested(key)
        return {name: inner._setting(name) for name in inner._names()}

    def _setting(self, key: str) -> Setting:
        value = self._values[key]
        if isinstance(value, str):
            return self.text(key)
        if isinstance(value, int | float) and -_MAX_NUMBER <= value <= _MAX_NUMBER:
            return value
        raise self.error(key, "a text, a number, true or false")

    def _names(self) -> list[str]:
        if not all(name.isprintable() for name in self._values):
            raise PlanFileError(f"{self.name}: {self._path}*: expected printable keys")
        return list(self._values)


def _short(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "infinity"
    try:
        text = ascii(value)
    except ValueError:  # Python refuses to write a number of more than 4300 digits
        return "a very long number"
    return text if len(text) <= 60 else text[:57] + "..."
