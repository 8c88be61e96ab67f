"""A set of painted photos: painted once into the cache, by a program per core."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from zlib import crc32

from launch.errors import UseCaseError
from launch.reports import PreparationReporter
from launch.system.cache import cache_folder, cache_lock, make_cache_write_error
from launch.use_cases._painted.photo import CLASSES

VERSION = 2
"""Goes up with every change to what is painted, so that an old set is not taken for a new one."""


@dataclass(frozen=True, slots=True)
class PhotoSet:
    """A set of painted photos: which one, and how many."""

    name: str
    num_photos: int

    @property
    def folder(self) -> Path:
        """Where the set is; it is there as a whole or not at all."""
        return cache_folder() / "photos" / f"{self.name}-v{VERSION}"

    def paint(self, report: PreparationReporter, *, cores: int) -> bool:
        """Paint the set, unless it is there.

        While another process paints it, wait for that. What an interrupted run left is removed.

        Returns:
            Whether this call painted it.

        Raises:
            UseCaseError: The cache cannot be written.
        """
        if self.folder.is_dir():
            return False
        part = self.folder.with_name(f"{self.folder.name}.part")
        waiting = f"waiting for who draws photos for {self.name}"
        on_wait = partial(report.progress, 0, self.num_photos, waiting)
        try:
            with cache_lock(self.folder, on_wait) as lock, ExitStack() as stack:
                if self.folder.is_dir():
                    return False
                shutil.rmtree(part, ignore_errors=True)
                stack.callback(shutil.rmtree, part, ignore_errors=True)
                self._paint_into(part, report, lock, cores, stack)
                part.rename(self.folder)
        except OSError as error:
            raise make_cache_write_error(self.folder.parent, error) from error
        return True

    def _paint_into(
        self, part: Path, report: PreparationReporter, lock: int, cores: int, stack: ExitStack
    ) -> None:
        for label in CLASSES:
            (part / label).mkdir(parents=True)
        reader, writer = os.pipe()
        stack.callback(os.close, reader)
        programs = []
        try:
            for first in range(cores):
                program = self._start(part, first, cores, lock, writer)
                programs.append(stack.enter_context(program))  # on the way out: waits for its end
                stack.callback(program.kill)  # before that
        finally:
            os.close(writer)
        done = 0
        while painted := os.read(reader, 4096):  # until the last program ends
            done += len(painted)
            report.progress(done, self.num_photos, f"drawing photos for {self.name}")
        for program in programs:
            error = program.communicate()[1].decode(errors="replace").strip()
            if program.returncode != 0:
                last = error.splitlines()[-1] if error else f"exit code {program.returncode}"
                raise UseCaseError(
                    f"photos cannot be drawn into {part.parent}: {last}: make room there, "
                    "or set DDLPLAN_CACHE to a folder elsewhere"
                )

    def _start(self, part: Path, first: int, step: int, lock: int, output: int) -> Popen[bytes]:
        """Start a program that paints each ``step``-th photo and writes a byte for each.

        It inherits the lock. So a run that is killed gives it back only when its programs
        are gone too, and the next one finds a folder that nobody writes into.
        """
        # -P: a folder called launch in the current one is not ours. One thread each: the cores
        # are taken by the programs.
        command = [sys.executable, "-P", "-m", "launch.use_cases._painted.photo", str(part)]
        command += map(str, (crc32(self.name.encode()), first, self.num_photos, step))
        packages = filter(None, (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")))
        own = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(packages)}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **own}
        return Popen(command, stdout=output, stderr=PIPE, env=environment, pass_fds=(lock,))
