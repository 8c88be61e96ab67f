"""How does a checkpoint come to nodes that do not have it? Through their ranks, before they train.

It lies where the first node has written it: on a file system that all nodes see, or on that node
alone.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np

from launch.checkpoints.folder import MANIFEST, check_files, digest_of, has_all_files
from launch.checkpoints.manifest import Manifest
from launch.errors import CheckpointError
from launch.exchange.questions import Asking
from launch.training.group import LocalGroup

_LENGTH_BYTES = 8


class SpreadCheckpoint:
    """A checkpoint that every node can read. Use it in a ``with`` block.

    Collective over the workers of all nodes. When all workers of a node have left the block, a copy
    that it needed is gone.

    Args:
        path: Where the first node has it.
        copy: Where this node may put a copy.
        group: The workers of this node.
        rank: Answers for all nodes.
        is_source: Whether this is the first node.
    """

    def __init__(
        self, path: Path, copy: Path, group: LocalGroup, rank: Asking, *, is_source: bool
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
        self._spread()
        return self._path if self._is_source else self._copy

    def __exit__(self, fault: type[BaseException] | None, *_: object) -> None:
        if not self._is_copied:
            return
        if fault is None:  # else nobody waits for the others
            self._group.barrier()
        if self._is_first:
            shutil.rmtree(self._copy, ignore_errors=True)

    def _spread(self) -> None:
        if not self._is_source:
            self._is_copied = True
            if self._is_first:
                shutil.rmtree(self._copy, ignore_errors=True)
                self._copy.mkdir(mode=0o700, parents=True)
        manifest = self._spread_manifest()
        for record in manifest.files:
            self._spread_file(record.name, record.num_bytes)
        if self._is_copied:
            if self._is_first:
                check_files(self._copy, manifest)
            self._group.barrier()

    def _spread_manifest(self) -> Manifest:
        """Give every node the manifest: its length first."""
        window = self._rank.window
        length = (self._path / MANIFEST).stat().st_size if self._is_source else 0
        if self._is_source and self._is_first:
            window[:_LENGTH_BYTES] = np.frombuffer(
                length.to_bytes(_LENGTH_BYTES, "little"), np.uint8
            )
        self._rank.spread(_LENGTH_BYTES)
        if not self._is_source:
            length = int.from_bytes(bytes(window[:_LENGTH_BYTES]), "little")
        content = self._spread_file(MANIFEST, length)
        return Manifest.decode((self._path / MANIFEST).read_bytes() if self._is_source else content)

    def _spread_file(self, name: str, num_bytes: int) -> bytes:
        """Give every node a file; on others than the first one, its first window's content."""
        window = self._rank.window
        first = b""
        descriptor = self._open(name)
        try:
            for start in range(0, num_bytes, len(window)):
                size = min(len(window), num_bytes - start)
                if self._is_source and descriptor is not None:
                    content = os.pread(descriptor, size, start)
                    window[: len(content)] = np.frombuffer(content, np.uint8)
                self._rank.spread(size)
                if not self._is_source:
                    first = first or bytes(window[: min(size, num_bytes)])
                    if descriptor is not None:
                        _write(descriptor, memoryview(bytes(window[:size])))
        finally:
            if descriptor is not None:
                os.close(descriptor)
        return first

    def _open(self, name: str) -> int | None:
        """Open a file on worker 0: for reading on the first node, for writing on the others."""
        if not self._is_first:
            return None
        if self._is_source:
            return os.open(self._path / name, os.O_RDONLY)
        return os.open(self._copy / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _write(descriptor: int, content: memoryview) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _digest(path: Path) -> int:
    """Tell checkpoints apart, and none from any."""
    if not has_all_files(path):
        return 0
    try:
        return int(digest_of(path / MANIFEST)[:15], 16)
    except CheckpointError:
        return 0
