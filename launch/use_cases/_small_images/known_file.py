"""Files of a well-known data set, recognised by their size and digest."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

from launch.errors import UseCaseError


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A file that is always the same, plain or gzipped."""

    name: str
    num_bytes: int
    digest: str
    """``md5:...`` or ``sha1:...``, as its publishers or the field's libraries give it: against
    damage and mistaken files, not against forgery."""

    other_names: tuple[str, ...] = ()

    def find(self, folder: Path) -> Path | None:
        """Find the file in a folder, plain before gzipped."""
        names = (self.name, *self.other_names)
        places = [folder / f"{name}{end}" for end in ("", ".gz") for name in names]
        return next((place for place in places if place.is_file()), None)

    def read(self, file: Path) -> bytes:
        """Read the whole of it, unpacked.

        Raises:
            UseCaseError: It cannot be read, or is another file.
        """
        unpack = gzip.open if file.name.endswith(".gz") else open
        try:
            with unpack(file, "rb") as stream:
                # One byte more tells of a file that is too long, however far it would unpack.
                content = stream.read(self.num_bytes + 1)
        except (OSError, EOFError, zlib.error) as error:  # gzip raises each of these
            reason = getattr(error, "strerror", None) or str(error)
            raise UseCaseError(f"{file} cannot be read: {reason}: fetch it again") from error
        self.check(content, str(file))
        return content

    def check(self, content: bytes, where: str) -> None:
        """Check that this is the file.

        Raises:
            UseCaseError: It is not.
        """
        if len(content) != self.num_bytes:
            found = "more" if len(content) > self.num_bytes else len(content)
            raise UseCaseError(
                f"{where} has {found} bytes and {self.name} has {self.num_bytes}: fetch it again"
            )
        kind, _, digest = self.digest.partition(":")
        found_digest = hashlib.new(kind, content, usedforsecurity=False).hexdigest()
        if found_digest != digest:
            raise UseCaseError(
                f"{where} is not {self.name}: its {kind} is {found_digest} and not {digest}: "
                "fetch it again"
            )


def name_stamps(files: list[Path]) -> str:
    """Give a text that changes when any of these files has.

    Raises:
        UseCaseError: One of them is gone.
    """
    try:
        stamps = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    except OSError as error:
        raise UseCaseError(
            f"{error.filename}: {error.strerror}: name the folder with --data"
        ) from error
    return repr(stamps)
