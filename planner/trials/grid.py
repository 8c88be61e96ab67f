"""Grid: recorded trials of one use case on one node, on which a search can be replayed."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from launch.case_facts import CaseFacts
from launch.errors import InvalidPlanError, UnknownStrategyError
from launch.plan import Plan
from launch.strategies import check_plan
from launch.system.durable_files import check_in_place, explain_write_error, write_in_place
from planner.errors import GridFileError, reason_of
from planner.trials.result import TrialResult
from probes import codec
from probes.errors import InvalidDocumentError, InvalidMeasurementError
from probes.hardware import Hardware

_VERSION = 1
_MOST_BYTES = 2**28
_HEAD, _HEAD_BYTES = re.compile(rb'\{"schema_version":\d+,"about":'), 64
"""How every file begins that `write_grid` has written, in whichever version."""

_DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Trials of many plans, with all their samples, so with their noise.

    Raises:
        InvalidDocumentError: It holds no plan with times.
    """

    about: str
    """One line: what was recorded, and how."""

    is_synthetic: bool
    """Whether a stated model made the times, and no machine."""

    use_case: str
    case: CaseFacts
    node: Hardware
    software: Mapping[str, str]
    results: tuple[TrialResult, ...]

    def __post_init__(self) -> None:
        if not any(result.measurement for result in self.results):
            raise InvalidDocumentError("results: expected at least one trial with times")


def check_target(path: Path) -> None:
    """Check that a grid can be written to a file, and that it would replace no other than a grid.

    Raises:
        GridFileError: It cannot, or somebody's file is there.
    """
    head = b""
    try:
        check_in_place(path)
        if path.is_file():
            with path.open("rb") as file:
                head = file.read(_HEAD_BYTES)
    except OSError as error:
        why = explain_write_error(error, path)
        raise GridFileError(f"{path}: {why}: name another file") from error
    except ValueError as error:  # a NUL in the name
        raise GridFileError(f"{path}: {error}: name another file") from error
    if head and not _HEAD.match(head):
        raise GridFileError(
            f"{path}: it is there, and trials export has not written it: name another file, or "
            "move it away"
        )


def write_grid(grid: Grid, path: Path) -> None:
    """Write a grid as one JSON document, times to five digits, in place of what was there.

    Raises:
        GridFileError: The file cannot be written.
    """
    values: dict[str, Any] = {"schema_version": _VERSION, **codec.to_builtins(grid)}
    values["results"] = [_shorten(result) for result in values["results"]]
    try:
        write_in_place(path, json.dumps(values, separators=(",", ":")).encode() + b"\n")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise GridFileError(f"{path}: {reason_of(error)}") from error


def read_grid(path: Path) -> Grid:
    """Read a grid.

    Raises:
        GridFileError: The file cannot be read, or is no grid.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise GridFileError(f"{path}: it is no regular file: name one that trials export wrote")
        if path.stat().st_size > _MOST_BYTES:
            raise GridFileError(f"{path}: expected at most {_MOST_BYTES} bytes")
        document = path.read_bytes()
        values = codec.decode(document, dict[str, Any], source=str(path), allow_nan=False)
        if values.get("schema_version") != _VERSION:
            found = codec.shorten(values.get("schema_version"))
            raise GridFileError(f"{path}: schema_version={found}: expected {_VERSION}")
        grid = codec.convert(values, Grid, source=str(path))
        for result in grid.results:
            check_plan(result.plan)
    except InvalidDocumentError as error:
        raise GridFileError(str(error)) from error
    except (InvalidMeasurementError, InvalidPlanError, UnknownStrategyError) as error:
        raise GridFileError(f"{path}: {error}") from error
    except (OSError, ValueError) as error:
        raise GridFileError(f"{path}: {reason_of(error)}") from error
    return grid


def _shorten(result: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a reader fills in by itself, and digits that were not measured."""
    plan = {name: value for name, value in result["plan"].items() if value != _DEFAULTS.get(name)}
    kept = {name: value for name, value in result.items() if value not in (None, {}, [])}
    return dict(_round({**kept, "plan": plan}))


def _round(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {name: _round(inner) for name, inner in value.items()}
    return [_round(inner) for inner in value] if isinstance(value, list) else value


_DEFAULTS = {
    each.name: codec.to_builtins(each.default)
    for each in fields(Plan)
    if each.default is not MISSING
} | {"options": {}}
