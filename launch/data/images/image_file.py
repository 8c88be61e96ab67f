"""Decoding of an image file into red, green and blue."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

# Pillow finds the format by content, not by the file's suffix. Only these are tried: some of its
# other readers start programs of their own.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")


def read_photo(file: str | Path) -> Image.Image:
    """Decode a picture as a viewer shows it: upright, its first frame, in RGB.

    Raises:
        OSError, SyntaxError, ValueError: Pillow cannot read the file.
    """
    with Image.open(file, formats=FORMATS) as opened:
        ImageOps.exif_transpose(opened, in_place=True)
        if opened.mode.startswith("I;16"):  # convert would cut all levels above 255 off
            return opened.point(lambda level: level / 256).convert("RGB")
        return opened.convert("RGB")


def find_damage(file: str | Path) -> str | None:
    """Explain why a file is no picture, ``None`` for a valid one; the whole file is decoded."""
    try:
        read_photo(file)
    except UnidentifiedImageError:
        return f"is no picture in {', '.join(FORMATS)}"
    except Exception as error:  # noqa: BLE001 - a damaged file trips Pillow's readers in any way
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return f"is damaged: {reason or type(error).__name__}"
    return None
