"""Folder of checkpoints: the newest complete one is used.

Each checkpoint is a folder. It is written under a hidden name, and renamed when all its files are
written. The newest one is found by its number; no other file names it, so none can be out of date::

    DIR/step-00000400/manifest.json            written last
                      weights-0.safetensors    the model, under the names of its state_dict
                      optimizer-0.safetensors  worker 0's part of the optimizer's state
                      optimizer-1.safetensors
    DIR/.step-00000500/                        being written, or left by a writer that was killed
    DIR/.lock                                  locked by the writer; empty

Imports no torch: the command line reads the folder before it starts anything.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import re
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from launch.checkpoints.manifest import FileRecord, Manifest, NewerCheckpointError
from launch.errors import CheckpointError
from launch.system.durable_files import explain_os_error

MANIFEST = "manifest.json"
_MANIFEST_BYTES = 2**26
"""Largest manifest that is read: thousands of workers have some hundred bytes each."""
_KEPT = 2
"""Checkpoints that stay in a folder."""
_NAME = re.compile(r"step-(\d{8,})")
_HIDDEN = re.compile(r"\.(old-)?step-\d{8,}")
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
"""Errors that say what is there; others, such as EIO and ESTALE, say that the disk or the file
server does not answer now."""


class UnreadableCheckpointError(CheckpointError):
    """Whether it is damaged is not known: the disk or the file server does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """The newest whole checkpoint of a folder."""

    path: Path
    manifest: Manifest
    warnings: tuple[str, ...]
    """For each newer checkpoint, why it was passed over."""


def find_latest(folder: Path) -> FoundCheckpoint:
    """Find the newest whole checkpoint; every byte of it is read.

    Raises:
        CheckpointError: There is none, a newer ddlplan wrote it, or it cannot be read now.
    """
    warnings: list[str] = []
    for path in list_checkpoints(folder):
        try:
            manifest = read_manifest(path)
            check_files(path, manifest)
        except NewerCheckpointError as error:
            raise CheckpointError(f"checkpoint {path}: {error}") from error
        except UnreadableCheckpointError as error:
            raise CheckpointError(
                f"checkpoint {path}: {error}, which says nothing of its content: nothing was "
                "removed; try again when the disk or the file server answers, or move it elsewhere "
                "to go on from an older one"
            ) from error
        except CheckpointError as error:
            warnings.append(f"checkpoint {path} is passed over: {error}")
            continue
        return FoundCheckpoint(path=path, manifest=manifest, warnings=tuple(warnings))
    if warnings:
        raise CheckpointError(f"no usable checkpoint in {folder}: {'; '.join(warnings)}")
    raise CheckpointError(
        f"no checkpoint in {folder}: leave --resume out, or name the folder of another training"
    )


def list_checkpoints(folder: Path) -> list[Path]:
    """List the checkpoints by name, the newest first.

    Raises:
        CheckpointError: The folder cannot be read.
    """
    try:
        found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        why = explain_os_error(error, named=folder)
        raise CheckpointError(
            f"checkpoints in {folder} cannot be listed: {why}: name another folder"
        ) from error
    return sorted(found, key=_step_of, reverse=True)


def _step_of(path: Path) -> int:
    """Give the step in the name of a checkpoint."""
    return int(path.name.removeprefix("step-"))


def name_of(step: int) -> str:
    """Give the name of the checkpoint of a step."""
    return f"step-{step:08}"


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a checkpoint.

    Raises:
        CheckpointError: It cannot be read.
    """
    try:
        _check_regular(path / MANIFEST)
        with (path / MANIFEST).open("rb") as file:
            document = file.read(_MANIFEST_BYTES)
    except OSError as error:
        raise _make_read_error("its manifest", error) from error
    return Manifest.decode(document)


def check_files(path: Path, manifest: Manifest) -> None:
    """Check every byte of a checkpoint's files against its manifest.

    Raises:
        CheckpointError: One is missing or is not what was written.
    """
    for record in manifest.files:
        _check_size(path, record)
    for record in manifest.files:
        if digest_of(path / record.name) != record.sha256:
            raise CheckpointError(f"{record.name} is damaged: its content is not what was written")


def has_all_files(path: Path) -> bool:
    """Whether the files exist in their sizes: the quick half of `check_files`.

    Raises:
        UnreadableCheckpointError: That is not known.
    """
    try:
        for record in read_manifest(path).files:
            _check_size(path, record)
    except NewerCheckpointError:
        return True
    except UnreadableCheckpointError:
        raise
    except CheckpointError:
        return False
    return True


def digest_of(path: Path) -> str:
    """Give the SHA-256 of a file's content.

    Raises:
        CheckpointError: It cannot be read.
    """
    try:
        with path.open("rb", buffering=0) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _make_read_error(path.name, error) from error


def remove_leftovers(folder: Path) -> None:
    """Remove what killed writers have left. Only one may write in a folder at a time."""
    for path in folder.iterdir():
        if _HIDDEN.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def remove_superseded(folder: Path, step: int) -> None:
    """Remove all but the newest whole checkpoints up to the one of a step.

    Those of later steps are removed too: a training that resumed from an earlier one passed them
    over. One that cannot be read now stays.

    Args:
        folder: Of the checkpoints.
        step: Of the checkpoint that was just written.
    """
    count = 0
    for path in list_checkpoints(folder):
        try:
            is_whole = has_all_files(path)
        except UnreadableCheckpointError:
            continue  # it may be whole
        if _step_of(path) <= step and count < _KEPT and is_whole:
            count += 1
        else:
            with contextlib.suppress(OSError):  # the new one is whole: that suffices
                hide(path)
    remove_leftovers(folder)


def hide(path: Path) -> None:
    """Rename a checkpoint so that it counts as none, and is removed with what killed writers left.

    So there is never a moment without one while files are removed, which takes long.
    """
    hidden = path.with_name(f".old-{path.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    path.rename(hidden)


def _make_read_error(what: str, error: OSError) -> CheckpointError:
    kind = CheckpointError if error.errno in _MISSING else UnreadableCheckpointError
    return kind(f"{what} cannot be read ({error.strerror})")


def _check_regular(path: Path) -> int:
    """Give the size of a file; a pipe or a device in its place might be read for ever.

    Raises:
        CheckpointError: It is no regular file.
        OSError: It cannot be looked at.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise CheckpointError(f"{path.name} is no regular file")
    return found.st_size


def _check_size(path: Path, record: FileRecord) -> None:
    try:
        size = _check_regular(path / record.name)
    except OSError as error:
        raise _make_read_error(record.name, error) from error
    if size != record.num_bytes:
        raise CheckpointError(
            f"{record.name} has {size} bytes, and {record.num_bytes} were written"
        )
