"""Is there room on the disk for decoded pictures?"""

from __future__ import annotations

import os
from collections.abc import Sequence

from launch.cache import cache_folder, make_folder
from launch.data.pixel_layout import PixelLayout

_KEPT_FREE_BYTES = 1 << 30
_KEPT_FREE_SHARE = 0.05


def find_shortage(layouts: Sequence[PixelLayout]) -> str | None:
    """Say by how much the disk is too small for files that are not there yet.

    Returns:
        Bytes needed and bytes free, ``None`` where all have room.

    Raises:
        UseCaseError: The cache cannot be made.
    """
    needed_bytes = sum(layout.num_bytes for layout in layouts if not _is_there(layout))
    if needed_bytes == 0:
        return None
    folder = make_folder(cache_folder())
    disk = os.statvfs(folder)
    free_bytes = disk.f_bavail * disk.f_frsize
    kept_bytes = int(max(_KEPT_FREE_BYTES, _KEPT_FREE_SHARE * disk.f_blocks * disk.f_frsize))
    if needed_bytes <= free_bytes - kept_bytes:
        return None
    return (
        f"decoded pictures need {needed_bytes} bytes in {folder} and {free_bytes} bytes are free "
        f"there, of which {kept_bytes} stay free"
    )


def _is_there(layout: PixelLayout) -> bool:
    try:
        descriptor = layout.open()
    except OSError:
        return False
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None
