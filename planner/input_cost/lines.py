"""Lines for data: how fast they are read, what epochs take, and whether a copy pays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.input_cost.epochs import InputCost
from planner.quantities import format_bytes, format_count, format_duration, format_number, printable
from probes.hardware import DataSpeed, ReadRate

_ALIKE = 0.02
"""Relative difference below which epochs count as equally long."""


def data_facts(speed: DataSpeed) -> Iterator[tuple[str, str]]:
    """Give what was measured of a folder of data as names and texts."""
    yield "data", printable(speed.path)
    yield "  on", f"{_kind(speed.file_system)} ({_place(speed)})"
    if speed.num_files is not None:
        yield "  files", f"{speed.num_files}, {format_bytes(speed.num_bytes)}"
    if speed.cold:
        yield "  not cached", _rates(speed.cold)
    if speed.warm:
        yield "  cached", _rates(speed.warm)
    if speed.open_s is not None:
        yield "  to open", f"{1e3 * speed.open_s:.2f} ms a file"
    if speed.sequential_bytes_per_s is not None:
        text = f"{format_bytes(round(speed.sequential_bytes_per_s))}/s in sequence"
        if speed.random_bytes_per_s is not None:
            text += f", {format_bytes(round(speed.random_bytes_per_s))}/s in pieces of 64 KiB"
        yield "  a large file", text
    if speed.local is not None:
        copied = f"{format_number(speed.local.copy_files_per_s)} files/s copied"
        local = f"{printable(speed.local.folder)} ({_kind(speed.local.file_system)})"
        free = speed.local.free_bytes
        room = "" if free is None else f", {format_bytes(free)} free"
        yield "  local copy", f"{local}: {copied}, {_rates(speed.local.cold)}{room}"


def _kind(file_system: str) -> str:
    return printable(file_system) or "an unknown file system"


def _place(speed: DataSpeed) -> str:
    if speed.is_network:
        return "another machine"
    return "in memory" if speed.is_in_memory else "local"


def _rates(rates: tuple[ReadRate, ...]) -> str:
    """Describe the rate of one reader, and the best."""
    best = max(rates, key=lambda rate: rate.files_per_s)
    chosen = list(dict.fromkeys((rates[0], best)))
    return ", ".join(
        f"{format_number(rate.files_per_s)} files/s ({format_bytes(round(rate.bytes_per_s))}/s) by "
        f"{rate.readers}"
        for rate in chosen
    )


def input_lines(
    cost: InputCost, epochs: int | None = None, host: str | None = None
) -> Iterator[str]:
    """Say what epochs take where the data are, and whether to copy them to a local disk.

    Without ``epochs`` there is no training yet. ``host`` names the node among several.
    """
    speed, where = cost.data, "" if host is None else f" on {host}"
    first_s, later_s = cost.epoch_s(0), cost.later_s
    alone = "" if host is None else " if it trained alone"
    if abs(first_s - later_s) > _ALIKE * later_s:
        times = f"epoch 1 takes {format_duration(first_s)}, a late one {format_duration(later_s)}"
    else:
        times = f"each epoch takes {format_duration(first_s)}"
    yield f"data{where}: {printable(speed.path)} on {_kind(speed.file_system)}, {times}{alone}"
    if cost.copy_s is None:
        return
    local = speed.local
    if local is not None and cost.copy_fits is False:
        yield (
            f"copying them{where} to {printable(local.folder)}: no room for "
            f"{format_bytes(speed.num_bytes)}, {format_bytes(local.free_bytes)} were free"
        )
        return
    paid, takes = cost.epochs_until_copied(), f"takes {format_duration(cost.copy_s)}"
    if paid is None:
        yield (
            f"copying them{where} to a local disk {takes} and does not pay: later epochs read them "
            "from memory, or what is decoded from the disk"
        )
    else:
        count = format_count(paid, "epoch")
        advice = ""
        if epochs is not None:
            advice = ": copy them" if paid <= epochs else ": not for this training"
        yield f"copying them{where} to a local disk {takes} and has paid after {count}{advice}"


def input_json(cost: InputCost) -> dict[str, Any]:
    """Give the same as plain values for JSON."""
    return {
        "path": cost.data.path,
        "file_system": cost.data.file_system,
        "is_network": cost.data.is_network,
        "first_epoch_s": cost.epoch_s(0),
        "later_epoch_s": cost.later_s,
        "copy_s": cost.copy_s,
        "copy_fits": cost.copy_fits,
        "copy_pays_after_epochs": cost.epochs_until_copied(),
    }
