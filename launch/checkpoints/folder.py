"""Which checkpoint of a folder counts? The newest whole one.

Each is a folder of its own, written under a hidden name and renamed when it is whole; nothing
points to the newest, so no pointer can be wrong::

    DIR/step-00000400/manifest.json            written last
                      weights-0.safetensors    the model, under the names of its state_dict
                      optimizer-0.safetensors  what worker 0 holds of the optimizer's state
                      optimizer-1.safetensors
    DIR/.step-00000500/                        being written, or left by a writer that was killed
    DIR/.lock                                  held by who writes; empty

Imports no torch: the command line looks here before it starts anything.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from launch.checkpoints.manifest import FileRecord, Manifest, NewerCheckpointError
from launch.errors import CheckpointError

MANIFEST = "manifest.json"
_BLOCK_BYTES = 1 << 20
_NAME = re.compile(r"step-(\d{8,})")
_HIDDEN = re.compile(r"\.(old-)?step-\d{8,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The checkpoint that counts."""

    path: Path
    manifest: Manifest
    warnings: tuple[str, ...]
    """Of each newer one why it was passed over."""


def find_latest(folder: Path) -> Found:
    """Find the newest checkpoint that is whole; every byte of it is read.

    Raises:
        CheckpointError: There is none, or a newer ddlplan wrote it.
    """
    warnings: list[str] = []
    for path in list_checkpoints(folder):
        try:
            manifest = read_manifest(path)
            check_files(path, manifest)
        except NewerCheckpointError as error:
            raise CheckpointError(f"checkpoint {path}: {error}") from error
        except CheckpointError as error:
            warnings.append(f"checkpoint {path} is passed over: {error}")
            continue
        return Found(path=path, manifest=manifest, warnings=tuple(warnings))
    if warnings:
        raise CheckpointError(f"no usable checkpoint in {folder}: {'; '.join(warnings)}")
    raise CheckpointError(
        f"no checkpoint in {folder}: leave --resume out, or name the folder of another training"
    )


def list_checkpoints(folder: Path) -> list[Path]:
    """List what is called a checkpoint, the newest first.

    Raises:
        CheckpointError: The folder cannot be read.
    """
    try:
        found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"checkpoints in {folder} cannot be listed: {error}") from error
    return sorted(found, key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """Give the step in the name of a checkpoint."""
    return int(path.name.removeprefix("step-"))


def name_of(step: int) -> str:
    """Give the name of the checkpoint of a step."""
    return f"step-{step:08}"


def read_manifest(path: Path) -> Manifest:
    """Read what a checkpoint says of itself.

    Raises:
        CheckpointError: It cannot be read.
    """
    try:
        document = (path / MANIFEST).read_bytes()
    except OSError as error:
        raise CheckpointError(f"its manifest cannot be read ({error.strerror})") from error
    return Manifest.decode(document)


def check_files(path: Path, manifest: Manifest) -> None:
    """Hold the files of a checkpoint against its manifest, to the last byte.

    Raises:
        CheckpointError: One is missing or is not what was written.
    """
    for record in manifest.files:
        _check_size(path, record)
    for record in manifest.files:
        if digest_of(path / record.name) != record.sha256:
            raise CheckpointError(f"{record.name} is damaged: its content is not what was written")


def has_all_files(path: Path) -> bool:
    """Whether the files are there in their sizes: the quick half of `check_files`."""
    try:
        for record in read_manifest(path).files:
            _check_size(path, record)
    except NewerCheckpointError:
        return True
    except CheckpointError:
        return False
    return True


def digest_of(path: Path) -> str:
    """Give the SHA-256 of a file's content.

    Raises:
        CheckpointError: It cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read ({error.strerror})") from error
    return digest.hexdigest()


def remove_leftovers(folder: Path) -> None:
    """Remove what writers left that were killed. Only one may write in a folder at a time."""
    for path in folder.iterdir():
        if _HIDDEN.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def remove_others(folder: Path, step: int, *, keep: int) -> None:
    """Remove all but the newest whole checkpoints up to the one of a step.

    What has a later step is removed too: whoever went on from an earlier one has passed it over.

    Args:
        folder: Where they are.
        step: Of the checkpoint that was just written.
        keep: How many stay.
    """
    kept = 0
    for path in list_checkpoints(folder):
        if step_of(path) <= step and kept < keep and has_all_files(path):
            kept += 1
        else:
            with contextlib.suppress(OSError):  # the new one is there, which is what counts
                remove(path)


def remove(path: Path) -> None:
    """Remove a checkpoint, which is none from the first moment on."""
    hidden = path.with_name(f".old-{path.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    path.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def sync_folder(path: Path) -> None:
    """Have the kernel write down which names a folder holds."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot
            raise
    finally:
        os.close(descriptor)


def _check_size(path: Path, record: FileRecord) -> None:
    try:
        size = (path / record.name).stat().st_size
    except OSError as error:
        raise CheckpointError(f"{record.name} cannot be read ({error.strerror})") from error
    if size != record.num_bytes:
        raise CheckpointError(
            f"{record.name} has {size} bytes, and {record.num_bytes} were written"
        )
