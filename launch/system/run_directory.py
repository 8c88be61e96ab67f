"""Folder of a launched job, ``runs/<number>/``, readable by the user alone."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

from launch.system.durable_files import make_folders, naming_file, sync_folder


class RunDirectory:
    """The files of one run.

    ==================  ==========================================
    ``job.json``        what was launched
    ``metrics.jsonl``   one JSON document per epoch
    ``weights.safetensors``
    ``best-weights.safetensors``
                        with ``--keep-best``: those of the best validation
    ``<host>-worker<n>.log``
    ``<host>-resumed``  a copy of a checkpoint, while it is read
    ``mpirun.log``      what mpirun wrote to stderr
    ``ssh_config``      how to log in to the other hosts
    ==================  ==========================================
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.job = path / "job.json"
        self.metrics = path / "metrics.jsonl"
        self.weights = path / "weights.safetensors"
        self.best_weights = path / "best-weights.safetensors"
        self.mpirun_log = path / "mpirun.log"
        self.ssh_config = path / "ssh_config"

    @classmethod
    def create(cls, parent: Path) -> RunDirectory:
        """Make the directory of the next number; several runs at once get different ones."""
        make_folders(parent)
        while True:
            directory = cls.find_next(parent)
            try:
                directory.path.mkdir(mode=0o700)
            except FileExistsError:
                continue
            sync_folder(parent)
            return directory

    @classmethod
    def find_next(cls, parent: Path) -> RunDirectory:
        """Name the directory of the next number, without making it."""
        taken = parent.iterdir() if parent.is_dir() else ()
        number = max((int(p.name) for p in taken if p.name.isdecimal()), default=0)
        return cls(parent.resolve() / str(number + 1))

    @staticmethod
    def log_prefix(host: str) -> str:
        """Make the prefix of the names of a host's logs, safe in any file name."""
        return re.sub(r"[^A-Za-z0-9._-]", "_", host) + "-"

    def list_logs(self, host: str) -> list[Path]:
        """List the logs of a host's workers, and of no other host's."""
        name = re.compile(re.escape(self.log_prefix(host)) + r"worker\d+\.log")
        return [path for path in self.path.iterdir() if name.fullmatch(path.name)]

    def remove_host_output(self, host: str, *, only_empty_logs: bool = False) -> None:
        """Remove the output of a host, and the directory where nothing else is in it.

        Args:
            host: As the job names it.
            only_empty_logs: Leave logs that are not empty.
        """
        shutil.rmtree(self.checkpoint_copy(host), ignore_errors=True)
        with contextlib.suppress(OSError):
            for log in self.list_logs(host):
                if not only_empty_logs or log.stat().st_size == 0:
                    log.unlink()
            self.path.rmdir()
            self.path.parent.rmdir()

    def checkpoint_copy(self, host: str) -> Path:
        """Name a host's own copy of a checkpoint: others may share this directory."""
        return self.path / f"{self.log_prefix(host)}resumed"

    def remove(self) -> None:
        """Remove the directory, and its parent where nothing else is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.path.parent.rmdir()


def append_line(path: Path, line: bytes) -> None:
    """Add one whole line, or nothing, to a file of the user alone that one process writes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    size = os.fstat(descriptor).st_size
    try:
        with naming_file(path):
            while line:
                line = line[os.write(descriptor, line) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        raise
    finally:
        os.close(descriptor)
