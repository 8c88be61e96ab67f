"""Wire formats: how numbers are written in messages. One module each, found by file name.

They import NumPy, neither torch nor mpi4py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from launch.system.found_by_file import list_names, load_only_class

if TYPE_CHECKING:
    from launch.gradient_sync.wire_formats._base import WireFormat


def wire_format_names() -> list[str]:
    """Return the name of every wire format, sorted, without importing any."""
    return list_names(Path(__file__).parent)


def load_wire_format(name: str) -> WireFormat:
    """Return the wire format of that name, one of `wire_format_names`."""
    from launch.gradient_sync.wire_formats._base import WireFormat

    return load_only_class(f"{__name__}.{name}", WireFormat)()  # type: ignore[type-abstract]
