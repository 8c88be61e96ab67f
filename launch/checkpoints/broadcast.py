"""Broadcast of a checkpoint to nodes without it, through their ranks, before they train.

The first node has written it to a file system that all nodes see, or to a disk of its own.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from launch.checkpoints.folder import (
    MANIFEST,
    UnreadableCheckpointError,
    check_files,
    digest_of,
    has_all_files,
)
from launch.checkpoints.manifest import FileRecord, Manifest
from launch.errors import CheckpointError
from launch.gradient_sync.node_channel.requests import RequestClient
from launch.local_group.group import LocalGroup
from launch.system.durable_files import create_private, explain_os_error, naming_file


class BroadcastCheckpoint:
    """Makes a checkpoint readable on every node. Use it in a ``with`` block.

    Collective over the workers of all nodes. A copy that a node needed is removed when all its
    workers have left the block.

    Args:
        path: Of the checkpoint on the first node.
        copy: Path for a copy on this node.
        group: The workers of this node.
        rank: Of this node.
        is_source: Whether this is the first node.
    """

    def __init__(
        self, path: Path, copy: Path, group: LocalGroup, rank: RequestClient, *, is_source: bool
    ) -> None:
        self._path = path
        self._copy = copy
        self._group = group
        self._rank = rank
        self._is_source = is_source
        self._is_first = group.local_rank == 0
        self._is_copied = False

    def __enter__(self) -> Path:
        if self._rank.is_equal(_digest(self._path) if self._is_first else 0):
            return self._path
        try:
            self._broadcast()
        except BaseException as error:
            self.__exit__(type(error))
            if isinstance(error, OSError):
                raise self._make_error(error) from error
            raise
        return self._path if self._is_source else self._copy

    def __exit__(self, fault: type[BaseException] | None, *_: object) -> None:
        if not self._is_copied:
            return
        if fault is None:  # else nobody waits for the others
            self._group.barrier()
        if self._is_first:
            shutil.rmtree(self._copy, ignore_errors=True)

    def _make_error(self, error: OSError) -> CheckpointError:
        why = explain_os_error(error)
        if self._is_source:
            return CheckpointError(f"the checkpoint cannot be read: {why}")
        return CheckpointError(f"the checkpoint cannot be copied: {why}: make room")

    def _broadcast(self) -> None:
        if not self._is_source:
            self._is_copied = True
            if self._is_first:
                shutil.rmtree(self._copy, ignore_errors=True)
                self._copy.mkdir(mode=0o700, parents=True)
        manifest = self._broadcast_manifest()
        for record in manifest.files:
            self._broadcast_file(record)
        if self._is_copied:
            if self._is_first:
                check_files(self._copy, manifest)
            self._group.barrier()

    def _broadcast_manifest(self) -> Manifest:
        """Send the manifest to every worker, its length first; write it where it is missing."""
        with naming_file(self._path / MANIFEST):
            document = (self._path / MANIFEST).read_bytes() if self._is_source else b""
        length = np.array([len(document)])
        self._rank.broadcast_array(length.view(np.uint8), is_source=self._is_source)
        content = np.zeros(length[0], np.uint8)
        content[: len(document)] = np.frombuffer(document, np.uint8)
        self._rank.broadcast_array(content, is_source=self._is_source)
        if self._is_first and not self._is_source:
            with naming_file(path := self._copy / MANIFEST), create_private(path) as copy:
                copy.write(content.data)
        return Manifest.decode(bytes(content))

    def _broadcast_file(self, record: FileRecord) -> None:
        """Send a file from worker 0 of the first node to worker 0 of the others."""
        parts = self._rank.broadcast(record.num_bytes, is_source=self._is_source)
        if self._is_source and self._is_first:
            with naming_file(path := self._path / record.name), path.open("rb") as source:
                for part in parts:
                    source.readinto(part.data)
        elif self._is_first:
            with naming_file(path := self._copy / record.name), create_private(path) as copy:
                for part in parts:
                    copy.write(part.data)
        else:
            for _ in parts:
                pass  # only worker 0 writes


def _digest(path: Path) -> int:
    """Return a number that differs between checkpoints; 0 without a whole one."""
    if not has_all_files(path):
        return 0
    try:
        return int(digest_of(path / MANIFEST)[:15], 16)
    except UnreadableCheckpointError:
        raise
    except CheckpointError:
        return 0
