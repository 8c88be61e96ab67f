"""Which inputs may a plan have here? Decoded pictures take as much disk, and memory to be quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset

from launch.data.decoded_pictures import layout_of
from launch.data.pictures import Pictures
from launch.data.pixel_room import find_shortage
from launch.errors import UseCaseError
from probes.memory import read_memory

_MEMORY_SHARE = 0.5
"""Share of the usable memory that decoded pictures may take in the page cache: what trains needs
memory too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFacts:
    """What `launch.case_facts.CaseFacts` says of the input."""

    pixel_bytes: int | None = None
    inputs: tuple[str, ...] = ("files",)
    warnings: tuple[str, ...] = ()


def describe_input(*datasets: Dataset[Any]) -> InputFacts:
    """Find out whether the pictures of all data sets together can be kept decoded here."""
    sources = [d for d in datasets if isinstance(d, Pictures)]
    if not sources or sources[0] is not datasets[0]:
        return InputFacts()
    layouts = [layout_of(source) for source in sources if len(source)]
    pixel_bytes = sum(layout.count * layout.picture_bytes for layout in layouts)
    memory_bytes = int(_MEMORY_SHARE * read_memory().usable_bytes)
    try:
        shortage = find_shortage(layouts)
    except UseCaseError as error:
        return InputFacts(pixel_bytes=pixel_bytes, warnings=(str(error),))
    if shortage is None and pixel_bytes > memory_bytes:
        shortage = (
            f"decoded pictures need {pixel_bytes} bytes of memory and {memory_bytes} bytes, half "
            "of what is usable, are there"
        )
    if shortage is None:
        return InputFacts(pixel_bytes=pixel_bytes, inputs=("files", "cache"))
    warning = (
        f"{shortage}: plans decode the files in every epoch; make room, or set DDLPLAN_CACHE to a "
        "folder elsewhere"
    )
    return InputFacts(pixel_bytes=pixel_bytes, warnings=(warning,))
