"""Inputs that a plan may have: decoded pictures need disk space, and memory to be fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset

from launch.data.decoded_pictures import make_layout
from launch.data.disk_space import find_disk_shortage
from launch.data.memory_room import memory_room_bytes
from launch.data.pictures import Pictures
from launch.errors import UseCaseError


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDescription:
    """Facts of the input, part of `launch.case_facts.CaseFacts`."""

    pixel_bytes: int | None = None
    inputs: tuple[str, ...] = ("files",)
    warnings: tuple[str, ...] = ()


def describe_input(*datasets: Dataset[Any]) -> InputDescription:
    """Find whether the decoded pictures of all data sets fit on this node."""
    sources = [d for d in datasets if isinstance(d, Pictures)]
    if not sources or sources[0] is not datasets[0]:
        return InputDescription()
    layouts = [make_layout(source) for source in sources if len(source)]
    pixel_bytes = sum(layout.count * layout.picture_bytes for layout in layouts)
    try:
        shortage = find_disk_shortage(layouts)
    except UseCaseError as error:
        return InputDescription(pixel_bytes=pixel_bytes, warnings=(str(error),))
    if shortage is not None:
        warning = (
            f"{shortage}: plans decode the files in every epoch; make room, or set DDLPLAN_CACHE "
            "to a folder elsewhere"
        )
        return InputDescription(pixel_bytes=pixel_bytes, warnings=(warning,))
    warnings: tuple[str, ...] = ()
    room_bytes = memory_room_bytes()
    if any(layout.num_bytes > room_bytes for layout in layouts):
        warnings = (
            f"decoded pictures take {pixel_bytes} bytes and {room_bytes} bytes, half of the "
            "memory, are there: plans with input=cache read them from the disk in every epoch, "
            "ahead of the steps, and are timed so",
        )
    return InputDescription(pixel_bytes=pixel_bytes, inputs=("files", "cache"), warnings=warnings)
