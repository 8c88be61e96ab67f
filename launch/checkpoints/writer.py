"""How is a checkpoint written? By all workers of a node together, whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from launch.checkpoints import folder as folders
from launch.checkpoints.checkpoint import DOCUMENT
from launch.checkpoints.manifest import FileRecord, Manifest
from launch.checkpoints.part import WorkerPart
from launch.checkpoints.tensor_file import write_tensors
from launch.errors import CheckpointError
from launch.training.group import LocalGroup

_ROW_BYTES = 2048
"""For what one worker tells the others: the records of two files, or an error."""
_LOCK = ".lock"
_LOCK_LIMIT_S = 10.0
"""A loading process of a job that was killed a moment ago may still hold the folder."""


class CheckpointWriter:
    """Writes checkpoints into a folder, of which it keeps the newest.

    Collective: every worker of ``group`` builds one, and calls `save` when the others do. As long
    as it lives, no other job can write into the folder.

    Args:
        folder: Where; made if it is missing, for the user alone.
        group: The workers of the one node that writes.
        keep: How many checkpoints stay.
        goes_on: Whether the training goes on from a checkpoint, so that the folder may hold some.

    Raises:
        CheckpointError: The folder cannot be used, or has checkpoints of another training, which
            would be lost; on every worker.
    """

    def __init__(
        self, folder: Path, group: LocalGroup, *, keep: int = 2, goes_on: bool = True
    ) -> None:
        self._folder = folder
        self._goes_on = goes_on
        self._group = group
        self._keep = keep
        self._rows = group.share_bytes(_ROW_BYTES * group.size).view(group.size, _ROW_BYTES)
        self._lock: int | None = None
        self._together(self._take_folder, only_first=True)

    def save(self, make_part: Callable[[], WorkerPart], manifest: Manifest) -> Path:
        """Write a checkpoint. Collective, between two steps.

        When it returns, the checkpoint is on the disk, whatever happens to the machine.

        Args:
            make_part: Gives what this worker writes; it may fail.
            manifest: Of the training; the files are added to it. The first worker's counts.

        Returns:
            Where the checkpoint is.

        Raises:
            CheckpointError: It could not be written; on every worker, and nothing of it is left.
        """
        hidden = self._folder / f".{folders.name_of(manifest.step)}"
        try:
            self._together(lambda: _make_folder(hidden), only_first=True)
            answers = self._together(lambda: self._write_part(hidden, make_part()))
            files = tuple(FileRecord(**each) for answer in answers for each in answer)
            complete = replace(manifest, files=files)
            self._together(lambda: self._publish(hidden, complete), only_first=True)
        except CheckpointError:
            if self._group.local_rank == 0:
                shutil.rmtree(hidden, ignore_errors=True)
            raise
        return self._folder / folders.name_of(manifest.step)

    def close(self) -> None:
        """Let others write into the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A file: on NFS a folder cannot be locked, nor what is not open for writing.
        descriptor = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(descriptor, self._folder)
            self._check_empty()
            folders.remove_leftovers(self._folder)
        except BaseException:
            os.close(descriptor)
            raise
        self._lock = descriptor

    def _check_empty(self) -> None:
        """Look again: whoever started the job may have looked at the folder of another machine."""
        if not self._goes_on and (kept := folders.list_checkpoints(self._folder)):
            raise CheckpointError(
                f"{self._folder} on this host holds checkpoints of a training already, the newest "
                f"is {kept[0].name}: go on with --resume from this host, or name another folder"
            )

    def _write_part(self, hidden: Path, part: WorkerPart) -> list[dict[str, Any]]:
        rank = self._group.local_rank
        records = []
        if part.weights:
            records.append(write_tensors(hidden / f"weights-{rank}.safetensors", part.weights))
        if part.document is not None:
            records.append(_write_state(hidden / f"optimizer-{rank}.safetensors", part))
        return [asdict(record) for record in records]

    def _publish(self, hidden: Path, manifest: Manifest) -> None:
        _write_whole(hidden / folders.MANIFEST, manifest.encode())
        folders.sync_folder(hidden)
        path = self._folder / folders.name_of(manifest.step)
        if path.exists():
            folders.remove(path)  # passed over when this training was resumed, and made again
        hidden.rename(path)
        folders.sync_folder(self._folder)
        folders.remove_others(self._folder, manifest.step, keep=self._keep)

    def _together(self, act: Any, *, only_first: bool = False) -> list[Any]:
        """Do something on every worker, or on the first; give what each one's call gave.

        Raises:
            CheckpointError: It failed on one of them; on every worker.
        """
        answer: dict[str, Any] = {"result": None}
        if self._group.local_rank == 0 or not only_first:
            try:
                answer["result"] = act()
            except (OSError, CheckpointError) as error:
                answer["error"] = str(error)[: _ROW_BYTES // 8]
        document = json.dumps(answer).encode()
        row = self._rows[self._group.local_rank].numpy()
        row[:] = 0
        row[: len(document)] = memoryview(document)
        self._group.barrier()
        answers = [json.loads(bytes(each.numpy()).rstrip(b"\0")) for each in self._rows]
        self._group.barrier()  # all have read
        for worker, found in enumerate(answers):
            if "error" in found:
                raise CheckpointError(
                    f"worker {worker} cannot write a checkpoint into {self._folder}: "
                    f"{found['error']}"
                )
        return [found["result"] for found in answers]


def _make_folder(hidden: Path) -> None:
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir(mode=0o700)


def _write_state(path: Path, part: WorkerPart) -> FileRecord:
    tensors: Mapping[str, Tensor] = part.tensors
    return write_tensors(path, tensors, {DOCUMENT: json.dumps(part.document)})


def _write_whole(path: Path, document: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(document)
        file.flush()
        os.fsync(file.fileno())


def _lock(descriptor: int, folder: Path) -> None:
    """Hold a folder for this process and its children, by the kernel: nothing is left behind."""
    deadline = time.monotonic() + _LOCK_LIMIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise CheckpointError(
                    "another job writes there: give each a folder of its own"
                ) from error
            time.sleep(0.1)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                return  # a file system without locks: the user has to take care
            raise
        else:
            return
