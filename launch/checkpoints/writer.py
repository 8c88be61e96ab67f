"""Writer of checkpoints: all workers of a node together, whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from launch.checkpoints import folder as folders
from launch.checkpoints.checkpoint import DOCUMENT
from launch.checkpoints.manifest import FileRecord, Manifest
from launch.checkpoints.tensor_file import write_tensors
from launch.checkpoints.worker_part import WorkerPart
from launch.errors import CheckpointError
from launch.local_group.group import LocalGroup
from launch.system.cache import try_lock
from launch.system.durable_files import explain_os_error, make_folders, sync_folder, write_durably
from probes import codec

_ROW_BYTES = 2048
"""Size of a worker's message to the others: the records of two files, or an error."""
_LOCK = ".lock"
_LOCK_LIMIT_S = 10.0
"""Time to wait for the lock: a loading process of a job that was just killed may still have it."""


class CheckpointWriter:
    """Writes checkpoints into a folder, and removes all but the newest.

    Collective: every worker of ``group`` builds one, and calls `save` when the others do. Until
    `close`, no other job can write into the folder.

    Args:
        folder: Created if it is missing, for the user alone.
        group: The workers of the one node that writes.
        is_resumed: Whether the training resumes from a checkpoint: the folder may hold some.

    Raises:
        CheckpointError: The folder cannot be used, or has checkpoints of another training, which
            would be lost; on every worker.
    """

    def __init__(self, folder: Path, group: LocalGroup, *, is_resumed: bool = True) -> None:
        self._folder = folder
        self._is_resumed = is_resumed
        self._group = group
        self._rows = group.share_bytes(_ROW_BYTES * group.size).view(group.size, _ROW_BYTES)
        self._lock: int | None = None
        self._run_on_all(self._lock_folder, only_first=True)

    def save(self, make_part: Callable[[], WorkerPart], manifest: Manifest) -> Path:
        """Write a checkpoint. Collective, between two steps.

        When it returns, the checkpoint is on the disk, whatever happens to the machine.

        Args:
            make_part: Makes this worker's part; it may fail.
            manifest: Of the training; the files are added to it. The first worker's counts.

        Returns:
            Path of the checkpoint.

        Raises:
            CheckpointError: It could not be written; on every worker, and nothing of it is left.
        """
        hidden = self._folder / f".{folders.name_of(manifest.step)}"
        try:
            self._run_on_all(lambda: _make_folder(hidden), only_first=True)
            answers = self._run_on_all(lambda: self._write_part(hidden, make_part()))
            files = [record for answer in answers for record in answer]
            complete = replace(manifest, files=tuple(files))
            self._run_on_all(lambda: self._publish(hidden, complete), only_first=True)
        except CheckpointError:
            if self._group.local_rank == 0:
                shutil.rmtree(hidden, ignore_errors=True)
            raise
        return self._folder / folders.name_of(manifest.step)

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _lock_folder(self) -> None:
        make_folders(self._folder, mode=0o700)
        # A file: on NFS a folder cannot be locked, nor what is not open for writing.
        descriptor = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(descriptor)
            # Once more: the folder that was checked at the start may be on another machine.
            if not self._is_resumed and (found := folders.list_checkpoints(self._folder)):
                raise CheckpointError(
                    f"{self._folder} on this host holds checkpoints of a training already, the "
                    f"newest is {found[0].name}: go on with --resume from this host, or name "
                    "another folder"
                )
            folders.remove_leftovers(self._folder)
        except BaseException:
            os.close(descriptor)
            raise
        self._lock = descriptor

    def _write_part(self, hidden: Path, part: WorkerPart) -> list[FileRecord]:
        rank = self._group.local_rank
        records = []
        if part.weights:
            records.append(write_tensors(hidden / f"weights-{rank}.safetensors", part.weights))
        if part.document is not None:
            metadata = {DOCUMENT: json.dumps(part.document)}
            path = hidden / f"optimizer-{rank}.safetensors"
            records.append(write_tensors(path, part.tensors, metadata))
        return records

    def _publish(self, hidden: Path, manifest: Manifest) -> None:
        with write_durably(hidden / folders.MANIFEST) as file:
            file.write(manifest.encode())
        sync_folder(hidden)
        path = self._folder / folders.name_of(manifest.step)
        if path.exists():
            folders.hide(path)  # passed over when this training was resumed, and made again
        hidden.rename(path)
        sync_folder(self._folder)
        folders.remove_superseded(self._folder, manifest.step)

    def _run_on_all(
        self, act: Callable[[], Sequence[FileRecord] | None], *, only_first: bool = False
    ) -> list[tuple[FileRecord, ...]]:
        """Call a function on every worker, or on the first; return the files that each one wrote.

        Raises:
            CheckpointError: It failed on one of them; on every worker.
        """
        outcome = _Outcome()
        if self._group.local_rank == 0 or not only_first:
            try:
                outcome = _Outcome(files=tuple(act() or ()))
            except OSError as error:
                outcome = _Outcome(error=explain_os_error(error)[: _ROW_BYTES // 8])
            except CheckpointError as error:
                outcome = _Outcome(error=str(error)[: _ROW_BYTES // 8])
        document = codec.encode(outcome)
        row = self._rows[self._group.local_rank].numpy()
        row[:] = 0
        row[: len(document)] = memoryview(document)
        self._group.barrier()
        outcomes = [
            codec.decode(
                bytes(each.numpy()).rstrip(b"\0"),
                _Outcome,
                source="outcome",
                allow_unknown_keys=False,
            )
            for each in self._rows
        ]
        self._group.barrier()  # all have read
        for worker, found in enumerate(outcomes):
            if found.error is not None:
                raise CheckpointError(
                    f"worker {worker} cannot write a checkpoint into {self._folder}: {found.error}"
                )
        return [found.files for found in outcomes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """Message of one worker to the others."""

    files: tuple[FileRecord, ...] = ()
    error: str | None = None


def _make_folder(hidden: Path) -> None:
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir(mode=0o700)


def _lock(descriptor: int) -> None:
    """Lock a file for this process and its children.

    By the kernel, so that nothing is left behind. Not by filelock, which knows no file systems
    without locks.
    """
    deadline = time.monotonic() + _LOCK_LIMIT_S
    try:
        while not try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise CheckpointError("another job writes there: give each a folder of its own")
            time.sleep(0.1)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise  # else a file system without locks: the user has to take care
