"""Folder of a report: its files are written whole, and those of anybody else stay as they are."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from launch.system.durable_files import (
    check_folder,
    explain_os_error,
    make_folders,
    write_in_place,
)
from planner.errors import UsageError
from probes import codec
from probes.errors import InvalidDocumentError

_LIST = ".ddlplan-report.json"
_LARGEST_LIST_BYTES = 1 << 20


class ReportFolder:
    """A folder that holds a report, and a list of the report's files with their digests.

    A file is written, replaced or removed only where there is none of its name, or where it is as
    a report has written it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self, names: Iterable[str]) -> None:
        """Check that files of these names can be written, before anything that takes long.

        Nothing is made: what comes may be refused.

        Raises:
            UsageError: It cannot, or a file of somebody else has one of the names.
        """
        try:
            check_folder(self.path)
        except OSError as error:
            raise self._explain(error) from error
        self._check_names(names, self._listed())

    def write(self, files: Mapping[str, str]) -> list[Path]:
        """Write a report, texts by the names of files, in place of the one before.

        Raises:
            UsageError: A file of somebody else has one of the names, or it cannot be written.
        """
        contents = {name: text.encode(errors="backslashreplace") for name, text in files.items()}
        listed = self._listed()
        self._check_names(contents, listed)
        old = [name for name in listed if name not in contents and self._is_free(name, listed)]
        digests = {name: [_digest(content)] for name, content in contents.items()}
        before = {name: [*listed.get(name, []), *known] for name, known in digests.items()}
        try:
            make_folders(self.path)
            # The list is there first: a report that is cut short can be written again.
            write_in_place(self.path / _LIST, codec.encode({**listed, **before}))
            for name, content in contents.items():
                write_in_place(self.path / name, content)
            for name in old:
                (self.path / name).unlink(missing_ok=True)
            write_in_place(self.path / _LIST, codec.encode(digests))
        except OSError as error:
            raise self._explain(error) from error
        return [self.path / name for name in contents]

    def _check_names(self, names: Iterable[str], listed: Mapping[str, list[str]]) -> None:
        foreign = [name for name in sorted(names) if not self._is_free(name, listed)]
        if foreign:
            raise UsageError(
                f"--out {self.path}: {', '.join(foreign)} {'is' if len(foreign) == 1 else 'are'} "
                "there and not as a report has written it: name another folder, or move it away"
            )

    def _is_free(self, name: str, listed: Mapping[str, list[str]]) -> bool:
        file = self.path / name
        if not os.path.lexists(file):
            return True
        if file.is_symlink() or not file.is_file():
            return False
        try:
            return _digest(file.read_bytes()) in listed.get(name, [])
        except OSError as error:
            raise self._explain(error) from error

    def _listed(self) -> dict[str, list[str]]:
        """Give the digests that files of reports may have; nothing where there was no report."""
        file = self.path / _LIST
        try:
            with file.open("rb") as opened:
                content = opened.read(_LARGEST_LIST_BYTES)
            listed = codec.decode(content, dict[str, list[str]], source=str(file))
        except FileNotFoundError:
            return {}
        except (OSError, InvalidDocumentError) as error:
            raise UsageError(
                f"--out {self.path}: {_LIST} is no list of a report's files: name another folder"
            ) from error
        # A name in it is one of this folder, whoever wrote it.
        return {name: known for name, known in listed.items() if Path(name).name == name}

    def _explain(self, error: OSError) -> UsageError:
        why = explain_os_error(error, named=self.path)
        return UsageError(f"--out {self.path}: {why}: name another folder")


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
