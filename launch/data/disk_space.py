"""Disk space for decoded pictures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from shutil import disk_usage

from launch.data.pixel_layout import PixelLayout
from launch.system.cache import cache_folder, make_folder

_RESERVED_BYTES = 1 << 30
_RESERVED_SHARE = 0.05


def find_disk_shortage(layouts: Sequence[PixelLayout]) -> str | None:
    """Find by how much the disk is too small for files that are missing.

    Returns:
        Bytes needed and bytes free, ``None`` where all fit.

    Raises:
        UseCaseError: The cache cannot be made.
    """
    needed_bytes = sum(layout.num_bytes for layout in layouts if not _is_there(layout))
    if needed_bytes == 0:
        return None
    folder = make_folder(cache_folder())
    disk = disk_usage(folder)
    reserved_bytes = int(max(_RESERVED_BYTES, _RESERVED_SHARE * disk.total))
    if needed_bytes <= disk.free - reserved_bytes:
        return None
    return (
        f"decoded pictures need {needed_bytes} bytes in {folder} and {disk.free} bytes are free "
        f"there, of which {reserved_bytes} stay free"
    )


def _is_there(layout: PixelLayout) -> bool:
    try:
        descriptor = layout.open()
    except OSError:
        return False
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None
